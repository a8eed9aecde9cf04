//! [`Error`]: what can go wrong in this crate, each with the remedy.

use std::io;
use std::net::SocketAddr;

use crate::{Backend, Group};

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What failed, on what, why, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No interface of this host has the address.
    #[error(
        "cannot bind to {0}: no interface of this network namespace has the address; `ip address` lists \
         those that there are"
    )]
    NotLocal(SocketAddr),

    /// Another socket has the port.
    #[error(
        "cannot bind to {0}: another socket has the port; `ss -lunp` names its process. Receivers that \
         are to share a port must all ask for it (--reuseport)"
    )]
    InUse(SocketAddr),

    /// A port below 1024, or a device that only the privileged may bind to.
    #[error(
        "cannot {action}: needs the capability {capability}; run as root, or grant it with setcap"
    )]
    Privilege {
        /// What was being done; follows "cannot".
        action: String,
        /// The missing capability.
        capability: &'static str,
    },

    /// No interface has this name.
    #[error("no interface named {0} in this network namespace; `ip link` lists them")]
    NoInterface(String),

    /// A group was not joined or left.
    #[error("cannot {action} the group {group}: {why}")]
    Group {
        /// `join` or `leave`.
        action: &'static str,
        /// The group.
        group: Group,
        /// The reason, with the remedy.
        why: String,
    },

    /// A back end that was asked for cannot be had.
    #[error("the back end {backend} cannot be used: {why}")]
    Backend {
        /// The back end.
        backend: Backend,
        /// The reason.
        why: String,
    },

    /// A request that makes no sense, found before the kernel was asked.
    #[error("{0}")]
    Invalid(String),

    /// A ring, or the program that steers to it.
    #[error(transparent)]
    Ring(#[from] linerate_ring::Error),

    /// A system call failed for a reason that has no variant of its own.
    #[error("cannot {action}: {source}")]
    System {
        /// What was being done; follows "cannot".
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        Self::System { action: action.into(), source }
    }
}

impl From<linerate_net::Error> for Error {
    fn from(error: linerate_net::Error) -> Self {
        match error {
            linerate_net::Error::NoInterface(name) => Self::NoInterface(name),
            other => Self::Ring(other.into()),
        }
    }
}
