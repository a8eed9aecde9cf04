//! The `flows-*` experiments: flow records, and the packets behind them.

pub(in crate::experiments) mod find;
pub(in crate::experiments) mod meter;
pub(in crate::experiments) mod rate;
