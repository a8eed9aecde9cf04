//! Keeping a thread on one CPU.

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::{Error, Result};

/// Keeps the calling thread on `cpu`; `name` is the interface that errors speak of.
pub(crate) fn pin(name: &str, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|error| match error {
            nix::Error::EINVAL => Error::argument(
                format!("cpu {cpu}"),
                "this process may not run there; `nproc` tells how many CPUs there are, counted from 0",
            ),
            error => Error::Kernel {
                name: name.to_owned(),
                action: "pin the generator to a CPU",
                source: error.into(),
            },
        })
}
