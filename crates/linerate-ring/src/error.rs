//! [`Error`]: the errors of this crate, with remedies.

use std::fmt;
use std::io;

use linerate_net::privilege::MissingCapabilities;

use crate::region::pages::Pages;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What failed, on what, why, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call or a file access failed for a reason without a separate variant.
    #[error("cannot {action}: {source}")]
    System {
        /// What was being done, on which interface or file; follows "cannot".
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },

    /// The process lacks a privilege.
    #[error("cannot {action}: needs {}", MissingCapabilities(capability))]
    Privilege {
        /// What was being done; follows "cannot".
        action: String,
        /// The missing capability, for instance `CAP_NET_RAW`; several with commas between them.
        capability: &'static str,
    },

    /// No interface has this name in this network namespace.
    #[error(transparent)]
    NoInterface(linerate_net::NoInterface),

    /// The interface is down. What it delivered before is still in the ring, and the ring continues when the
    /// interface comes up again.
    #[error("interface {0} is down; `ip link set {0} up` brings it up")]
    InterfaceDown(String),

    /// The interface was removed. The ring will never receive again.
    #[error("interface {0} is gone: it was removed while in use")]
    InterfaceGone(String),

    /// The pool of reserved huge pages is too small.
    #[error(
        "{needed} free huge pages of {} needed, {available} available; reserve them with: {command}",
        Size(*page_size as u64)
    )]
    HugePages {
        /// Bytes of one huge page.
        page_size: usize,
        /// Pages that the region needs.
        needed: u64,
        /// Pages free and not reserved for another mapping.
        available: u64,
        /// The command, to run as root, that reserves enough.
        command: String,
    },

    /// This kernel or machine cannot provide the requested kind of pages.
    #[error("cannot get {} in {pages} pages: {why}", Size(*len as u64))]
    Pages {
        /// What was asked for.
        pages: Pages,
        /// Bytes asked for.
        len: usize,
        /// The reason.
        why: String,
    },

    /// The memory could not be locked.
    #[error(
        "cannot lock {} of memory: {source}; RLIMIT_MEMLOCK is {}: raise it with `ulimit -l {}`, \
         or grant CAP_IPC_LOCK",
        Size(*len as u64), Limit(*limit), len.div_ceil(1024)
    )]
    MemoryLock {
        /// Bytes to lock.
        len: usize,
        /// The soft limit in bytes, `None` when unlimited.
        limit: Option<u64>,
        /// The kernel's answer.
        source: io::Error,
    },

    /// A BPF program could not be loaded or attached.
    #[error(transparent)]
    Bpf(linerate_bpf::Error),

    /// A frame that an interface cannot send for its length.
    #[error(
        "a frame of {len} bytes cannot be sent on interface {interface}: {least} to {most} can"
    )]
    FrameLength {
        /// The interface.
        interface: String,
        /// Bytes of the frame.
        len: usize,
        /// Shortest frame in bytes.
        least: usize,
        /// Longest frame in bytes, with a VLAN tag.
        most: usize,
    },

    /// An invalid request, rejected before a system call.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// `source`, said to have happened while doing `action`.
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        Self::System { action: action.into(), source }
    }

    /// `source`, said to have happened while an AF_XDP socket of `interface` was to do `action`.
    pub(crate) fn af_xdp(action: &str, queue: u32, interface: &str, source: io::Error) -> Self {
        Self::system(format!("{action} the AF_XDP socket of queue {queue} on {interface}"), source)
    }
}

impl From<linerate_net::Error> for Error {
    fn from(error: linerate_net::Error) -> Self {
        match error {
            linerate_net::Error::InterfaceGone(name) => Self::InterfaceGone(name),
            other => linerate_bpf::Error::from(other).into(),
        }
    }
}

impl From<linerate_bpf::Error> for Error {
    fn from(error: linerate_bpf::Error) -> Self {
        match error {
            linerate_bpf::Error::NoInterface(missing) => Self::NoInterface(missing),
            linerate_bpf::Error::Privilege { action, capability } => {
                Self::Privilege { action, capability }
            }
            linerate_bpf::Error::System { action, source } => Self::System { action, source },
            linerate_bpf::Error::Invalid(what) => Self::Invalid(what),
            other => Self::Bpf(other),
        }
    }
}

/// Bytes in the largest binary unit that divides them.
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.iter().find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{} {name}", self.0 / unit),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// A resource limit in bytes.
struct Limit(Option<u64>);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(bytes) => write!(f, "{}", Size(bytes)),
            None => f.write_str("unlimited"),
        }
    }
}
