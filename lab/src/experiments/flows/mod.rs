//! The `flows-*` experiments: flow records.

pub(in crate::experiments) mod meter;
pub(in crate::experiments) mod rate;
