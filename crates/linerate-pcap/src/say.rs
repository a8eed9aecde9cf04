//! The one line on standard error, for the user who asked for a source and did not get it.

use std::fmt;
use std::io::Write;

/// Says it, unless `LINERATE_QUIET` is set to something other than nothing or 0.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let quiet = std::env::var_os("LINERATE_QUIET");
    if quiet.is_some_and(|value| !value.is_empty() && value != "0") {
        return;
    }
    // A program may have closed it.
    let _ = writeln!(std::io::stderr(), "linerate: {line}");
}
