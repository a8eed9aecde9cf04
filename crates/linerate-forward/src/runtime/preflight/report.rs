//! [`Report`]: what the preflight found, and what it put right.

use std::fmt;

use linerate_bpf::link::Link;
use serde::{Deserialize, Serialize};

/// What was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// The interface is one that frames leave by, and not one that stands on another.
    Kind,
    /// No XDP program of somebody else is on it.
    Program,
    /// The driver runs XDP programs.
    Native,
    /// Redirected frames can be sent out of it.
    Transmit,
    /// Each CPU has a queue to send them on.
    Queues,
    /// Frames fit into the one buffer that XDP gives a program.
    Mtu,
    /// No frames are joined before XDP sees them.
    Coalescing,
    /// VLAN tags are in the frames.
    Tags,
    /// Checksums of what a neighbour on this machine sends are finished.
    Checksums,
    /// Tracked connections can be asked for.
    Tracking,
    /// The host forwards.
    Forwarding,
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Nothing stands in the way.
    Fine,
    /// Something did, and was put right: what was done.
    Fixed(String),
    /// It works, but not as well as it could.
    Warning {
        /// What is the matter.
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

/// The end of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The interface; `None` for the host as a whole.
    pub interface: Option<String>,
    /// What was looked at.
    pub check: Check,
    /// How it ended.
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

/// Something that was changed, and can be changed back (`restore`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Fix {
    /// An offload was turned off.
    Offload {
        /// The interface, by its name at that time.
        interface: String,
        /// Its index.
        index: u32,
        /// Number of the file of the network namespace that it is in.
        namespace: u64,
        /// The offload, by the kernel's name.
        offload: String,
    },
}

/// A program that passes everything, put on the far end of a veth. It goes when the link is dropped and not
/// pinned.
#[derive(Debug)]
pub struct Stub {
    /// The port.
    pub interface: String,
    /// The far end.
    pub peer: String,
    /// What holds it there.
    pub link: Link,
}

/// What the preflight found.
#[derive(Debug, Default)]
pub struct Report {
    /// All checks, port by port.
    pub findings: Vec<Finding>,
    /// What was changed; to be kept as long as programs are attached, and then given to `restore`.
    pub fixes: Vec<Fix>,
    /// Programs on far ends; to be kept as long, and pinned where the programs are.
    pub stubs: Vec<Stub>,
}

impl Report {
    /// Why interfaces cannot be ports; empty when all can.
    pub fn refusals(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|one| matches!(one.outcome, Outcome::Refused { .. }))
    }

    /// What to tell whoever runs it: all that is not fine.
    pub fn notable(&self) -> impl Iterator<Item = &Finding> {
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
