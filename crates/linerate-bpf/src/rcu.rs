//! [`RcuSynchronizer`]: waits until every XDP program that runs now has ended.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::map::update_fd;
use crate::sys::{duplicate, options, owned};
use crate::{Error, Result};

/// An array of maps that no program uses. An update of such an array waits for an RCU grace period, so that
/// no program uses the old entry any more; the kernel guarantees this only for maps of maps
/// (`maybe_wait_bpf_programs` in `kernel/bpf/syscall.c`). `membarrier` would wait too, but not where CPUs run
/// without ticks.
#[derive(Debug)]
pub struct RcuSynchronizer {
    array: OwnedFd,
    entry: OwnedFd,
}

impl RcuSynchronizer {
    /// Makes the array. `entry`, any BPF array, is what the updates put into it.
    ///
    /// # Errors
    /// [`Error::Privilege`], [`Error::System`].
    pub fn new(entry: BorrowedFd<'_>) -> Result<Self> {
        let options = options!(bpf_map_create_opts { inner_map_fd: entry.as_raw_fd() as u32 });
        let (name, kind) = (c"rcu_synchronize".as_ptr(), libbpf_sys::BPF_MAP_TYPE_ARRAY_OF_MAPS);
        // SAFETY: a C string, and options that carry their size; the descriptor is new.
        let array = unsafe {
            let fd = libbpf_sys::bpf_map_create(kind, name, 4, 4, 1, &options);
            owned(fd, "make a map to wait for XDP programs with")?
        };
        Ok(Self { array, entry: duplicate(entry)? })
    }

    /// Returns when every program has ended that ran at the call, with the softirq that it ran in: frames that it
    /// copied or redirected have arrived. Takes some tens of milliseconds.
    ///
    /// # Errors
    /// [`Error::System`]: they may still run.
    pub fn wait(&self) -> Result<()> {
        update_fd(self.array.as_fd(), 0, self.entry.as_fd(), libbpf_sys::BPF_ANY)
            .map_err(|errno| Error::bpf("wait for XDP programs to end", errno))
    }
}
