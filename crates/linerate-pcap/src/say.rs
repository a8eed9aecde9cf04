//! The one line on standard error, for the user who asked for a source and did not get it.

use std::fmt;
use std::io::Write;

/// Says it, unless `LINERATE_QUIET` is set to something other than nothing or 0, or somebody would take it for
/// something else.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let quiet = std::env::var_os("LINERATE_QUIET");
    if quiet.is_some_and(|value| !value.is_empty() && value != "0") || is_a_dumpcap_of_a_parent() {
        return;
    }
    // A program may have closed it.
    let _ = writeln!(std::io::stderr(), "linerate: {line}");
}

/// Whether this is a dumpcap that tshark or Wireshark has started (`-Z`): on its standard error it speaks a
/// protocol to them, and a line of ours would end the capture.
fn is_a_dumpcap_of_a_parent() -> bool {
    let mut words = std::env::args_os();
    let named = words.next().is_some_and(|name| {
        std::path::Path::new(&name).file_name().is_some_and(|name| name == "dumpcap")
    });
    named && words.any(|word| word == "-Z")
}
