//! [`ClassicProgram`]: a classic BPF program that has been checked.

use std::fmt;
use std::sync::Arc;

use super::sets::{AddressSet, Version, WORDS};

/// Longest program that a kernel takes (`BPF_MAXINSNS`).
pub const MAX_INSTRUCTIONS: usize = 4096;

/// Number of 32-bit words of scratch memory (`BPF_MEMWORDS`).
pub const SCRATCH_WORDS: u32 = 16;

/// One instruction of a classic program, laid out as the kernel's `struct sock_filter`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassicInstruction {
    /// Operation: class, size, mode, operator and source, as in `linux/bpf_common.h`.
    pub code: u16,
    /// Instructions to skip when a condition holds.
    pub jt: u8,
    /// Instructions to skip when a condition does not hold.
    pub jf: u8,
    /// Constant, packet offset, scratch word or jump distance, as `code` says.
    pub k: u32,
}

impl ClassicInstruction {
    /// Whether it compares the accumulator with a constant for equality.
    pub(super) fn is_equality(self) -> bool {
        self.code == JMP | 0x10
    }
}

/// A classic BPF program that passed the rules of the kernel's `bpf_check_classic`.
///
/// So every instruction is known, every jump goes forward and stays inside, the last instruction
/// returns, scratch words are written before they are read on every path, and no constant divides
/// by zero or shifts by more than 31. A program of [`ClassicProgram::for_user_space`] may break some of them;
/// [`ClassicProgram::obstacle`] then says which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicProgram {
    instructions: Vec<ClassicInstruction>,
    operations: Vec<Operation>,
    obstacle: Option<InvalidProgram>,
    sets: Vec<Arc<AddressSet>>,
    /// Where the kernel's engine and libpcap's matcher differ, eBPF has the kernel's meaning.
    pub(super) as_kernel: bool,
}

impl ClassicProgram {
    /// Checks `instructions` and keeps them.
    ///
    /// # Errors
    /// The first rule that is broken, with the index of the instruction (counted from 0, as
    /// `tcpdump -d` does).
    pub fn new(instructions: impl Into<Vec<ClassicInstruction>>) -> Result<Self, InvalidProgram> {
        let program = Self::for_user_space(instructions)?;
        program.obstacle.map_or(Ok(program), Err)
    }

    /// The same for a program that need not run in the kernel. As for libpcap's matcher, it may have any
    /// length, read scratch words that it has not written (as `vlan and pppoes` does on a live interface), and
    /// jump backward, as `protochain` does: it ends only if its loops do.
    ///
    /// # Errors
    /// The first of the other rules that is broken.
    pub fn for_user_space(
        instructions: impl Into<Vec<ClassicInstruction>>,
    ) -> Result<Self, InvalidProgram> {
        Self::decoded(instructions.into(), Vec::new())
    }

    /// The same for a program that looks addresses up.
    pub(super) fn decoded(
        instructions: Vec<ClassicInstruction>,
        sets: Vec<Arc<AddressSet>>,
    ) -> Result<Self, InvalidProgram> {
        if instructions.is_empty() {
            return Err(InvalidProgram::Empty);
        }
        let operations = (0..instructions.len())
            .map(|at| Operation::decode(&instructions, at, sets.len()))
            .collect::<Result<Vec<_>, _>>()?;
        let last = operations.len() - 1;
        if !matches!(operations[last], Operation::Return(_) | Operation::ReturnAccumulator) {
            return Err(InvalidProgram::NoReturn { at: last });
        }
        let backward = |&(at, operation): &(usize, &Operation)| matches!(operation, Operation::Jump(target) if *target <= at);
        let obstacle = match operations.iter().enumerate().find(backward) {
            Some((at, _)) => Some(InvalidProgram::JumpBackward { at }),
            None => check_scratch(&operations).err().or_else(|| {
                if let Some(at) = instructions.iter().position(|one| one.code == MEMBER) {
                    return Some(InvalidProgram::LookUp { at });
                }
                let instructions = instructions.len();
                (instructions > MAX_INSTRUCTIONS)
                    .then_some(InvalidProgram::TooLong { instructions })
            }),
        };
        Ok(Self { instructions, operations, obstacle, sets, as_kernel: false })
    }

