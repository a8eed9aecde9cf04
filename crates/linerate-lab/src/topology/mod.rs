//! The networks that experiments run on: network namespaces and veth pairs.

pub mod pair;
pub mod routed;
pub mod uplink;
