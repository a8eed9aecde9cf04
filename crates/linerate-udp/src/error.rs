//! [`Error`]: the errors of this crate, with remedies.

use std::io;
use std::net::SocketAddr;

use linerate_net::privilege::MissingCapabilities;

use crate::backend::Backend;
use crate::group::Group;
use crate::versions::Versions;

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
    AddressNotAvailable(SocketAddr),

    /// Another socket has the port.
    #[error(
        "cannot bind to {0}: another socket has the port; `ss -lunp` names its process. Receivers that \
         share a port must all ask for it (--reuseport)"
    )]
    AddressInUse(SocketAddr),

    /// A port below 1024, or a device that only the privileged may bind to.
    #[error("cannot {action}: needs {}", MissingCapabilities(capability))]
    Privilege {
        /// What was being done; follows "cannot".
        action: String,
        /// The missing capability.
        capability: &'static str,
    },

    /// No interface has this name.
    #[error(transparent)]
    NoInterface(linerate_net::NoInterface),

    /// The interface was removed, or moved to another network namespace.
    #[error("interface {0} is gone: it was removed while in use")]
    InterfaceGone(String),

    /// A group was not joined or left.
    #[error("cannot {action} the group {group}: {reason}")]
    Group {
        /// `join` or `leave`.
        action: &'static str,
        /// The group.
        group: Group,
        /// The reason, with the remedy.
        reason: String,
    },

    /// The requested backend is unavailable.
    #[error("the backend {backend} cannot be used: {reason}")]
    BackendUnavailable {
        /// The backend.
        backend: Backend,
        /// The reason.
        reason: String,
    },

    /// An invalid request, rejected before a system call.
    #[error("{0}")]
    Invalid(String),

    /// A ring, or the program that steers to it.
    #[error(transparent)]
    Ring(linerate_ring::Error),

    /// A system call failed for a reason that no other variant covers.
    #[error("cannot {action}: {source}")]
    System {
        /// What was being done; follows "cannot".
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl Error {
    /// Refuses a group that a receiver bound to `address` cannot receive.
    pub(crate) fn check_group(
        group: &Group,
        address: SocketAddr,
        versions: Versions,
    ) -> Result<()> {
        let group_error = |reason| Self::Group { action: "join", group: group.clone(), reason };
        group.check_bind(address, versions).map_err(group_error)
    }

    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        Self::System { action: action.into(), source }
    }
}

impl From<linerate_ring::Error> for Error {
    fn from(error: linerate_ring::Error) -> Self {
        match error {
            linerate_ring::Error::NoInterface(missing) => Self::NoInterface(missing),
            linerate_ring::Error::InterfaceGone(name) => Self::InterfaceGone(name),
            linerate_ring::Error::Privilege { action, capability } => {
                Self::Privilege { action, capability }
            }
            other => Self::Ring(other),
        }
    }
}

impl From<linerate_net::Error> for Error {
    fn from(error: linerate_net::Error) -> Self {
        linerate_ring::Error::from(error).into()
    }
}

impl From<linerate_bpf::Error> for Error {
    fn from(error: linerate_bpf::Error) -> Self {
        linerate_ring::Error::from(error).into()
    }
}
