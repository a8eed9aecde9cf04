//! An accelerator for Linux routers: it learns each session from what the kernel does with its first
//! packets, and does the same to the rest at the driver.
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
