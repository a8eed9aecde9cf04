#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod config;
pub mod datapath;
pub mod error;
pub mod maps;
pub mod metrics;
mod named;
pub mod prefix;
pub mod reason;
pub mod refusal;
pub mod runtime;
pub mod snapshot;
pub mod table;
pub mod tuple;

pub use error::{Error, Result};

// A file of the integration tests, which unit tests have too, names the crate.
#[cfg(test)]
extern crate self as linerate_forward;
