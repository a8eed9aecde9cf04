//! The `linerate` command of small routers: `linerate forward` without `top`, Parquet files and TLS.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    linerate::run_router()
}
