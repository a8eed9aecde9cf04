//! [`Error`].

use std::io;
#[cfg(feature = "parquet")]
use std::path::Path;
use std::path::PathBuf;

/// Why records could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was to be done with it.
        what: &'static str,
        /// Its name.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The content of a Parquet file.
    #[error("cannot write flow records to {}: {source}", path.display())]
    Parquet {
        /// The file's name.
        path: PathBuf,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The name of a sensor, which is a part of paths.
    #[error(
        "`{0}` is not a valid sensor name: letters, digits, dots, dashes and underscores, and a letter or digit first"
    )]
    Sensor(String),
    /// Two meters of one name would write to one folder.
    #[error("another meter writes to {} as sensor {sensor}: give one of them another name", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The name.
        sensor: String,
    },
    /// A destination is given twice.
    #[error("{} is given twice as a folder of flow records: name each folder once", path.display())]
    Twice {
        /// The folder.
        path: PathBuf,
    },
    /// The name of a destination.
    #[error("`{text}` is neither a folder nor a collector: {reason}")]
    Destination {
        /// What was given.
        text: String,
        /// What is wrong, and what to write.
        reason: String,
    },
    /// The thread that writes records.
    #[error("cannot start the thread that writes flow records: {0}")]
    Thread(io::Error),
    /// A collector.
    #[error(transparent)]
    Ipfix(#[from] crate::ipfix::Error),
}

/// [`std::result::Result`] with this crate's error.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    #[cfg(feature = "parquet")]
    pub(crate) fn parquet<E: std::error::Error + Send + Sync + 'static>(
        path: &Path,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Parquet { path: path.to_owned(), source: Box::new(source) }
    }
}
