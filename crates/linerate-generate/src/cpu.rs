//! Keeping a thread on one CPU.

use std::io::ErrorKind;

use linerate_net::cpu;

use crate::{Error, Result};

/// Keeps the calling thread on `cpu`; `name` is the interface that errors speak of.
pub(crate) fn pin(name: &str, cpu: usize) -> Result<()> {
    cpu::pin(cpu).map_err(|source| match source.kind() {
        ErrorKind::InvalidInput => Error::argument(
            format!("cpu {cpu}"),
            "this process may not run there; `nproc` tells how many CPUs there are, counted from 0",
        ),
        _ => Error::Kernel { name: name.to_owned(), action: "pin the generator to a CPU", source },
    })
}
