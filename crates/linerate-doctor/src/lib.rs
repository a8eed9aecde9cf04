#![doc = include_str!("../README.md")]
//!
//! [`examine`] runs the [`checks`] of each [`Job`], on the host
//! and on each interface.
//!
//! A check asks the kernel, or lets the crate decide that does the job: the source of a capture, the preflight of the
//! accelerator. What it may not see is a finding, too ([`Severity::Unknown`]).
#![forbid(unsafe_code)]

pub mod checks;
mod context;
mod error;
mod examine;
mod finding;
mod host;
pub mod persist;
mod setting;
pub mod state;

pub use context::Options;
pub use error::{Error, Result};
pub use examine::examine;
pub use finding::{Finding, Job, Remedy, Severity};
pub use setting::{Change, Setting};
