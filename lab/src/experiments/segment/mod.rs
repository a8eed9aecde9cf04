//! The `segment-*` experiments: splitting super-packets.

pub(in crate::experiments) mod rate;
pub(in crate::experiments) mod tcp;
mod throughput;
pub(in crate::experiments) mod udp;
