//! The memory of a ring, shared with the kernel.

use std::fs;
use std::os::fd::AsFd;

use linerate_bpf::map::{ProtFlags, SharedMapping};

use super::rules::RingConfig;
use super::socket::Socket;
use crate::error::Size;
use crate::{Error, Result};

impl Socket {
    /// Has the kernel allocate a ring and maps it. The request has been checked.
    pub(super) fn map(&self, request: RingConfig, interface: &str) -> Result<SharedMapping> {
        let bytes = (request.block_size as usize).saturating_mul(request.blocks as usize);
        let action = || {
            format!(
                "allocate a ring of {} blocks of {} for interface {interface}",
                request.blocks,
                Size(u64::from(request.block_size))
            )
        };
        if let Some(available) = available_memory().filter(|available| bytes > *available) {
            return Err(Error::Invalid(format!(
                "cannot {}: that is more than the {} MiB of memory available",
                action(),
                available >> 20
            )));
        }
        let (version, option) = request.kind.options();
        self.set(libc::SOL_PACKET, libc::PACKET_VERSION, &version)
            .map_err(|error| Error::system("choose the version of the ring", error))?;
        let made = self.set(libc::SOL_PACKET, option, &request.to_kernel());
        made.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOMEM) => Error::Invalid(format!(
                "cannot {}: the kernel finds no memory for it, or for the list of its \
                 blocks; ask for fewer blocks",
                action()
            )),
            _ => Error::system(action(), error),
        })?;
        SharedMapping::new(self.as_fd(), bytes, 0, ProtFlags::READ | ProtFlags::WRITE)
            .map_err(|error| Error::system(format!("map the ring of interface {interface}"), error))
    }
}

/// Bytes that the machine can give without swapping, as far as it says. The kernel itself would
/// take all it has for a ring, and then kill processes.
fn available_memory() -> Option<usize> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
