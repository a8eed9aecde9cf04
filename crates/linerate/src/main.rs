//! The `linerate` command: one module per verb, arguments in, report out; no packet logic.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    linerate::run()
}
