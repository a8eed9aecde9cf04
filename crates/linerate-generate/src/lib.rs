#![doc = include_str!("../README.md")]
//!
//! [`Options`] are what the user asks for, a [`Config`] is what was decided, and a [`Generator`] runs it.
#![deny(unsafe_code)]

mod clock;
mod config;
mod counters;
mod cpu;
mod error;
pub mod fields;
mod frame_builder;
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
pub use frame_builder::FrameBuilder;
pub use generator::{Generator, Progress, Report, Running};
pub use options::{Backend, Options, PayloadHeader, RandomFields, Transport, UNUSED_MAC};
pub use rate::Rate;
pub use size::Sizes;