    /// Why no kernel takes the program as a socket's filter.
    pub fn obstacle(&self) -> Option<InvalidProgram> {
        self.obstacle
    }

    /// The program that takes every frame, up to `snaplen` bytes of it.
    pub fn accept_all(snaplen: u32) -> Self {
        let instruction = ClassicInstruction { code: RET | K, jt: 0, jf: 0, k: snaplen };
        let operations = vec![Operation::Return(snaplen)];
        let (instructions, obstacle, sets) = (vec![instruction], None, Vec::new());
        Self { instructions, operations, obstacle, sets, as_kernel: false }
    }

    /// The instructions, in the layout that `SO_ATTACH_FILTER` takes.
    pub fn instructions(&self) -> &[ClassicInstruction] {
        &self.instructions
    }

    /// The same program, accepting `snaplen` bytes wherever it accepted a constant number of them.
    ///
    /// A packet socket cuts each frame to what its filter returns, so this is how a snap length
    /// reaches the kernel. 0 would reject everything and is taken as 1.
    pub fn with_snaplen(mut self, snaplen: u32) -> Self {
        let snaplen = snaplen.max(1);
        for (instruction, operation) in self.instructions.iter_mut().zip(&mut self.operations) {
            if let Operation::Return(bytes @ 1..) = operation {
                *bytes = snaplen;
                instruction.k = snaplen;
            }
        }
        self
    }

    /// The sets in which it looks addresses up.
    pub(super) fn sets(&self) -> &[Arc<AddressSet>] {
        &self.sets
    }

    /// The decoded instructions, one for one.
    pub(super) fn operations(&self) -> &[Operation] {
        &self.operations
    }
}

impl fmt::Display for ClassicProgram {
    /// One `code jt jf k` line an instruction, as `tcpdump -ddd` prints them after the count.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.instructions
            .iter()
            .try_for_each(|s| writeln!(f, "{} {} {} {}", s.code, s.jt, s.jf, s.k))
    }
}

/// Why a list of instructions is no classic program that a kernel would take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProgram {
    /// No instruction at all.
    #[error("the filter program is empty; it needs at least one return instruction")]
    Empty,
    /// More than [`MAX_INSTRUCTIONS`].
    #[error(
        "the filter program has {instructions} instructions and the kernel takes {MAX_INSTRUCTIONS}; \
         shorten the expression or filter in user space"
    )]
    TooLong {
        /// How many there are.
        instructions: usize,
    },
    /// An operation code that classic BPF does not have.
    #[error("instruction {at} of the filter program has the unknown operation code {code:#06x}")]
    Unknown {
        /// Index of the instruction.
        at: usize,
        /// Its code.
        code: u16,
    },
    /// A jump leaves the program.
    #[error("instruction {at} of the filter program jumps past its end")]
    JumpOutside {
        /// Index of the instruction.
        at: usize,
    },
    /// A jump goes back, as libpcap compiles `protochain`; kernels refuse loops in filters.
    #[error(
        "instruction {at} of the filter program jumps backward (`protochain` does), which no kernel \
         takes; filter in user space"
    )]
    JumpBackward {
        /// Index of the instruction.
        at: usize,
    },
    /// Division or modulo by the constant 0.
    #[error("instruction {at} of the filter program divides by the constant 0")]
    DivisionByZero {
        /// Index of the instruction.
        at: usize,
    },
    /// A shift by a constant of more than 31 bits.
    #[error("instruction {at} of the filter program shifts by {bits} bits; 31 is the most")]
    Shift {
        /// Index of the instruction.
        at: usize,
        /// Bits to shift.
        bits: u32,
    },
    /// A scratch word past the last one.
    #[error("instruction {at} of the filter program uses scratch word {word}; 15 is the last")]
    NoSuchWord {
        /// Index of the instruction.
        at: usize,
        /// Index of the word.
        word: u32,
    },
    /// A scratch word that is read on a path that never wrote it.
    #[error(
        "instruction {at} of the filter program may read scratch word {word} before writing it"
    )]
    Uninitialised {
        /// Index of the instruction.
        at: usize,
        /// Index of the word.
        word: u32,
    },
    /// An offset in the range that Linux keeps for packet metadata, at a place without any.
    #[error(
        "instruction {at} of the filter program asks for unknown packet metadata at {offset:#x}"
    )]
    UnknownAncillary {
        /// Index of the instruction.
        at: usize,
        /// The offset that was asked for.
        offset: u32,
    },
    /// It looks an address up, which no kernel's classic program can.
    #[error(
        "instruction {at} of the filter program looks an address up in a file; filter in user space"
    )]
    LookUp {
        /// Index of the instruction.
        at: usize,
    },
    /// What should compare with a placeholder of an address does something else.
    #[error(
        "instruction {at} of the filter program depends on the addresses in a file in an unknown way"
    )]
    Placeholder {
        /// Index of the instruction.
        at: usize,
    },
    /// The last instruction does not return.
    #[error("instruction {at}, the last one of the filter program, does not return")]
    NoReturn {
        /// Index of the instruction.
        at: usize,
    },
}

