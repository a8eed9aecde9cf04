//! Network namespaces, veth pairs and neighbours that remove themselves.
//!
//! Tests and experiments need two hosts and a cable. A [`Namespace`] is a host: it is visible to
//! `ip netns`, and goes when its owner is dropped, also while a panic unwinds. What a process that
//! died of `kill -9` left behind is removed by the next one that makes a namespace
//! ([`Namespace::sweep`]). A [`Veth`] is the cable.
//!
//! ```no_run
//! use linerate_netns::{Namespace, Veth, VethOptions};
//!
//! # fn main() -> linerate_netns::Result<()> {
//! let (left, right) = (Namespace::create("left")?, Namespace::create("right")?);
//! let cable = Veth::create(&left, "a", &right, "b", VethOptions::default())?;
//! cable.a.add_address("10.0.0.1".parse().unwrap(), 24)?;
//! cable.b.add_address("10.0.0.2".parse().unwrap(), 24)?;
//! let pinged = left.command("ping").args(["-c1", "10.0.0.2"]).status()?;
//! assert!(pinged.success());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod command;
mod error;
mod features;
mod interface;
mod namespace;
mod netlink;
mod veth;

pub use command::Command;
pub use error::{Error, Result};
pub use interface::{Counters, Interface, Mac};
pub use namespace::{Namespace, Options};
pub use veth::{Veth, VethOptions};

/// Whether this process may make namespaces and interfaces: it has CAP_SYS_ADMIN and CAP_NET_ADMIN
/// in its effective set (`capabilities(7)`), as root has.
pub fn is_root() -> bool {
    const NET_ADMIN: u64 = 1 << 12;
    const SYS_ADMIN: u64 = 1 << 21;
    const NEEDED: u64 = NET_ADMIN | SYS_ADMIN;
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
            u64::from_str_radix(set.trim(), 16).ok()
        })
        .is_some_and(|set| set & NEEDED == NEEDED)
}

/// Returns from a test that needs root when there is none, saying so on standard error.
///
/// The line is `skipped: NAME: needs root`, which the test runner counts.
#[macro_export]
macro_rules! root_or_skip {
    ($name:expr) => {
        if !$crate::is_root() {
            $crate::say_skipped($name, "needs root");
            return;
        }
    };
}

/// Returns from a test whose kernel lacks what it needs, by the probe's own words, saying so on
/// standard error. A `None` goes on.
///
/// The line is `skipped: NAME: OBSTACLE`. What the machine could do if it were set up otherwise is no
/// obstacle: give this only what a probe found missing, so that a defect still fails.
#[macro_export]
macro_rules! probe_or_skip {
    ($name:expr, $obstacle:expr) => {
        if let Some(obstacle) = $obstacle {
            $crate::say_skipped($name, &obstacle.to_string());
            return;
        }
    };
}

/// Prints `skipped: NAME: REASON` past the capture of the test harness, so that it is always seen.
pub fn say_skipped(name: &str, reason: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "skipped: {name}: {reason}");
}
