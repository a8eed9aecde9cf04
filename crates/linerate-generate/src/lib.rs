//! Traffic: a generator that runs inside the kernel, and replay of capture files.
//!
//! [`Options`] are what the user asks for, a [`Config`] is what was decided, and a [`Generator`] runs it:
//!
//! ```no_run
//! use linerate_generate::{Config, Generator, Options};
//!
//! # fn main() -> linerate_generate::Result<()> {
//! let options = Options { count: Some(1_000_000), flows: Some(100), ..Options::default() };
//! let report = Generator::start(Config::new("veth0", options)?)?.wait()?;
//! println!("{} sent, {} refused", report.sent, report.refused);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod clock;
mod config;
mod counters;
mod cpu;
mod error;
pub mod fields;
mod frames;
mod generator;
mod headers;
pub mod interface;
mod live_frames;
mod options;
mod random;
mod rate;
pub mod replay;
mod ring;
mod size;
mod transmit;
mod zipf;

pub use config::Config;
pub use error::{Error, Result};
pub use frames::Frames;
pub use generator::{Generator, Progress, Report, Running};
pub use options::{Backend, Options, PayloadHeader, RandomFields, Transport, UNUSED_MAC};
pub use rate::Rate;
pub use size::Sizes;
