//! Variables of the environment that this library follows.

use std::ffi::OsString;

/// A variable; none in a program with more privileges than its caller, who chose the environment (`secure_getenv(3)`).
pub(crate) fn variable(name: &str) -> Option<OsString> {
    // SAFETY: it takes a number and returns one.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if is_privileged { None } else { std::env::var_os(name) }
}
