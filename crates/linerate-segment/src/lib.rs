#![doc = include_str!("../README.md")]
//!
//! [`segment`] splits one super-packet into the segments or fragments that go on the wire, and
//! [`coalesce`] makes super-packets of segments.
//! [`Policy`] says per interface and protocol whether that happens and up to which size.
//!
//! Nothing here allocates, and nothing needs the standard library.
#![no_std]
#![forbid(unsafe_code)]

pub mod coalesce;
mod error;
mod policy;
pub mod segment;

pub use error::{Error, Result};
pub use policy::{ParsePolicyError, Policy};
