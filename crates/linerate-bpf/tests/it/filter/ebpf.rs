//! A small, distrustful interpreter for the eBPF that filters are translated to.
//!
//! It knows the instructions that a translation may use and no more, and checks what the verifier
//! would: that jumps stay inside, that every register and stack word is written before it is read,
//! that packet loads lie within `data..data_end`, that stack accesses lie within 64 bytes.

use linerate_bpf::filter::Instruction;

const DATA: u64 = 0x7000_0000_0000;
const STACK_TOP: u64 = 0x6000_0000_0000;
const STACK_WORDS: u64 = 16;

/// Whether `code` is sound in shape, whatever the frame: known registers, jumps that go forward and
/// stay inside, an exit at the end.
pub(crate) fn check_shape(code: &[Instruction]) -> Result<(), String> {
    let last = code.last().ok_or("no instruction")?;
    if last.code != 0x95 {
        return Err(format!("the last instruction is {last:?}"));
    }
    for (at, instruction) in code.iter().enumerate() {
        let class = instruction.code & 7;
        let jumps = matches!(class, 5 | 6) && instruction.code != 0x95;
        let target = at as i64 + 1 + i64::from(instruction.offset);
        if jumps && !(at as i64 + 1..code.len() as i64).contains(&target) {
            return Err(format!("{at}: {instruction:?} leaves the program"));
        }
        let known = |register| matches!(register, 0..=5 | 10);
        if !known(instruction.destination()) || !known(instruction.source()) {
            return Err(format!("{at}: {instruction:?} uses a register that is not its own"));
        }
    }
    Ok(())
}

/// Runs `code` over `frame`; the error says what the verifier should have refused.
pub(crate) fn run(code: &[Instruction], frame: &[u8], wire_len: u32) -> Result<u32, String> {
    let mut machine = Machine { frame, registers: [None; 11], stack: [None; STACK_WORDS as usize] };
    machine.registers[1] = Some(DATA);
    machine.registers[2] = Some(DATA + frame.len() as u64);
    machine.registers[3] = Some(u64::from(wire_len));
    machine.registers[10] = Some(STACK_TOP);
    let mut at = 0;
    loop {
        let instruction = *code.get(at).ok_or_else(|| format!("{at} is outside"))?;
        at += 1;
        if instruction.code == 0x95 {
            let verdict = machine.read(0)?;
            return u32::try_from(verdict).map_err(|_| format!("{verdict:#x} as a verdict"));
        }
        let jump = machine.step(instruction).map_err(|why| format!("{}: {why}", at - 1))?;
        at = at.checked_add_signed(isize::from(jump)).ok_or("a jump to before the start")?;
    }
}

struct Machine<'a> {
    frame: &'a [u8],
    registers: [Option<u64>; 11],
    stack: [Option<u32>; STACK_WORDS as usize],
}

impl Machine<'_> {
    fn read(&self, register: u8) -> Result<u64, String> {
        self.registers[usize::from(register)].ok_or_else(|| format!("r{register} is not set"))
    }

    /// Executes one instruction; returns how far it jumps.
    fn step(&mut self, instruction: Instruction) -> Result<i16, String> {
        let Instruction { code, offset, immediate, .. } = instruction;
        let (destination, source) = (instruction.destination(), instruction.source());
        let operand = |machine: &Self| {
            if code & 8 == 0 { Ok(i64::from(immediate) as u64) } else { machine.read(source) }
        };
        let value = match code {
            0x61 | 0x69 | 0x71 => {
                let address = self.read(source)?.wrapping_add_signed(i64::from(offset));
                self.load(address, [4, 2, 1][usize::from(code >> 3 & 3)])?
            }
            0x63 => {
                let address = self.read(destination)?.wrapping_add_signed(i64::from(offset));
                let word = self.stack_word(address)?;
                self.stack[word] = Some(self.read(source)? as u32);
                return Ok(0);
            }
            0xdc => {
                let value = self.read(destination)?;
                match immediate {
                    16 => u64::from((value as u16).to_be()),
                    32 => u64::from((value as u32).to_be()),
                    _ => return Err(format!("{instruction:?}")),
                }
            }
            0xb4 | 0xbc => u64::from(operand(self)? as u32),
            0xbf => self.read(source)?,
            0x07 | 0x0f => self.read(destination)?.wrapping_add(operand(self)?),
            0x84 => u64::from((self.read(destination)? as u32).wrapping_neg()),
            _ if code & 7 == 4 => {
                let (a, b) = (self.read(destination)? as u32, operand(self)? as u32);
                u64::from(arithmetic(code & 0xf0, a, b).ok_or_else(|| format!("{instruction:?}"))?)
            }
            0x05 => return Ok(offset),
            _ if matches!(code & 7, 5 | 6) => {
                let (mut a, mut b) = (self.read(destination)?, operand(self)?);
                if code & 7 == 6 {
                    (a, b) = (a & 0xffff_ffff, b & 0xffff_ffff);
                }
                let taken = match code & 0xf0 {
                    0x10 => a == b,
                    0x20 => a > b,
                    0x30 => a >= b,
                    0x40 => a & b != 0,
                    0x50 => a != b,
                    0xa0 => a < b,
                    0xb0 => a <= b,
                    _ => return Err(format!("{instruction:?}")),
                };
                return Ok(if taken { offset } else { 0 });
            }
            _ => return Err(format!("{instruction:?}")),
        };
        self.registers[usize::from(destination)] = Some(value);
        Ok(0)
    }

    /// A load as a little-endian machine does it.
    fn load(&self, address: u64, size: usize) -> Result<u64, String> {
        if address < DATA {
            let word = self.stack_word(address)?;
            return self.stack[word].map(u64::from).ok_or_else(|| format!("word {word} not set"));
        }
        let start = (address - DATA) as usize;
        let bytes = self
            .frame
            .get(start..start.saturating_add(size))
            .ok_or_else(|| format!("{size} bytes at {start} of {}", self.frame.len()))?;
        Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn stack_word(&self, address: u64) -> Result<usize, String> {
        let below = STACK_TOP.wrapping_sub(address);
        if below.is_multiple_of(4) && (1..=STACK_WORDS).contains(&(below / 4)) {
            Ok((below / 4 - 1) as usize)
        } else {
            Err(format!("the stack at {below} bytes below its top"))
        }
    }
}

/// `None` for an operator that a translation must not use, or not with these numbers.
fn arithmetic(operator: u8, a: u32, b: u32) -> Option<u32> {
    Some(match operator {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 => a.checked_div(b)?,
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a.checked_shl(b)?,
        0x70 => a.checked_shr(b)?,
        0x90 => a.checked_rem(b)?,
        0xa0 => a ^ b,
        _ => return None,
    })
}
