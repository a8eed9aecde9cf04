//! The networks that experiments run on: network namespaces and veth pairs.

pub(crate) mod pair;
pub(crate) mod routed;
pub(crate) mod shaped;
pub(crate) mod uplink;
