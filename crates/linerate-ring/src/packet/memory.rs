//! [`Map`]: a ring in memory.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};

use super::rules::{Kind, RingConfig};
use super::socket::Socket;
use crate::error::Size;
use crate::{Error, Result};

impl Socket {
    /// Has the kernel allocate a ring and maps it. The request has been checked.
    pub(super) fn map(&self, request: RingConfig, interface: &str) -> Result<Map> {
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
        self.set(libc::SOL_PACKET, libc::PACKET_VERSION, &request.kind.version())
            .map_err(|error| Error::system("choose the version of the ring", error))?;
        let option = match request.kind {
            Kind::Receive => libc::PACKET_RX_RING,
            _ => libc::PACKET_TX_RING,
        };
        let made = self.set(libc::SOL_PACKET, option, &request.to_kernel());
        made.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOMEM) => Error::Invalid(format!(
                "cannot {}: the kernel finds no memory for it, or for the list of its \
                 blocks; ask for fewer blocks",
                action()
            )),
            _ => Error::system(action(), error),
        })?;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.as_fd().as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last_os(format!("map the ring of interface {interface}")));
        }
        let start = NonNull::new(address.cast()).expect("mmap does not map address zero");
        Ok(Map { start, len: bytes })
    }
}

/// The memory of a ring, shared with the kernel; unmapped on drop.
#[derive(Debug)]
pub(super) struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to the thread that made it.
unsafe impl Send for Map {}
// SAFETY: `&Map` gives away the address only; who reads or writes there states why he may.
unsafe impl Sync for Map {}

impl Map {
    /// The byte at `offset`.
    pub(super) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len);
        // SAFETY: the offset is inside the mapping.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and borrows of its bytes borrow its owner.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
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
