//! What can go wrong with a capture file, and what to do about it.

use std::io;
use std::path::PathBuf;

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a capture file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Reading failed in the system or in a decompressor.
    #[error(
        "cannot read {name} past byte {offset}: {source}; {salvaged} packets before it were read"
    )]
    Read {
        /// The file, or `standard input`.
        name: String,
        /// Offset in the (decompressed) file, in bytes.
        offset: u64,
        /// What the system or the decompressor said.
        source: io::Error,
        /// Packets read before.
        salvaged: u64,
    },
    /// The wait for more data in a pipe was cancelled.
    #[error("reading {name} was cancelled before its end, after {salvaged} packets")]
    Cancelled {
        /// The pipe, or `standard input`.
        name: String,
        /// Packets read before.
        salvaged: u64,
    },
    /// The file does not start like a capture file.
    #[error(
        "{name} is not a capture file: it starts with {found}, and neither pcap, pcapng nor a \
         gzip, zstd or lz4 stream of one starts like that"
    )]
    NotACapture {
        /// The file, or `standard input`.
        name: String,
        /// Its first bytes in hexadecimal.
        found: String,
    },
    /// The file ends within a record.
    #[error(
        "{name} is cut off: the {what} at byte {offset} needs {needed} bytes and {available} are \
         there; {salvaged} packets before it were read"
    )]
    Truncated {
        /// The file, or `standard input`.
        name: String,
        /// Offset of the incomplete part in the (decompressed) file, in bytes.
        offset: u64,
        /// What kind of record it is.
        what: &'static str,
        /// Bytes it says it has.
        needed: u64,
        /// Bytes that are there.
        available: u64,
        /// Packets read before.
        salvaged: u64,
    },
    /// A record contradicts the format.
    #[error("{name} is damaged at byte {offset}: {what}; {salvaged} packets before it were read")]
    Malformed {
        /// The file, or `standard input`.
        name: String,
        /// Offset of the damaged record in the (decompressed) file, in bytes.
        offset: u64,
        /// What is wrong there.
        what: String,
        /// Packets read before.
        salvaged: u64,
    },
    /// An output file cannot be created.
    #[error("cannot create {}: {source}{}", path.display(), hint(source))]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The output file is the input.
    #[error("{} would be emptied before it is read: write into another file", path.display())]
    IsInput {
        /// The file.
        path: PathBuf,
    },
    /// Standard output or the file is a terminal.
    #[error(
        "cannot write packets to a terminal ({}): they are binary; redirect standard output into a file (> FILE) or a \
         pipe (| PROGRAM)",
        if path.as_os_str() == "-" { "standard output".into() } else { path.display().to_string() }
    )]
    Terminal {
        /// The file, `-` for standard output.
        path: PathBuf,
    },
    /// An output file cannot be written any further; it ends with its last whole packet.
    #[error("cannot write {}: {source}{}", path.display(), hint(source))]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// Whether the reader of a pipe that was written to went away.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// What to do about an output error, where that is known.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => "; free some space, or write fewer and smaller files",
        io::ErrorKind::QuotaExceeded => "; the user's quota is used up",
        io::ErrorKind::FileTooLarge => {
            "; the limit on file sizes (`ulimit -f`) is reached: raise it, or write smaller files"
        }
        io::ErrorKind::NotFound => "; create the directory first",
        io::ErrorKind::PermissionDenied => {
            "; the user that this program runs as must be allowed to write there"
        }
        _ => "",
    }
}
