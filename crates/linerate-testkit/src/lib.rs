//! What tests and experiments share: network namespaces and veth pairs that remove themselves, programs that
//! run in them, tests that skip themselves or run alone.
//!
//! Tests and experiments need two hosts and a veth pair. A [`Namespace`] is a host: it is visible to
//! `ip netns`, and goes when its owner is dropped, also while a panic unwinds. What a process that
//! died of `kill -9` left behind is removed by the next one that makes a namespace
//! ([`Namespace::remove_orphans`]). A [`Veth`] is the veth pair.
//!
//! ```no_run
//! use linerate_testkit::{Namespace, Veth, VethOptions};
//!
//! # fn main() -> linerate_testkit::Result<()> {
//! let (left, right) = (Namespace::create("left")?, Namespace::create("right")?);
//! let veth = Veth::create(&left, "a", &right, "b", VethOptions::default())?;
//! veth.a.add_address("10.0.0.1".parse().unwrap(), 24)?;
//! veth.b.add_address("10.0.0.2".parse().unwrap(), 24)?;
//! let pinged = left.command("ping").args(["-c1", "10.0.0.2"]).status()?;
//! assert!(pinged.success());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

pub mod browser;
mod command;
mod error;
mod exclusive;
mod interface;
pub mod lab;
mod namespace;
mod process;
mod random;
mod rerun;
mod skip;
pub mod tools;
mod traffic;
mod veth;
mod wait;

pub use command::Command;
pub use error::{Error, Result};
pub use exclusive::{Exclusive, Shared, exclusive, shared};
pub use interface::{Interface, Mac};
pub use namespace::{Namespace, Options};
pub use process::Process;
pub use random::Random;
pub use rerun::run_single_test_args;
pub use skip::{function_name, is_root, print_skipped};
pub use traffic::{bind_udp, send_tcp};
pub use veth::{Veth, VethOptions};
pub use wait::{TIMEOUT, uninterrupted, wait_for};
