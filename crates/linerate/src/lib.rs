#![doc = include_str!("../README.md")]
//!
//! It is a library, too, so that `linerate-lab` parses the arguments of `linerate lab` by the definitions that
//! `linerate --help`, the man pages and the completion scripts are made from.
#![forbid(unsafe_code)]

pub mod cli;
mod command;
mod verbs;

pub use command::router::run_router;
pub use command::{Cli, run, run_capture};
pub use verbs::lab;
