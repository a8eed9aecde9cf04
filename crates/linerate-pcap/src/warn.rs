//! One line on standard error for a user who asked for a source and did not get it.

use std::fmt;
use std::io::Write;

/// Prints the line, unless `LINERATE_QUIET` is set and not 0, or a parent process would misread it.
pub(crate) fn warn(line: fmt::Arguments<'_>) {
    let quiet = crate::environment::variable("LINERATE_QUIET");
    if quiet.is_some_and(|value| !value.is_empty() && value != "0") || is_child_dumpcap() {
        return;
    }
    // A program may have closed it.
    let _ = writeln!(std::io::stderr(), "linerate: {line}");
}

/// Whether this is a dumpcap that tshark or Wireshark has started (`-Z`): its standard error is a protocol
/// to them, and another line would end the capture.
fn is_child_dumpcap() -> bool {
    let mut words = std::env::args_os();
    let named = words.next().is_some_and(|name| {
        std::path::Path::new(&name).file_name().is_some_and(|name| name == "dumpcap")
    });
    named && words.any(|word| word == "-Z")
}
