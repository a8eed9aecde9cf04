//! [`Classic::accepts`]: a classic program run in user space.

use super::classic::{Arithmetic, Classic, Condition, Operand, Operation, SCRATCH_WORDS, Width};

impl Classic {
    /// Runs the program over `frame`, whose length on the wire was `wire_len` bytes.
    ///
    /// Returns how many bytes it accepts, 0 for a frame to reject. The meaning is that of libpcap's
    /// matcher, `len` being `wire_len`: a frame that was cut at capture is judged by its real
    /// length. A program that reads packet metadata rejects at that point.
    pub fn accepts(&self, frame: &[u8], wire_len: u32) -> u32 {
        self.run(frame, wire_len).unwrap_or(0)
    }

    /// `None` where the program ends early: a load outside of the frame, a division by 0.
    fn run(&self, frame: &[u8], wire_len: u32) -> Option<u32> {
        let (mut a, mut x) = (0_u32, 0_u32);
        let mut scratch = [0_u32; SCRATCH_WORDS as usize];
        let operations = self.operations();
        let mut at = 0;
        loop {
            let operation = operations[at];
            at += 1;
            match operation {
                Operation::LoadAbsolute { width, offset } => a = load(frame, offset, width)?,
                Operation::LoadIndirect { width, offset } => {
                    a = load(frame, x.checked_add(offset)?, width)?;
                }
                Operation::LoadAncillary(_) => return None,
                Operation::LoadLength => a = wire_len,
                Operation::LoadConstant(k) => a = k,
                Operation::LoadScratch(word) => a = scratch[word as usize],
                Operation::IndexHeaderLength { offset } => {
                    x = (load(frame, offset, Width::Byte)? & 0x0f) << 2;
                }
                Operation::IndexLength => x = wire_len,
                Operation::IndexConstant(k) => x = k,
                Operation::IndexScratch(word) => x = scratch[word as usize],
                Operation::Store(word) => scratch[word as usize] = a,
                Operation::StoreIndex(word) => scratch[word as usize] = x,
                Operation::Compute(arithmetic, operand) => {
                    a = compute(arithmetic, a, value(operand, x))?;
                }
                Operation::Negate => a = a.wrapping_neg(),
                Operation::IndexFromAccumulator => x = a,
                Operation::AccumulatorFromIndex => a = x,
                Operation::Jump(target) => at = target,
                Operation::Branch { condition, operand, yes, no } => {
                    at = if holds(condition, a, value(operand, x)) { yes } else { no };
                }
                Operation::Return(bytes) => return Some(bytes),
                Operation::ReturnAccumulator => return Some(a),
            }
        }
    }
}

fn value(operand: Operand, x: u32) -> u32 {
    match operand {
        Operand::Constant(k) => k,
        Operand::Index => x,
    }
}

fn load(frame: &[u8], offset: u32, width: Width) -> Option<u32> {
    let rest = frame.get(offset as usize..)?;
    Some(match width {
        Width::Byte => u32::from(*rest.first()?),
        Width::Half => u32::from(u16::from_be_bytes(*rest.first_chunk()?)),
        Width::Word => u32::from_be_bytes(*rest.first_chunk()?),
    })
}

fn compute(arithmetic: Arithmetic, a: u32, operand: u32) -> Option<u32> {
    Some(match arithmetic {
        Arithmetic::Add => a.wrapping_add(operand),
        Arithmetic::Subtract => a.wrapping_sub(operand),
        Arithmetic::Multiply => a.wrapping_mul(operand),
        Arithmetic::Divide => a.checked_div(operand)?,
        Arithmetic::Modulo => a.checked_rem(operand)?,
        Arithmetic::Or => a | operand,
        Arithmetic::And => a & operand,
        Arithmetic::Xor => a ^ operand,
        Arithmetic::ShiftLeft => a.checked_shl(operand).unwrap_or(0),
        Arithmetic::ShiftRight => a.checked_shr(operand).unwrap_or(0),
    })
}

fn holds(condition: Condition, a: u32, operand: u32) -> bool {
    match condition {
        Condition::Equal => a == operand,
        Condition::Greater => a > operand,
        Condition::GreaterOrEqual => a >= operand,
        Condition::AnyBit => a & operand != 0,
    }
}
