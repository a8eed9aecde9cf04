//! Lines for the user. `println!` and `eprintln!` panic where nobody reads any more (a closed pipe, a
//! terminal that is gone), and a capture must not end by that.

use std::fmt::{Display, Write as _};
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::LazyLock;

use anyhow::{Context, Result};
pub(crate) use linerate_net::text::{noun, plural};
use ratatui::crossterm::terminal;
use tracing::Level;

/// Text on standard output, on a terminal within its width. Without a reader it is dropped.
///
/// # Errors
/// When it cannot be written, as on a full disk.
pub fn println(text: impl Display) -> Result<()> {
    match width() {
        Some(width) => println_whole(wrapped(&text.to_string(), width.into())),
        None => println_whole(text),
    }
}

/// The same for lines that stay whole: a program reads them, or a shell.
///
/// # Errors
/// As [`println`].
pub(crate) fn println_whole(line: impl Display) -> Result<()> {
    match writeln!(std::io::stdout(), "{}", escaped(line)) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// Columns of the terminal that standard output is; `None` where it is a pipe or a file.
pub(crate) fn width() -> Option<u16> {
    width_of(&std::io::stdout())
}

/// The same of standard error.
pub(super) fn error_width() -> Option<u16> {
    width_of(&std::io::stderr())
}

fn width_of(output: &impl IsTerminal) -> Option<u16> {
    let size = output.is_terminal().then(terminal::size)?;
    size.ok().map(|(width, _)| width).filter(|width| *width > 0)
}

/// Lines of at most `width` columns, where blanks allow it. A command in backquotes stays whole if a line has room for it.
fn wrapped(text: &str, width: usize) -> String {
    text.split('\n').map(|line| wrapped_line(line, width)).collect::<Vec<_>>().join("\n")
}

fn wrapped_line(line: &str, width: usize) -> String {
    let count = |text: &str| text.chars().count();
    if count(line) <= width {
        return line.to_owned();
    }
    // Two blanks end a label: what continues its text begins below it.
    let head = line.char_indices().nth(width / 3).map_or(line, |(end, _)| &line[..end]);
    let start = head.rfind("  ").map_or(0, |blanks| blanks + 2);
    let indent = if start == 0 { 4 } else { count(&line[..start]) };
    let mut parts: Vec<String> = Vec::new();
    let mut is_command = false;
    for word in line[start..].split(' ') {
        match parts.last_mut() {
            Some(command) if is_command => *command += &format!(" {word}"),
            _ => parts.push(word.to_owned()),
        }
        is_command ^= word.matches('`').count() % 2 == 1;
    }
    let room = width.saturating_sub(indent);
    let words = parts.iter().flat_map(|part| match count(part) > room {
        true => part.split(' ').collect(),
        false => vec![part.as_str()],
    });
    let mut column = count(&line[..start]);
    let mut text = line[..start].to_owned();
    for (number, word) in words.enumerate() {
        let len = count(word);
        let gap = usize::from(number > 0);
        // A path may have room only at the left.
        let begin = if indent + len > width { indent.min(4) } else { indent };
        if column + gap + len > width && column > begin {
            text.truncate(text.trim_end().len());
            text += &format!("\n{}", " ".repeat(begin));
            column = begin;
        } else {
            text += &" ".repeat(gap);
            column += gap;
        }
        text += word;
        column += len;
    }
    text
}

/// The counts that are not 0, with their names: `ring 3, checksum 1`.
pub(crate) fn occurred<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> String {
    let seen = counts.into_iter().filter(|(_, count)| *count > 0);
    seen.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
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
        // An object of --json stays whole.
        return match error_width().filter(|_| !text.starts_with('{')) {
            Some(width) => wrapped(&text, width.into()) + "\n",
            None => text + "\n",
        };
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
mod tests;
