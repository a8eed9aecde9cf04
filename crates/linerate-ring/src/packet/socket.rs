//! [`Socket`]: the system calls of a packet socket, and [`Map`], its rings in memory.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use super::allocation::Allocation;
use super::rules::Request;
use crate::error::Size;
use crate::{Error, Region, Result};

/// A raw packet socket, bound to nothing until [`Socket::bind`].
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    pub(super) fn open() -> Result<Self> {
        // SAFETY: socket has no precondition.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd >= 0 {
            // SAFETY: the kernel just gave us this descriptor.
            return Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }));
        }
        let action = "open a packet socket";
        let error = io::Error::last_os_error();
        Err(match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Error::Privilege { action: action.to_owned(), capability: "CAP_NET_RAW" }
            }
            Some(libc::EAFNOSUPPORT) => Error::Invalid(
                "this kernel has no packet sockets (it was built without CONFIG_PACKET)".to_owned(),
            ),
            _ => Error::system(action, error),
        })
    }

    /// Sets an option of a plain C type.
    pub(super) fn set<T: Copy>(
        &self,
        level: libc::c_int,
        option: libc::c_int,
        value: &T,
    ) -> io::Result<()> {
        // SAFETY: the kernel reads `size_of::<T>()` bytes at `value`, and what they point to, if
        // anything, is borrowed by the caller for the call.
        let answer = unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Reads an option of a plain C type that any bytes make a valid value of.
    pub(super) fn get<T: Copy>(
        &self,
        level: libc::c_int,
        option: libc::c_int,
        mut value: T,
    ) -> io::Result<T> {
        let mut len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `value`.
        let answer = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                level,
                option,
                ptr::from_mut(&mut value).cast(),
                &mut len,
            )
        };
        if answer == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
    }

    /// The descriptor alone.
    pub(super) fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Starts to receive from an interface, or from all of them if `index` is 0.
    pub(super) fn bind(&self, index: u32, protocol: u16) -> io::Result<()> {
        let mut address = no_address();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = index as libc::c_int;
        // SAFETY: `address` is a sockaddr_ll of the length that is passed.
        let answer = unsafe {
            libc::bind(
                self.0.as_raw_fd(),
                ptr::from_ref(&address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Whether the interface that the socket was bound to has been removed.
    pub(super) fn lost_interface(&self) -> bool {
        let mut address = no_address();
        let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `address`.
        unsafe {
            libc::getsockname(self.0.as_raw_fd(), ptr::from_mut(&mut address).cast(), &mut len);
        }
        address.sll_ifindex == -1
    }

    /// Takes the pending error, such as ENETDOWN.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        match self.get(libc::SOL_SOCKET, libc::SO_ERROR, 0 as libc::c_int) {
            Ok(0) => None,
            Ok(errno) => Some(io::Error::from_raw_os_error(errno)),
            Err(error) => Some(error),
        }
    }

    /// Has the kernel allocate a ring and maps it. The request has been checked.
    pub(super) fn map(&self, request: Request, interface: &str) -> Result<Map> {
        self.map_of(request, Allocation::Any, interface)
    }

    /// The same of chosen memory.
    pub(super) fn map_of(
        &self,
        request: Request,
        allocation: Allocation,
        interface: &str,
    ) -> Result<Map> {
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
        let made = allocation.set(self, request, bytes)?;
        let lent = made.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOMEM) => Error::Invalid(format!(
                "cannot {}: the kernel finds no memory for it, or for the list of its \
                 blocks; ask for fewer blocks",
                action()
            )),
            Some(libc::ENOBUFS) if allocation == Allocation::HugeTlb => Error::Invalid(format!(
                "cannot {}: huge pages of the program that the kernel uses are locked memory, and \
                 RLIMIT_MEMLOCK allows no more of that",
                action()
            )),
            _ => Error::system(action(), error),
        })?;
        if let Some(region) = lent {
            let start = NonNull::new(region.as_ptr()).expect("a region is nowhere at address zero");
            return Ok(Map { start, len: bytes, lent: Some(Box::new(region)) });
        }
        // SAFETY: a fresh shared mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.0.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last_os(format!("map the ring of interface {interface}")));
        }
        let start = NonNull::new(address.cast()).expect("mmap does not map address zero");
        Ok(Map { start, len: bytes, lent: None })
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The memory of a ring, shared with the kernel; unmapped on drop.
#[derive(Debug)]
pub(super) struct Map {
    start: NonNull<u8>,
    len: usize,
    /// The memory, where it is the program's: it unmaps itself, and the kernel keeps the pages for as long
    /// as the ring is there.
    lent: Option<Box<Region>>,
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
        if self.lent.is_none() {
            // SAFETY: the mapping is ours, and borrows of its bytes borrow its owner.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        }
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

fn no_address() -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: 0,
        sll_protocol: 0,
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}
