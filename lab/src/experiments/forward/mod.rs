//! The `forward-*` experiments: what forwarding costs.

pub(in crate::experiments) mod ageing;
pub(in crate::experiments) mod changes;
mod cost;
mod idle;
pub(in crate::experiments) mod sessions;
pub(in crate::experiments) mod size;
pub(in crate::experiments) mod statistics;
pub(in crate::experiments) mod uplink;
