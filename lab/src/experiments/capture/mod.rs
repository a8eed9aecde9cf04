//! The `capture-*` experiments: programs that capture frames.

pub(in crate::experiments) mod keep_free;
pub(in crate::experiments) mod load;
pub(in crate::experiments) mod loss;
pub(crate) mod measurement;
pub(in crate::experiments) mod pcap;
pub(in crate::experiments) mod queues;
pub(in crate::experiments) mod rate;
mod search;
pub(in crate::experiments) mod soak;
pub(in crate::experiments) mod stage;
pub(in crate::experiments) mod stall;
mod sweep;
pub(in crate::experiments) mod tlb;
pub(in crate::experiments) mod trace;
pub(in crate::experiments) mod write;
