//! Lines for the user. `println!` and `eprintln!` panic where nobody reads any more (a closed pipe, a
//! terminal that is gone), and a capture must not end by that.

use std::fmt::{Display, Write as _};
use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};
pub(crate) use linerate_net::text::{noun, plural};

/// A line on standard output. Without a reader it is dropped.
///
/// # Errors
///
/// When it cannot be written, as on a full disk.
pub fn println(line: impl Display) -> Result<()> {
    match writeln!(std::io::stdout(), "{}", escaped(line)) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// A line on standard error, if that still leads anywhere.
pub fn eprintln(line: impl Display) {
    // In one piece, so that the lines of two programs on a terminal do not mix.
    let _ = std::io::stderr().write_all((escaped(line) + "\n").as_bytes());
}

/// The line with control characters escaped (`\u{1b}`): names and values must not control the terminal.
fn escaped(line: impl Display) -> String {
    line.to_string().chars().fold(String::new(), |mut text, c| {
        match c {
            '\n' | '\t' => text.push(c),
            c if c.is_control() => {
                let _ = write!(text, "{}", c.escape_unicode());
            }
            c => text.push(c),
        }
        text
    })
}
