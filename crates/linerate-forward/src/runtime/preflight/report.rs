//! [`Report`]: what the preflight found and fixed.

use std::fmt;

use linerate_bpf::link::Link;
use serde::{Deserialize, Serialize};

/// What was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// The interface transmits frames itself, and is not an upper device.
    Kind,
    /// No XDP program of somebody else is attached.
    Program,
    /// The driver runs XDP programs.
    Native,
    /// The peer of a veth can be examined.
    Peer,
    /// It can send redirected frames.
    Transmit,
    /// Each CPU has a queue to send them on.
    Queues,
    /// Frames fit into the one buffer that XDP gives a program.
    Mtu,
    /// No frames are joined before XDP sees them.
    Coalescing,
    /// VLAN tags are in the frames.
    Tags,
    /// Checksums from a sender on this machine are complete.
    Checksums,
    /// Tracked connections can be looked up.
    Tracking,
    /// The host forwards.
    Forwarding,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// No problem.
    Fine,
    /// A problem was fixed; describes the fix.
    Fixed(String),
    /// It works, but not as well as it could.
    Warning {
        /// The problem.
        what: String,
        /// What to do about it, with a command where there is one.
        remedy: String,
    },
    /// The interface cannot be a port.
    Refused {
        /// Why.
        reason: String,
        /// What to do about it, with a command where there is one.
        remedy: String,
    },
}

/// One check and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The interface; `None` for the host as a whole.
    pub interface: Option<String>,
    /// What was checked.
    pub check: Check,
    /// The result.
    pub outcome: Outcome,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(interface) = &self.interface {
            write!(f, "{interface}: ")?;
        }
        match &self.outcome {
            Outcome::Fine => write!(f, "{:?}: fine", self.check),
            Outcome::Fixed(what) => f.write_str(what),
            Outcome::Warning { what, remedy } => write!(f, "{what}; {remedy}"),
            Outcome::Refused { reason, remedy } => {
                write!(f, "cannot be a port: {reason}; {remedy}")
            }
        }
    }
}

/// A change that `restore` can undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Fix {
    /// An offload was turned off.
    Offload {
        /// The interface, by its name at that time.
        interface: String,
        /// Its index.
        index: u32,
        /// Inode number of its network namespace.
        namespace: u64,
        /// The offload, by the kernel's name.
        offload: String,
    },
}

/// A program that returns XDP_PASS, attached to the peer of a veth. It is detached when the link is dropped,
/// unless it is pinned.
#[derive(Debug)]
pub struct PeerProgram {
    /// The port.
    pub interface: String,
    /// The peer.
    pub peer: String,
    /// The link that keeps it attached.
    pub link: Link,
}

/// What the preflight found.
#[derive(Debug, Default)]
pub struct Report {
    /// All checks, in the order of the ports.
    pub findings: Vec<Finding>,
    /// The changes. Keep them while programs are attached, then pass them to `restore`.
    pub fixes: Vec<Fix>,
    /// Programs on peers. Keep them as long, and pin them where the programs are pinned.
    pub peer_programs: Vec<PeerProgram>,
}

impl Report {
    /// Why interfaces cannot be ports; empty when all can.
    pub fn refusals(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|one| matches!(one.outcome, Outcome::Refused { .. }))
    }

    /// Findings to show to the user: everything except `Fine`.
    pub fn problems(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|one| one.outcome != Outcome::Fine)
    }

    pub(super) fn add(&mut self, interface: Option<&str>, check: Check, outcome: Outcome) {
        self.findings.push(Finding { interface: interface.map(str::to_owned), check, outcome });
    }
}

pub(super) fn refused(reason: impl Into<String>, remedy: impl Into<String>) -> Outcome {
    Outcome::Refused { reason: reason.into(), remedy: remedy.into() }
}

pub(super) fn warning(what: impl Into<String>, remedy: impl Into<String>) -> Outcome {
    Outcome::Warning { what: what.into(), remedy: remedy.into() }
}
