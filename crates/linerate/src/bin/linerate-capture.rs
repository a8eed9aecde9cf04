//! `linerate-capture`: `linerate capture` alone, which takes no frame from the host. With CAP_NET_RAW on its file, users
//! may capture who may do nothing else. It is a program of its own: the caller chooses the name of a process, and names
//! of one file share its capabilities.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    linerate::run_capture()
}