/// Packet metadata that a Linux socket filter can load instead of packet bytes (`SKF_AD_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the kernel's own, in linux/filter.h")]
pub enum Ancillary {
    Protocol,
    PacketType,
    InterfaceIndex,
    NetlinkAttribute,
    NestedNetlinkAttribute,
    Mark,
    Queue,
    HardwareType,
    ReceiveHash,
    Cpu,
    XorIndex,
    VlanTag,
    VlanTagPresent,
    PayloadOffset,
    Random,
    VlanProtocol,
}

impl Ancillary {
    /// In the order of their offsets, 4 apart, from `SKF_AD_OFF` on.
    const ALL: [Self; 16] = [
        Self::Protocol,
        Self::PacketType,
        Self::InterfaceIndex,
        Self::NetlinkAttribute,
        Self::NestedNetlinkAttribute,
        Self::Mark,
        Self::Queue,
        Self::HardwareType,
        Self::ReceiveHash,
        Self::Cpu,
        Self::XorIndex,
        Self::VlanTag,
        Self::VlanTagPresent,
        Self::PayloadOffset,
        Self::Random,
        Self::VlanProtocol,
    ];

    fn at(offset: u32) -> Option<Self> {
        let distance = offset.checked_sub(ANCILLARY_OFFSET)?;
        Self::ALL.get(distance as usize / 4).copied().filter(|_| distance.is_multiple_of(4))
    }
}

/// `SKF_AD_OFF`: absolute offsets from here up name metadata, not bytes.
pub(super) const ANCILLARY_OFFSET: u32 = -0x1000_i32 as u32;

/// Branches on whether an address is in set `k / 2`: the IPv4 address in the accumulator, or with an odd `k` the IPv6
/// address of which that is the last word. No code of the kernel's.
pub(super) const MEMBER: u16 = 0x55;
/// Keeps the accumulator as word `k` of an IPv6 address, and goes on at `jt`. No code of the kernel's.
pub(super) const KEEP: u16 = 0x65;

const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const MISC: u16 = 0x07;

const WORD: u16 = 0x00;
const HALF: u16 = 0x08;
const BYTE: u16 = 0x10;

const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;

const K: u16 = 0x00;
const A: u16 = 0x10;
const NEG: u16 = 0x80;
const TAX: u16 = 0x00;
const TXA: u16 = 0x80;

/// Width of a packet load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Byte,
    Half,
    Word,
}

impl Width {
    pub(super) fn bytes(self) -> u32 {
        match self {
            Self::Byte => 1,
            Self::Half => 2,
            Self::Word => 4,
        }
    }
}

