//! [`Remembered`]: headers that a kernel with the patches of `kernel/` has read once.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The number that the patches give to `remember_mmsghdr`; they have one for x86 alone.
const SYSCALL: libc::c_long = 600;
/// The most headers of one call (`UIO_MAXIOV`).
const MAX_PER_CALL: usize = 1024;

/// Arrays of headers that the kernel has read, until this is dropped: by their addresses; drop this before an
/// array is freed.
#[derive(Debug)]
pub(super) struct Remembered {
    socket: Arc<OwnedFd>,
    arrays: Vec<usize>,
}

impl Remembered {
    /// Makes the kernel read `headers`, in pieces of what one call takes.
    ///
    /// # Safety
    /// As long as the value lives, nothing but `recvmmsg` on these headers may use what they point to; it
    /// writes there even if the headers were changed or freed.
    pub(super) unsafe fn new(
        socket: Arc<OwnedFd>,
        headers: &mut [libc::mmsghdr],
    ) -> io::Result<Self> {
        let mut remembered = Self { socket, arrays: Vec::new() };
        for piece in headers.chunks_mut(MAX_PER_CALL) {
            let (at, len) = (piece.as_mut_ptr() as usize, piece.len());
            call(remembered.socket.as_fd(), at, len)?;
            remembered.arrays.push(at);
        }
        Ok(remembered)
    }
}

impl Drop for Remembered {
    fn drop(&mut self) {
        for &array in &self.arrays {
            // What could not be forgotten was not remembered in this process: a child's copy.
            let _ = call(self.socket.as_fd(), array, 0);
        }
    }
}

/// The system call; `len` 0 forgets.
fn call(fd: BorrowedFd<'_>, array: usize, len: usize) -> io::Result<()> {
    // SAFETY: the kernel checks what it is given, reads only, and says so where it cannot.
    let answer = unsafe { libc::syscall(SYSCALL, fd.as_raw_fd(), array, len as libc::c_uint, 0) };
    super::check(answer as isize).map(drop)
}

/// Whether the kernel remembers headers, probed with one header.
pub(crate) fn probe() -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the patch that brings remember_mmsghdr has it for x86 only".to_owned());
    }
    let trial = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        // SAFETY: all zeroes is a valid `mmsghdr`, of no data.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        let array = std::ptr::from_ref(&header) as usize;
        call(socket.as_fd(), array, 1)?;
        call(socket.as_fd(), array, 0)?;
        // A call of another name, under this number, would hardly know that there is none any more.
        match call(socket.as_fd(), array, 0) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
        }
    };
    trial().map_err(|error| match error.raw_os_error() {
        Some(libc::ENOSYS) => {
            "this kernel has no system call remember_mmsghdr, which takes the patches in Linerate's kernel/ \
             (docs/kernel.md); with uring any kernel from 6.0 on keeps the header"
                .to_owned()
        }
        _ => format!("cannot try remember_mmsghdr: {error}"),
    })
}
