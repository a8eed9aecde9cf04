//! The errors of an uplink, each with a remedy.

use std::io;

/// The result of this crate's operations.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an uplink could not be opened or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A ring, a device or an XDP program.
    #[error(transparent)]
    Ring(#[from] linerate_ring::Error),
    /// The kernel refused a query or a change of a link.
    #[error("cannot {action}: {source}")]
    Link {
        /// What was being done; follows "cannot".
        action: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The network namespace for the device cannot be entered.
    #[error(
        "cannot enter the network namespace {name}: {source}; `ip netns` lists those with a name"
    )]
    Namespace {
        /// Its name or file.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The network namespace of the device was deleted while the uplink ran.
    #[error("the network namespace {0} of the device was deleted")]
    NamespaceGone(String),
    /// No such CPU, or not for this process.
    #[error("cannot run on CPU {cpu}: {source}; `nproc` tells how many there are, counted from 0")]
    Cpu {
        /// The number.
        cpu: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program at a socket that was passed has closed it, or does not keep to the protocol.
    #[error("the program at {0} closed the connection, or does not send length-prefixed frames")]
    PeerGone(String),
    /// An invalid request.
    #[error("{0}")]
    Invalid(String),
    /// A thread could not be started, or panicked.
    #[error("a thread of the uplink {0}; this is a defect, please report it")]
    Thread(String),
}

impl From<linerate_net::Error> for Error {
    fn from(error: linerate_net::Error) -> Self {
        Self::Ring(error.into())
    }
}

impl From<linerate_bpf::Error> for Error {
    fn from(error: linerate_bpf::Error) -> Self {
        Self::Ring(error.into())
    }
}
