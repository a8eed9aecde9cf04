//! Lines for the user. `println!` and `eprintln!` panic where nobody reads any more (a closed pipe, a
//! terminal that is gone), and a capture must not end by that.

use std::fmt::{Display, Write as _};
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::LazyLock;

use anyhow::{Context, Result};
pub(crate) use linerate_net::text::{noun, plural};
use ratatui::crossterm::terminal;
use tracing::Level;

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

/// Columns of the terminal that standard output is; `None` where it is a pipe or a file.
pub(crate) fn width() -> Option<u16> {
    let size = std::io::stdout().is_terminal().then(terminal::size)?;
    size.ok().map(|(width, _)| width).filter(|width| *width > 0)
}

/// A line on standard error, if that still leads anywhere.
pub fn eprintln(line: impl Display) {
    log(Level::INFO, line);
}

/// A warning there.
pub fn warn(text: impl Display) {
    log(Level::WARN, format_args!("linerate: warning: {text}"));
}

/// The same at this level.
pub(super) fn log(level: Level, line: impl Display) {
    // In one piece, so that the lines of two programs on a terminal do not mix.
    let _ = std::io::stderr().write_all(lines(level, *TO_JOURNAL, line).as_bytes());
}

/// Whether standard error is the journal's stream: JOURNAL_STREAM has its device and inode (systemd.exec(5)).
pub(super) static TO_JOURNAL: LazyLock<bool> = LazyLock::new(|| {
    let stream = std::env::var("JOURNAL_STREAM").ok();
    let own = rustix::fs::fstat(std::io::stderr()).ok();
    stream.zip(own).is_some_and(|(stream, own)| stream == format!("{}:{}", own.st_dev, own.st_ino))
});

/// Whole lines for standard error. In the journal each has a syslog priority (sd-daemon(3)) in place of the words that
/// say the same elsewhere.
pub(super) fn lines(level: Level, journal: bool, text: impl Display) -> String {
    let priority = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    let text = escaped(text);
    if !journal {
        return text + "\n";
    }
    let text = text.strip_prefix("linerate: ").unwrap_or(&text);
    let text = text.strip_prefix("warning: ").unwrap_or(text);
    text.lines().fold(String::new(), |lines, line| format!("{lines}<{priority}>{line}\n"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_in_the_journal_has_a_priority() {
        let of = |level, text: &str| lines(level, true, text);
        assert_eq!(of(Level::ERROR, "linerate: no such file"), "<3>no such file\n");
        assert_eq!(of(Level::WARN, "linerate: warning: one\ntwo"), "<4>one\n<4>two\n");
        assert_eq!(of(Level::INFO, "1 packet"), "<6>1 packet\n");
        assert_eq!(of(Level::DEBUG, "a \u{1b}"), "<7>a \\u{1b}\n");
        assert_eq!(lines(Level::WARN, false, "linerate: warning: one"), "linerate: warning: one\n");
    }
}
