//! An accelerator for Linux routers: it learns each session from what the kernel does with its first
//! packets, and does the same to the rest at the driver.
#![deny(unsafe_code)]

pub mod ageing;
pub mod clock;
pub mod config;
pub mod conntrack;
pub mod control;
pub mod daemon;
pub mod deny;
pub mod error;
pub mod hash;
pub mod heartbeat;
pub mod instance;
pub mod layout;
mod link;
pub mod memory;
pub mod metrics;
mod named;
pub mod pins;
pub mod prefix;
pub mod preflight;
pub mod program;
pub mod reason;
pub mod refusal;
pub mod session;
pub mod snapshot;
pub mod table;
pub mod tuple;
pub mod uppers;
pub mod view;
pub mod watch;

pub use error::{Error, Result};
