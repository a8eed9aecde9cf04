//! Sources, filters and sinks of a packet capture.
//!
//! Frames come from a ring of [`linerate_ring`] or from a capture file ([`read`]), pass a filter and
//! go into a file ([`mod@write`]). What was lost on the way, and why, is in the [`ledger`].
#![forbid(unsafe_code)]

pub mod choose;
pub mod engine;
mod error;
pub mod filter;
mod format;
pub mod interface;
pub mod ledger;
pub mod libpcap;
pub mod open;
pub mod print;
pub mod privilege;
pub mod read;
pub mod source;
pub mod split;
pub mod write;

pub use error::{Error, Result};
pub use format::Format;
