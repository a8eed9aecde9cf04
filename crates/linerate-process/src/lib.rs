#![doc = include_str!("../README.md")]
//!
//! BPF programs report sockets, flows and forks ([`linerate_bpf::process`]). [`Attribution`] keeps what they report, and
//! answers for a flow and a time. An answer is right, or "unknown": a socket that several processes may have is of none
//! of them, until a look at all descriptors shows that one has it alone. Each reader of packets has a [`Cache`], so
//! that it asks once for each flow.
#![forbid(unsafe_code)]

mod attribution;
mod buckets;
mod cache;
mod cgroup;
mod names;
mod process;
mod selection;
mod table;

pub use attribution::{Attached, Attribution, Statistics};
pub use cache::{Answer, Cache};
pub use cgroup::{Container, ControlGroup};
pub use process::Process;
pub use selection::Selection;
