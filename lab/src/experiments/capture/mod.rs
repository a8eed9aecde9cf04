//! The `capture-*` experiments: programs that capture frames.

pub(crate) mod measurement;
pub(in crate::experiments) mod pages;
pub(in crate::experiments) mod pcap;
pub(in crate::experiments) mod queues;
pub(in crate::experiments) mod rate;
mod search;
pub(in crate::experiments) mod stage;
pub(in crate::experiments) mod stall;
mod sweep;
pub(in crate::experiments) mod trace;
pub(in crate::experiments) mod write;
