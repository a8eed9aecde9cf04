//! [`Error`]: the errors of this crate, with remedies.

use std::fmt;
use std::io;

use linerate_net::privilege::{self, MissingCapabilities};

use crate::xdp::mode::AttachMode;
use crate::xdp::owner::Owner;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What failed, on what, why, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed for a reason without a separate variant.
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
        /// The missing capability, for instance `CAP_BPF`; several with commas between them.
        capability: &'static str,
    },

    /// No interface has this name in this network namespace.
    #[error(transparent)]
    NoInterface(linerate_net::NoInterface),

    /// The kernel's verifier rejected a program; a filter can then run in user space instead.
    #[error("cannot {program}: the kernel's verifier rejects it ({source}): {reason}")]
    Verifier {
        /// What was being loaded; follows "cannot".
        program: String,
        /// The last line of the verifier's log.
        reason: String,
        /// The kernel's answer.
        source: io::Error,
    },

    /// The interface has an XDP program already. It is never replaced.
    #[error("{}", Occupied(self))]
    ForeignProgram {
        /// The interface.
        interface: String,
        /// The program's id, as `bpftool prog show id` takes it.
        id: u32,
        /// The program's name.
        name: String,
        /// Where it runs.
        mode: AttachMode,
        /// It belongs to Linerate: to a capture, a receiver, an uplink or the accelerator.
        ours: bool,
        /// It is the root of a tee.
        tee: bool,
        /// What keeps it attached.
        owner: Owner,
    },

    /// All slots for captures on one interface are taken.
    #[error(
        "interface {interface} carries {slots} captures already, as many as it can; stop one of them"
    )]
    NoSlot {
        /// The interface.
        interface: String,
        /// How many there can be.
        slots: usize,
    },

    /// An invalid request, rejected before a system call.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// `source`, which happened while doing `action`.
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        Self::System { action: action.into(), source }
    }

    /// The error for `errno` while doing `action` with BPF: a missing privilege has a variant of its own.
    pub(crate) fn bpf(action: impl Into<String>, errno: i32) -> Self {
        match errno {
            libc::EPERM | libc::EACCES if privilege::lacks("CAP_BPF,CAP_NET_ADMIN") => {
                Self::Privilege { action: action.into(), capability: "CAP_BPF,CAP_NET_ADMIN" }
            }
            _ => Self::system(action, io::Error::from_raw_os_error(errno)),
        }
    }

    /// The error of libbpf-rs while doing `action`.
    pub(crate) fn libbpf(action: &str, error: &libbpf_rs::Error) -> Self {
        match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => Self::bpf(action, libc::EPERM),
            _ => Self::system(action, cause(error)),
        }
    }
}

/// What libbpf-rs says: it has the cause only in its text.
pub(crate) fn cause(error: &libbpf_rs::Error) -> io::Error {
    io::Error::other(format!("{error:#}"))
}

impl From<linerate_net::Error> for Error {
    fn from(error: linerate_net::Error) -> Self {
        match error {
            linerate_net::Error::NoInterface(missing) => Self::NoInterface(missing),
            linerate_net::Error::Privilege { action, capability } => {
                Self::Privilege { action, capability }
            }
            linerate_net::Error::System { action, source } => Self::System { action, source },
            other => Self::Invalid(other.to_string()),
        }
    }
}

/// Which program is attached, and how to receive the frames nevertheless.
struct Occupied<'a>(&'a Error);

impl fmt::Display for Occupied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error::ForeignProgram { interface, id, name, mode, ours, tee, owner } = self.0 else {
            return Ok(());
        };
        if *tee {
            return write!(
                f,
                "another linerate capture has a tee on interface {interface} ({owner}), and frames \
                 cannot be taken beside a tee; use --source tee here as well, or end that capture"
            );
        }
        if *ours {
            return write!(
                f,
                "another linerate takes the frames of interface {interface} by XDP ({owner}); end it, or, if \
                 it is a capture, start both with --source tee"
            );
        }
        write!(
            f,
            "interface {interface} has an XDP program already: id {id}, name \"{name}\" ({mode}); "
        )?;
        match owner {
            Owner::Processes(_) => write!(f, "end the process that holds its BPF link: {owner}"),
            Owner::PinnedLink(link) => write!(
                f,
                "its BPF link {link} is pinned: `bpftool --bpffs link show id {link}` names the file to \
                 remove"
            ),
            Owner::Interface => {
                write!(
                    f,
                    "detach it with `ip link set dev {interface} {} off`",
                    mode.ip_link_word()
                )
            }
            Owner::Unknown => f.write_str(
                "end the program that attached it; as root (with CAP_SYS_ADMIN) this says which",
            ),
        }
    }
}
