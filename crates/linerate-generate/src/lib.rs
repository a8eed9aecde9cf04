//! Traffic: a generator that runs inside the kernel, and replay of capture files.
//!
//! [`Settings`] say what is wanted, [`Plan`] is what was decided, [`Generator`] runs it:
//!
//! ```no_run
//! use linerate_generate::{Generator, Plan, Settings};
//!
//! # fn main() -> linerate_generate::Result<()> {
//! let settings = Settings { count: Some(1_000_000), flows: Some(100), ..Settings::default() };
//! let report = Generator::start(Plan::decide("veth0", settings)?)?.wait()?;
//! println!("{} sent, {} refused", report.sent, report.refused);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod clock;
mod counters;
mod cpu;
mod error;
pub mod fields;
mod frames;
mod generator;
pub mod interface;
mod live;
mod outlet;
mod plan;
mod rate;
pub mod replay;
mod ring;
mod size;
mod template;

pub use error::{Error, Result};
pub use frames::Frames;
pub use generator::{Generator, Progress, Report, Running};
pub use plan::{Backend, Plan, Random, Settings, Stamp, Transport};
pub use rate::Rate;
pub use size::Sizes;
