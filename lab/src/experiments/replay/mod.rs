//! Experiments of replay.

pub(super) mod gaps;
