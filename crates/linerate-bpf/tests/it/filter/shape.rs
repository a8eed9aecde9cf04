//! Valid classic programs out of any bytes, for tests that make programs up.

use linerate_bpf::filter::{ClassicInstruction, ClassicProgram, InvalidProgram};

/// All operation codes of classic BPF; loads twice, for they matter most.
const CODES: [u16; 60] = [
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x0c, 0x14, 0x15, 0x16, 0x1c, 0x1d, 0x20, 0x24,
    0x25, 0x28, 0x2c, 0x2d, 0x30, 0x34, 0x35, 0x3c, 0x3d, 0x40, 0x44, 0x45, 0x48, 0x4c, 0x4d, 0x50,
    0x54, 0x5c, 0x60, 0x61, 0x64, 0x6c, 0x74, 0x7c, 0x80, 0x81, 0x84, 0x87, 0x94, 0x9c, 0xa4, 0xac,
    0xb1, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0xb1, 0x07, 0x15, 0x45, 0x40,
];

/// A program with one instruction for every four bytes, and a return.
///
/// Bytes choose among what is allowed; what the rules forbid nevertheless becomes a constant load.
pub(crate) fn program(bytes: &[u8]) -> ClassicProgram {
    let length = (bytes.len() / 4).min(1000);
    let mut instructions: Vec<ClassicInstruction> = bytes
        .chunks_exact(4)
        .take(length)
        .enumerate()
        .map(|(at, chunk)| instruction(chunk, length - at))
        .collect();
    instructions.push(ClassicInstruction { code: 0x16, jt: 0, jf: 0, k: 0 });
    loop {
        match ClassicProgram::new(instructions.clone()) {
            Ok(classic) => return classic,
            Err(
                InvalidProgram::Uninitialised { at, .. }
                | InvalidProgram::DivisionByZero { at }
                | InvalidProgram::Shift { at, .. },
            ) => instructions[at] = ClassicInstruction { code: 0x00, jt: 0, jf: 0, k: at as u32 },
            Err(other) => unreachable!("{other}"),
        }
    }
}

/// An instruction with `left` more behind it.
fn instruction(chunk: &[u8], left: usize) -> ClassicInstruction {
    let code = CODES[usize::from(chunk[0]) % CODES.len()];
    let number = u16::from_le_bytes([chunk[2], chunk[3]]);
    let jump = |byte: u8| (usize::from(byte) % left.min(255)) as u8;
    let k = match code {
        0x05 => u32::from(number) % left as u32,
        0x02 | 0x03 | 0x60 | 0x61 => u32::from(number) % 16,
        0x64 | 0x74 => u32::from(number) % 32,
        0x20 | 0x28 | 0x30 | 0xb1 if number < 0xf000 => u32::from(number) % 80,
        0x20 | 0x28 | 0x30 | 0xb1 => u32::from(number & 0x0fff) << 5,
        0x40 | 0x48 | 0x50 => match chunk[1] % 8 {
            0 => u32::from(number) << 16,
            1 => u32::from(number),
            2 => u32::from(number).wrapping_neg(),
            _ => u32::from(number) % 80,
        },
        _ => match chunk[1] % 4 {
            0 => u32::from(number) << 16 | 0xff,
            1 => u32::from(number),
            2 => u32::from(number).wrapping_neg(),
            _ => u32::from(number) % 64,
        },
    };
    let (jt, jf) =
        if code & 7 == 5 && code != 5 { (jump(chunk[1]), jump(chunk[2])) } else { (0, 0) };
    ClassicInstruction { code, jt, jf, k }
}
