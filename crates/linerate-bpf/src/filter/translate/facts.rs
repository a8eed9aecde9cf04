//! Static analysis of a classic program, instruction by instruction.

use super::super::classic::{Operand, Operation, Width};
use super::MAX_PACKET_OFFSET;

/// Bytes that every accepting path from a classic instruction on is going to need.
///
/// More than [`MAX_PACKET_OFFSET`] means that no path accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// From `data` on.
    pub(super) frame: u32,
    /// From `data + X` on, with the X of now.
    pub(super) indexed: u32,
}

impl Demand {
    const NOTHING: Self = Self { frame: 0, indexed: 0 };
    const IMPOSSIBLE: Self = Self { frame: MAX_PACKET_OFFSET + 1, indexed: MAX_PACKET_OFFSET + 1 };

    pub(super) fn of(operations: &[Operation]) -> Vec<Self> {
        let mut demands = vec![Self::NOTHING; operations.len()];
        for (at, &operation) in operations.iter().enumerate().rev() {
            let next = operation
                .successors(at)
                .map(|successor| demands[successor])
                .reduce(Self::of_either)
                .unwrap_or(Self::NOTHING);
            demands[at] = next.before(operation);
        }
        demands
    }

    fn of_either(self, other: Self) -> Self {
        Self { frame: self.frame.min(other.frame), indexed: self.indexed.min(other.indexed) }
    }

    /// The demand before `operation`, from the demand after it.
    fn before(self, operation: Operation) -> Self {
        let demand = match operation {
            Operation::Return(0) => Self::IMPOSSIBLE,
            Operation::LoadAbsolute { width, offset } => {
                Self { frame: self.frame.max(end(offset, width)), ..self }
            }
            Operation::LoadIndirect { width, offset } => {
                Self { indexed: self.indexed.max(end(offset, width)), ..self }
            }
            Operation::IndexHeaderLength { offset } => {
                Self { frame: self.frame.max(end(offset, Width::Byte)), indexed: 0 }
            }
            Operation::IndexConstant(_)
            | Operation::IndexLength
            | Operation::IndexScratch(_)
            | Operation::IndexFromAccumulator => Self { indexed: 0, ..self },
            _ => self,
        };
        if self.is_impossible() || demand.is_impossible() { Self::IMPOSSIBLE } else { demand }
    }

    pub(super) fn is_impossible(self) -> bool {
        self.frame > MAX_PACKET_OFFSET || self.indexed > MAX_PACKET_OFFSET
    }
}

/// What holds on every path that leads to a classic instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// `data + frame <= data_end`.
    pub(super) frame: u32,
    /// R5 is `data + X` and `R5 + indexed <= data_end`; 0 says nothing about R5.
    pub(super) indexed: u32,
    /// X is at most this, and the verifier can tell.
    pub(super) index_max: u32,
}

impl Known {
    pub(super) const AT_START: Self = Self { frame: 0, indexed: 0, index_max: 0 };

    pub(super) fn on_either(self, other: Self) -> Self {
        Self {
            frame: self.frame.min(other.frame),
            indexed: self.indexed.min(other.indexed),
            index_max: self.index_max.max(other.index_max),
        }
    }

    pub(super) fn with_index(self, index_max: u32) -> Self {
        Self { index_max, indexed: 0, ..self }
    }
}

/// Which registers some path reads before it writes them; classic BPF starts them at 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Awaited {
    pub(super) accumulator: bool,
    pub(super) index: bool,
}

impl Awaited {
    pub(super) fn of(operations: &[Operation]) -> Self {
        let mut awaited = vec![Self::default(); operations.len()];
        for (at, &operation) in operations.iter().enumerate().rev() {
            let (mut accumulator, mut index) = operation
                .successors(at)
                .map(|next| (awaited[next].accumulator, awaited[next].index))
                .fold((false, false), |a, b| (a.0 | b.0, a.1 | b.1));
            match operation {
                Operation::LoadAbsolute { .. }
                | Operation::LoadAncillary(_)
                | Operation::LoadLength
                | Operation::LoadConstant(_)
                | Operation::LoadScratch(_) => accumulator = false,
                Operation::LoadIndirect { .. } | Operation::AccumulatorFromIndex => {
                    (accumulator, index) = (false, true);
                }
                Operation::IndexHeaderLength { .. }
                | Operation::IndexLength
                | Operation::IndexConstant(_)
                | Operation::IndexScratch(_) => index = false,
                Operation::IndexFromAccumulator => (accumulator, index) = (true, false),
                Operation::StoreIndex(_) => index = true,
                Operation::Compute(_, operand) | Operation::Branch { operand, .. } => {
                    accumulator = true;
                    index |= operand == Operand::Index;
                }
                // A call saves the index.
                Operation::Member { .. } => (accumulator, index) = (true, true),
                Operation::Store(_)
                | Operation::Keep { .. }
                | Operation::Negate
                | Operation::ReturnAccumulator => {
                    accumulator = true;
                }
                Operation::Jump(_) | Operation::Return(_) => {}
            }
            awaited[at] = Self { accumulator, index };
        }
        awaited[0]
    }
}

/// The end of a load, in bytes from where its offset counts.
pub(super) fn end(offset: u32, width: Width) -> u32 {
    offset.saturating_add(width.bytes())
}