/// Second operand of arithmetic and comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Constant(u32),
    Index,
}

/// Arithmetic on the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Or,
    And,
    ShiftLeft,
    ShiftRight,
    Modulo,
    Xor,
}

/// Comparison of the accumulator with an operand, unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Equal,
    Greater,
    GreaterOrEqual,
    AnyBit,
}

/// A decoded instruction; jump targets are indices into the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    LoadAbsolute { width: Width, offset: u32 },
    LoadIndirect { width: Width, offset: u32 },
    LoadAncillary(Ancillary),
    LoadLength,
    LoadConstant(u32),
    LoadScratch(u32),
    IndexHeaderLength { offset: u32 },
    IndexLength,
    IndexConstant(u32),
    IndexScratch(u32),
    Store(u32),
    StoreIndex(u32),
    Compute(Arithmetic, Operand),
    Negate,
    IndexFromAccumulator,
    AccumulatorFromIndex,
    Jump(usize),
    Branch { condition: Condition, operand: Operand, yes: usize, no: usize },
    Member { set: usize, version: Version, yes: usize, no: usize },
    Keep { word: usize, next: usize },
    Return(u32),
    ReturnAccumulator,
}

impl Operation {
    fn decode(
        instructions: &[ClassicInstruction],
        at: usize,
        sets: usize,
    ) -> Result<Self, InvalidProgram> {
        let ClassicInstruction { code, k, .. } = instructions[at];
        let unknown = InvalidProgram::Unknown { at, code };
        Ok(match code & 0x07 {
            LD => match (code & 0x18, code & !0x1f) {
                (size, mode @ (ABS | IND)) => {
                    let width = match size {
                        WORD => Width::Word,
                        HALF => Width::Half,
                        BYTE => Width::Byte,
                        _ => return Err(unknown),
                    };
                    if mode == IND {
                        Self::LoadIndirect { width, offset: k }
                    } else if k < ANCILLARY_OFFSET {
                        Self::LoadAbsolute { width, offset: k }
                    } else {
                        let unknown = InvalidProgram::UnknownAncillary { at, offset: k };
                        Self::LoadAncillary(Ancillary::at(k).ok_or(unknown)?)
                    }
                }
                (WORD, LEN) => Self::LoadLength,
                (WORD, IMM) => Self::LoadConstant(k),
                (WORD, MEM) => Self::LoadScratch(scratch_word(at, k)?),
                _ => return Err(unknown),
            },
            LDX => match code & !0x07 {
                mode if mode == BYTE | MSH => Self::IndexHeaderLength { offset: k },
                LEN => Self::IndexLength,
                IMM => Self::IndexConstant(k),
                MEM => Self::IndexScratch(scratch_word(at, k)?),
                _ => return Err(unknown),
            },
            ST if code == ST => Self::Store(scratch_word(at, k)?),
            STX if code == STX => Self::StoreIndex(scratch_word(at, k)?),
            ALU if code == ALU | NEG => Self::Negate,
            ALU => Self::decode_arithmetic(at, code, k)?,
            JMP => Self::decode_jump(instructions, at, sets)?,
            RET if code == RET | K => Self::Return(k),
            RET if code == RET | A => Self::ReturnAccumulator,
            MISC if code == MISC | TAX => Self::IndexFromAccumulator,
            MISC if code == MISC | TXA => Self::AccumulatorFromIndex,
            _ => return Err(unknown),
        })
    }

    fn decode_arithmetic(at: usize, code: u16, k: u32) -> Result<Self, InvalidProgram> {
        use Arithmetic::*;
        let arithmetic = match code & !0x0f {
            0x00 => Add,
            0x10 => Subtract,
            0x20 => Multiply,
            0x30 => Divide,
            0x40 => Or,
            0x50 => And,
            0x60 => ShiftLeft,
            0x70 => ShiftRight,
            0x90 => Modulo,
            0xa0 => Xor,
            _ => return Err(InvalidProgram::Unknown { at, code }),
        };
        let operand = operand(code, k);
        match (arithmetic, operand) {
            (Divide | Modulo, Operand::Constant(0)) => Err(InvalidProgram::DivisionByZero { at }),
            (ShiftLeft | ShiftRight, Operand::Constant(bits @ 32..)) => {
                Err(InvalidProgram::Shift { at, bits })
            }
            _ => Ok(Self::Compute(arithmetic, operand)),
        }
    }

