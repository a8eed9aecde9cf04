#![doc = include_str!("../README.md")]
//!
//! Frames come from a [`source`] or from a capture file ([`linerate_pcapfile`]), pass a
//! [`filter`] and go into a [`sink`]; the [`engine`] runs the threads in between. [`statistics`] is the
//! drop ledger: what was lost, and why. [`split`] turns super-packets into the frames of the wire.
#![forbid(unsafe_code)]

mod annotate;
pub mod clock;
pub mod engine;
mod error;
pub mod filter;
pub mod host;
pub mod interface;
pub mod libpcap;
pub mod link_type;
pub mod print;
pub mod privilege;
pub mod sink;
pub mod source;
pub mod split;
pub mod statistics;

pub use error::{Error, Result};
