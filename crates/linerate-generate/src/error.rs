use std::io;

use linerate_net::privilege::MissingCapabilities;

/// Why traffic could not be generated or replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An argument is invalid.
    #[error("{what}: {reason}")]
    Argument {
        /// The argument and its value, as `size 20`.
        what: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// There is no such interface.
    #[error(transparent)]
    NoInterface(linerate_net::NoInterface),
    /// The interface cannot be used in its current state.
    #[error("interface {name}: {reason}")]
    Interface {
        /// Its name.
        name: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A privilege is missing.
    #[error(
        "interface {name}: no permission to {action}: needs {}",
        MissingCapabilities(capabilities)
    )]
    Privilege {
        /// The interface.
        name: String,
        /// What was refused.
        action: &'static str,
        /// The capabilities, with commas between them.
        capabilities: &'static str,
    },
    /// The kernel or driver does not offer what a backend needs.
    #[error("interface {name}: {backend} cannot be used: {reason}")]
    Unavailable {
        /// The interface.
        name: String,
        /// The backend.
        backend: &'static str,
        /// What is missing.
        reason: String,
    },
    /// The kernel refused something else.
    #[error("interface {name}: cannot {action}: {source}")]
    Kernel {
        /// The interface.
        name: String,
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel does not answer about its interfaces.
    #[error(transparent)]
    Net(#[from] linerate_net::Error),
    /// A capture file could not be read.
    #[error(transparent)]
    File(#[from] linerate_pcapfile::Error),
    /// A transmit ring failed.
    #[error(transparent)]
    Ring(#[from] linerate_ring::Error),
}

/// The result of generating or replaying.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Why another backend is tried; `None` if none would work.
    pub(crate) fn fallback_reason(&self) -> Option<String> {
        match self {
            Self::Unavailable { name, backend, reason } => {
                Some(format!("{backend} cannot be used on {name}: {reason}"))
            }
            Self::Privilege { action, capabilities, .. } => {
                Some(format!("to {action} needs {}", MissingCapabilities(capabilities)))
            }
            _ => None,
        }
    }

    pub(crate) fn argument(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Argument { what: what.into(), reason: reason.into() }
    }
}
