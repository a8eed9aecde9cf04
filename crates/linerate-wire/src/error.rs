use core::fmt;

/// Why bytes are not the header that they were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The bytes end before the header does.
    Truncated {
        /// The header, as `"IPv4 header"`.
        what: &'static str,
        /// Bytes that it needs.
        need: usize,
        /// Bytes that are there.
        have: usize,
    },
    /// A field has a value that the protocol does not allow.
    Malformed {
        /// The header, as `"IPv4 header"`.
        what: &'static str,
        /// The rule that is broken.
        why: &'static str,
    },
}

/// The result of parsing or emitting a header.
pub type Result<T> = core::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Truncated { what, need, have } => {
                write!(f, "{what} cut short: needs {need} bytes, has {have}")
            }
            Error::Malformed { what, why } => write!(f, "malformed {what}: {why}"),
        }
    }
}

impl core::error::Error for Error {}

/// Refuses fewer than `need` bytes.
pub(crate) fn require(what: &'static str, bytes: &[u8], need: usize) -> Result<()> {
    if bytes.len() < need {
        return Err(Error::Truncated { what, need, have: bytes.len() });
    }
    Ok(())
}