    fn decode_jump(
        instructions: &[ClassicInstruction],
        at: usize,
        sets: usize,
    ) -> Result<Self, InvalidProgram> {
        let ClassicInstruction { code, jt, jf, k } = instructions[at];
        let inside = |distance: usize| {
            let target = at + 1 + distance;
            if target < instructions.len() {
                Ok(target)
            } else {
                Err(InvalidProgram::JumpOutside { at })
            }
        };
        let condition = match code & !0x0f {
            0x00 if code == JMP && (k as i32) < 0 => {
                let target = (at + 1).checked_sub(k.wrapping_neg() as usize);
                return target.map(Self::Jump).ok_or(InvalidProgram::JumpOutside { at });
            }
            0x00 if code == JMP => return Ok(Self::Jump(inside(k as usize)?)),
            0x10 => Condition::Equal,
            0x20 => Condition::Greater,
            0x30 => Condition::GreaterOrEqual,
            0x40 => Condition::AnyBit,
            _ if code == MEMBER && (k as usize) < 2 * sets => {
                let version = if k.is_multiple_of(2) { Version::V4 } else { Version::V6 };
                let (yes, no) = (inside(jt.into())?, inside(jf.into())?);
                return Ok(Self::Member { set: k as usize / 2, version, yes, no });
            }
            _ if code == KEEP && sets > 0 && (k as usize) < WORDS - 1 => {
                return Ok(Self::Keep { word: k as usize, next: inside(jt.into())? });
            }
            _ => return Err(InvalidProgram::Unknown { at, code }),
        };
        let (yes, no) = (inside(usize::from(jt))?, inside(usize::from(jf))?);
        Ok(Self::Branch { condition, operand: operand(code, k), yes, no })
    }

    /// Where execution may go on after the instruction at `at`.
    pub(super) fn successors(self, at: usize) -> impl Iterator<Item = usize> {
        let (first, second) = match self {
            Self::Return(_) | Self::ReturnAccumulator => (None, None),
            Self::Jump(target) | Self::Keep { next: target, .. } => (Some(target), None),
            Self::Branch { yes, no, .. } | Self::Member { yes, no, .. } => (Some(yes), Some(no)),
            _ => (Some(at + 1), None),
        };
        first.into_iter().chain(second)
    }
}

fn operand(code: u16, k: u32) -> Operand {
    const INDEX: u16 = 0x08;
    if code & INDEX == 0 { Operand::Constant(k) } else { Operand::Index }
}

fn scratch_word(at: usize, word: u32) -> Result<u32, InvalidProgram> {
    if word < SCRATCH_WORDS { Ok(word) } else { Err(InvalidProgram::NoSuchWord { at, word }) }
}

/// Checks that no path reads a scratch word that it has not written.
///
/// Instructions that nothing reaches count as having everything written, as in the kernel.
fn check_scratch(operations: &[Operation]) -> Result<(), InvalidProgram> {
    let mut written = vec![u16::MAX; operations.len()];
    written[0] = 0;
    for (at, &operation) in operations.iter().enumerate() {
        let mut now = written[at];
        match operation {
            Operation::Store(word) | Operation::StoreIndex(word) => now |= 1 << word,
            Operation::LoadScratch(word) | Operation::IndexScratch(word)
                if now & (1 << word) == 0 =>
            {
                return Err(InvalidProgram::Uninitialised { at, word });
            }
            _ => {}
        }
        operation.successors(at).for_each(|next| written[next] &= now);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
