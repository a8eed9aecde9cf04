//! [`Grace`]: a way to wait until no XDP program runs any more that ran when the wait began.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::program::refusal;
use crate::{Error, Result};

/// An array of maps that no program uses. Whoever updates one waits for the programs that may still
/// see the old entry, which the kernel promises of maps of maps alone (`maybe_wait_bpf_programs` in
/// `kernel/bpf/syscall.c`). `membarrier` would wait too, but not where CPUs run without ticks.
#[derive(Debug)]
pub struct Grace {
    array: OwnedFd,
    entry: OwnedFd,
}

impl Grace {
    /// Keeps `entry`, any array, as what is put in.
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
                c"grace".as_ptr(),
                4,
                4,
                1,
                &options,
            )
        };
        if fd < 0 {
            return Err(refusal("make a map to wait for XDP programs with", -fd));
        }
        // SAFETY: a descriptor just made for us alone.
        let array = unsafe { OwnedFd::from_raw_fd(fd) };
        let entry = entry
            .try_clone_to_owned()
            .map_err(|error| Error::system("duplicate a BPF descriptor", error))?;
        Ok(Self { array, entry })
    }

    /// Returns when every program has ended that ran at the call, with the softirq that it ran in:
    /// what it copied or redirected is where it belongs. Takes some tens of milliseconds.
    ///
    /// # Errors
    /// [`Error::System`]: they may still run.
    pub fn wait(&self) -> Result<()> {
        match super::put(self.array.as_fd(), 0, self.entry.as_fd(), libbpf_sys::BPF_ANY) {
            0 => Ok(()),
            errno => Err(refusal("wait for XDP programs to end", errno)),
        }
    }
}
