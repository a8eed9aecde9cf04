//! [`Error`]: the errors of this crate, with remedies.

use std::io;
use std::path::PathBuf;

use linerate_net::privilege::{self, MissingCapabilities};

/// What the daemon needs.
const CAPABILITIES: &str = "CAP_BPF,CAP_NET_ADMIN,CAP_PERFMON";

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What failed, on what, why, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call or a file access failed for a reason that has no variant of its own.
    #[error("cannot {action}: {source}")]
    System {
        /// What was being done, on which interface or file; follows "cannot".
        action: String,
        /// The kernel's error.
        source: io::Error,
    },

    /// The process lacks a privilege.
    #[error("cannot {action}: needs {}", MissingCapabilities(capability))]
    Privilege {
        /// What was being done; follows "cannot".
        action: String,
        /// What is missing, for instance `CAP_BPF`.
        capability: &'static str,
    },

    /// The kernel lacks what is needed.
    #[error("cannot {action}: {reason}")]
    Kernel {
        /// What was being done; follows "cannot".
        action: &'static str,
        /// What it lacks, and what to do.
        reason: String,
    },

    /// A BPF program or map; the error says what failed.
    #[error(transparent)]
    Bpf(#[from] linerate_bpf::Error),

    /// A file of bpffs does not belong to this version.
    #[error("{}: {reason}", path.display())]
    Pin {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },

    /// Another process has the instance's lock.
    #[error(
        "{} runs the instance {instance}; end it first, or name this one another `instance`",
        holder.map_or("another process".to_owned(), |holder| format!("process {holder}"))
    )]
    Running {
        /// The instance.
        instance: String,
        /// The process, if it is the daemon of the instance's record; otherwise 0.
        process: u32,
        /// The process that has the lock, if known: also one that only looks, or starts.
        holder: Option<u32>,
    },

    /// Flow records.
    #[error(transparent)]
    Flow(#[from] linerate_flow::Error),

    /// An invalid request, rejected before a system call.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// The error of libbpf or the kernel while doing `action`.
    pub(crate) fn bpf(action: impl Into<String>, source: &libbpf_rs::Error) -> Self {
        // libbpf-rs has the cause in its text and the kind in its own enum; this keeps what a user can act
        // on.
        let text = format!("{source:#}");
        let kind = match source.kind() {
            // EPERM; EACCES has the same kind, and the verifier returns it too for a bad program.
            libbpf_rs::ErrorKind::PermissionDenied
                if text.contains("os error 1)") && privilege::lacks(CAPABILITIES) =>
            {
                return Self::Privilege { action: action.into(), capability: CAPABILITIES };
            }
            libbpf_rs::ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound,
            libbpf_rs::ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
            libbpf_rs::ErrorKind::OutOfMemory => io::ErrorKind::OutOfMemory,
            _ => io::ErrorKind::Other,
        };
        Self::System { action: action.into(), source: io::Error::new(kind, text) }
    }

    /// The error of libbpf, the kernel or its verifier while loading programs; `action` says which.
    pub(crate) fn load(action: &str, source: &libbpf_rs::Error) -> Self {
        linerate_bpf::verifier::refusal(action, source)
            .map_or_else(|| Self::bpf(action, source), Self::Bpf)
    }

    /// Wraps `source`, which happened while doing `action`.
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        match source.raw_os_error() {
            Some(libc::EPERM) if privilege::lacks(CAPABILITIES) => {
                Self::Privilege { action, capability: CAPABILITIES }
            }
            _ => Self::System { action, source },
        }
    }
}
