//! The `linerate-lab` command, which `linerate lab` starts.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    linerate_lab::run()
}
