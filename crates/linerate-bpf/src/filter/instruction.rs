//! [`Instruction`]: one eBPF instruction, in the kernel's layout.

use std::fmt;

/// An eBPF instruction, laid out as the kernel's `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// Operation: class, size, mode, operator and source (RFC 9669).
    pub code: u8,
    registers: u8,
    /// Memory offset in bytes, or jump distance in instructions.
    pub offset: i16,
    /// Constant operand.
    pub immediate: i32,
}

impl Instruction {
    /// An instruction from its five fields; register numbers are `0..=10`.
    pub const fn new(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Self {
        let registers = if cfg!(target_endian = "little") {
            (source << 4) | (destination & 0x0f)
        } else {
            (destination << 4) | (source & 0x0f)
        };
        Self { code, registers, offset, immediate }
    }

    /// Number of the register that is written (or compared).
    pub const fn destination(self) -> u8 {
        if cfg!(target_endian = "little") { self.registers & 0x0f } else { self.registers >> 4 }
    }

    /// Number of the register that is read.
    pub const fn source(self) -> u8 {
        if cfg!(target_endian = "little") { self.registers >> 4 } else { self.registers & 0x0f }
    }
}

impl fmt::Debug for Instruction {
    /// Much as the kernel's verifier writes it: `r0 = *(u16 *)(r1 +12)`, `if w0 != 0x800 goto +9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, offset, immediate, .. } = *self;
        let (class, from_register) = (code & 0x07, code & 0x08 != 0);
        let wide = matches!(class, 0x05 | 0x07);
        let letter = if wide { 'r' } else { 'w' };
        let (destination, source) = (self.destination(), self.source());
        let operand = if from_register {
            format!("{letter}{source}")
        } else if wide {
            format!("{immediate}")
        } else {
            format!("{immediate:#x}")
        };
        let size = ["u32", "u16", "u8", "u64"][usize::from(code >> 3 & 3)];
        match (class, code & 0xf0) {
            (0x01, 0x60 | 0x70) => write!(f, "r{destination} = *({size} *)(r{source} {offset:+})"),
            (0x03, 0x60 | 0x70) => write!(f, "*({size} *)(r{destination} {offset:+}) = r{source}"),
            (0x04, 0xd0) if from_register => {
                write!(f, "r{destination} = be{immediate} r{destination}")
            }
            (0x04 | 0x07, 0x80) => write!(f, "{letter}{destination} = -{letter}{destination}"),
            (0x04 | 0x07, operator) => {
                let symbol = match operator {
                    0x00 => "+=",
                    0x10 => "-=",
                    0x20 => "*=",
                    0x30 => "/=",
                    0x40 => "|=",
                    0x50 => "&=",
                    0x60 => "<<=",
                    0x70 => ">>=",
                    0x90 => "%=",
                    0xa0 => "^=",
                    0xb0 => "=",
                    _ => "?=",
                };
                write!(f, "{letter}{destination} {symbol} {operand}")
            }
            (0x05, 0x00) => write!(f, "goto {offset:+}"),
            (0x05, 0x80) => write!(f, "call {immediate:+}"),
            (0x05, 0x90) => f.write_str("exit"),
            (0x05 | 0x06, operator) => {
                let symbol = match operator {
                    0x10 => "==",
                    0x20 => ">",
                    0x30 => ">=",
                    0x40 => "&",
                    0x50 => "!=",
                    0xa0 => "<",
                    0xb0 => "<=",
                    _ => "?",
                };
                write!(f, "if {letter}{destination} {symbol} {operand} goto {offset:+}")
            }
            _ => write!(f, "({code:#04x}) r{destination} r{source} {offset:+} {immediate:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use libbpf_sys::bpf_insn;

    use super::*;

    #[test]
    fn the_layout_is_the_kernels() {
        let instruction = Instruction::new(0x69, 3, 9, -12, 0x1234_5678);
        assert_eq!((instruction.destination(), instruction.source()), (3, 9));
        assert_eq!(size_of::<Instruction>(), size_of::<bpf_insn>());
        let at = (offset_of!(Instruction, offset), offset_of!(Instruction, immediate));
        assert_eq!(at, (offset_of!(bpf_insn, off), offset_of!(bpf_insn, imm)));
    }

    #[test]
    fn debug_reads_as_the_verifier_writes() {
        let show = |code, d, s, o, i| format!("{:?}", Instruction::new(code, d, s, o, i));
        assert_eq!(show(0x69, 0, 1, 12, 0), "r0 = *(u16 *)(r1 +12)");
        assert_eq!(show(0x56, 0, 0, 9, 0x800), "if w0 != 0x800 goto +9");
        assert_eq!(show(0x2d, 0, 2, 4, 0), "if r0 > r2 goto +4");
        assert_eq!(show(0xdc, 0, 0, 0, 16), "r0 = be16 r0");
        assert_eq!(show(0x63, 10, 0, -4, 0), "*(u32 *)(r10 -4) = r0");
        assert_eq!(show(0x95, 0, 0, 0, 0), "exit");
    }
}
