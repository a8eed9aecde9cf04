//! [`Error`]: why a query or a change failed.

use std::io;

use crate::privilege::{self, MissingCapabilities};
use crate::{link, text};

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// No interface has this name in this network namespace. All crates say it in these words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.reason(), self.remedy())]
pub struct NoInterface {
    /// The requested name.
    pub name: String,
    /// The names that exist.
    pub known: Vec<String>,
}

impl NoInterface {
    /// That of this name, in the network namespace of this thread.
    pub fn new(name: impl Into<String>) -> Self {
        // The message does without them.
        let known = link::all().unwrap_or_default().into_iter().map(|link| link.name);
        Self { name: name.into(), known: known.collect() }
    }

    /// The first half of the message.
    pub fn reason(&self) -> String {
        format!("no interface named {}", self.name)
    }

    /// The second half: which names there are.
    pub fn remedy(&self) -> String {
        match &*self.known {
            [] => "`ip link` lists those that exist".to_owned(),
            [one] => format!("there is only {one}"),
            known => format!("there are {}", text::list(known)),
        }
    }
}

/// What failed, on what, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No interface has this name in this network namespace.
    #[error(transparent)]
    NoInterface(#[from] NoInterface),

    /// The interface was there, and is not any more.
    #[error("interface {0} is gone: it was removed while in use")]
    InterfaceGone(String),

    /// The process may not do this.
    #[error("cannot {action}: needs {}", MissingCapabilities(capability))]
    Privilege {
        /// What was being done; follows "cannot".
        action: String,
        /// The missing capability, for instance `CAP_NET_ADMIN`.
        capability: &'static str,
    },

    /// The kernel refused for another reason.
    #[error("cannot {action}: {source}")]
    System {
        /// What was being done, on which interface; follows "cannot".
        action: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Error {
    /// The error of a system call, by its number.
    pub(crate) fn new(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) if privilege::lacks("CAP_NET_ADMIN") => {
                Self::Privilege { action, capability: "CAP_NET_ADMIN" }
            }
            _ => Self::System { action, source },
        }
    }
}

/// The error number alone, for callers that name the action themselves.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::NoInterface(_) | Error::InterfaceGone(_) => {
                Self::from_raw_os_error(libc::ENODEV)
            }
            Error::Privilege { .. } => Self::from_raw_os_error(libc::EPERM),
            Error::System { source, .. } => source,
        }
    }
}

/// Adds what was being done to an error number that has no other meaning.
pub(crate) trait Context<T> {
    fn context(self, action: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, action: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::new(action(), error.into()))
    }
}
