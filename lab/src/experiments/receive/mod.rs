//! The `receive-*` experiments: programs that receive UDP messages.

pub(in crate::experiments) mod dns;
pub(in crate::experiments) mod echo;
pub(in crate::experiments) mod latency;
mod messages;
pub(in crate::experiments) mod quic;
pub(in crate::experiments) mod rate;
mod readers;
mod servers;
mod testbed;
