//! [`RcuSynchronizer`]: waits until every XDP program that runs now has ended.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::map::update_fd;
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
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            inner_map_fd: entry.as_raw_fd() as u32,
            ..Default::default()
        };
        // SAFETY: a C string, and options that carry their size.
        let fd = unsafe {
            libbpf_sys::bpf_map_create(
                libbpf_sys::BPF_MAP_TYPE_ARRAY_OF_MAPS,
                c"rcu_synchronize".as_ptr(),
                4,
                4,
                1,
                &options,
            )
        };
        if fd < 0 {
            return Err(Error::bpf("make a map to wait for XDP programs with", -fd));
        }
        // SAFETY: a new descriptor, which nobody else owns.
        let array = unsafe { OwnedFd::from_raw_fd(fd) };
        let entry = entry
            .try_clone_to_owned()
            .map_err(|error| Error::system("duplicate a BPF descriptor", error))?;
        Ok(Self { array, entry })
    }

    /// Returns when every program has ended that ran at the call, with the softirq that it ran in: frames that it
    /// copied or redirected have arrived. Takes some tens of milliseconds.
    ///
    /// # Errors
    /// [`Error::System`]: they may still run.
    pub fn wait(&self) -> Result<()> {
        match update_fd(self.array.as_fd(), 0, self.entry.as_fd(), libbpf_sys::BPF_ANY) {
            0 => Ok(()),
            errno => Err(Error::bpf("wait for XDP programs to end", errno)),
        }
    }
}
