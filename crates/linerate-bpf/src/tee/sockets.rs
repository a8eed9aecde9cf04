//! [`SocketWatch`]: makes a program that takes frames pass them on before a new packet socket gets its first one.

use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use libbpf_rs::Link;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use linerate_net::Interface;
use linerate_net::namespace::Namespace;

use crate::program::log_to_tracing;
use crate::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/sockets.rs"));

/// A tracing program at the function that adds packet sockets. It is detached when this is dropped, and when the process
/// ends.
#[derive(Debug)]
pub(super) struct SocketWatch {
    _link: Link,
}

impl SocketWatch {
    /// Sets `pass` of all `readers` when a packet socket receives from `interface` of this network namespace.
    ///
    /// # Errors
    /// [`Error::System`] on a kernel that cannot trace its functions.
    pub(super) fn attach(interface: &Interface, readers: BorrowedFd<'_>) -> Result<Self> {
        Self::attach_for(interface.index(), Some(readers))
    }

    fn attach_for(ifindex: u32, readers: Option<BorrowedFd<'_>>) -> Result<Self> {
        let failed = |error: libbpf_rs::Error| {
            // libbpf-rs has the cause only in its text.
            let cause = std::io::Error::other(format!("{error:#}"));
            Error::system("trace the function that adds packet sockets", cause)
        };
        let mut storage = MaybeUninit::uninit();
        let mut open =
            skeleton::SocketsSkelBuilder::default().open(&mut storage).map_err(failed)?;
        if let Some(readers) = readers {
            open.maps.readers.reuse_fd(readers).map_err(failed)?;
        }
        if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
            constants.ifindex = ifindex;
            constants.netns = Namespace::current()?.inode() as u32;
        }
        let skeleton = open.load().map_err(failed)?;
        Ok(Self { _link: skeleton.progs.linerate_socket.attach().map_err(failed)? })
    }
}

/// Attaches a tracing program (fentry) to a function of the kernel, and detaches it at once. The program does nothing:
/// no interface has the index 0.
///
/// # Errors
/// [`Error::System`] with what libbpf says, on a kernel that cannot trace its functions or does not allow it.
pub fn try_tracing() -> Result<()> {
    log_to_tracing();
    SocketWatch::attach_for(0, None).map(drop)
}
