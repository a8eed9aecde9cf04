//! Words to the user. `println!` and `eprintln!` panic when nobody reads any more (a closed pipe, a
//! terminal that is gone), and a capture must not end by that.

use std::fmt::Display;
use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};

/// A line on standard output. A reader who went away has read enough.
///
/// # Errors
///
/// When it cannot be written, as on a full disk.
pub(crate) fn print(line: impl Display) -> Result<()> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// A line on standard error, if that still leads anywhere.
pub(crate) fn tell(line: impl Display) {
    // In one piece, so that the lines of two programs on a terminal do not mix.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// The error and its causes. Most errors here name their cause themselves; it is not said twice.
pub(crate) fn described(error: &anyhow::Error) -> String {
    error.chain().skip(1).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}
