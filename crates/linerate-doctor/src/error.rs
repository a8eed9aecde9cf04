//! [`Error`]: why the host could not be examined or changed.

use std::io;
use std::path::{Path, PathBuf};

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What failed, on what, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A query or change of the kernel's network state.
    #[error(transparent)]
    Net(#[from] linerate_net::Error),

    /// A file.
    #[error("cannot {action} {}: {source}{}", path.display(), hint(source))]
    File {
        /// What was being done; follows "cannot".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },

    /// A setting does not take a value.
    #[error("cannot set {setting}: {reason}")]
    Setting {
        /// The setting.
        setting: String,
        /// Why not.
        reason: String,
    },

    /// The state file is of somebody else.
    #[error("{}: {reason}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
}

/// What to do about an error of a file, where that is known.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run as root, which may change settings",
        _ => "",
    }
}

/// The error of doing `action` with a file.
pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { action, path, source }
}
