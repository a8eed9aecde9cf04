//! [`Socket`]: the system calls of a packet socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use linerate_net::{Interface, privilege};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::{Error, Result, sys};

/// A packet socket, bound to nothing until [`Socket::bind`].
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    pub(super) fn open() -> Result<Self> {
        Self::of_type(SocketType::RAW)
    }

    /// One whose frames have no link-layer header.
    pub(super) fn open_cooked() -> Result<Self> {
        Self::of_type(SocketType::DGRAM)
    }

    fn of_type(kind: SocketType) -> Result<Self> {
        let action = "open a packet socket";
        let opened = socket_with(AddressFamily::PACKET, kind, SocketFlags::CLOEXEC, None);
        opened.map(Self).map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS if privilege::lacks("CAP_NET_RAW") => {
                Error::Privilege { action: action.to_owned(), capability: "CAP_NET_RAW" }
            }
            Errno::AFNOSUPPORT => Error::Invalid(
                "this kernel has no packet sockets (it was built without CONFIG_PACKET)".to_owned(),
            ),
            _ => Error::system(action, errno.into()),
        })
    }

    /// Sets an option of a plain C type.
    pub(super) fn set<T: Copy>(&self, level: i32, option: i32, value: &T) -> io::Result<()> {
        sys::setsockopt(self.as_fd(), level, option, value)
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

    /// Keeps an interface promiscuous for as long as the socket lives.
    pub(super) fn make_promiscuous(&self, interface: &Interface) -> Result<()> {
        let member = libc::packet_mreq {
            mr_ifindex: interface.index() as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &member).map_err(|error| {
            let name = interface.name();
            Error::system(format!("switch on promiscuous mode (interface {name})"), error)
        })
    }

    /// The descriptor alone.
    pub(super) fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Starts to receive from an interface, or from all of them if `index` is 0.
    pub(super) fn bind(&self, index: u32, protocol: u16) -> io::Result<()> {
        let address = address(index, protocol);
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
        sys::take_error(self.as_fd()).unwrap_or_else(Some)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The address of an interface, with a protocol (EtherType).
pub(super) fn address(index: u32, protocol: u16) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index as libc::c_int,
        ..no_address()
    }
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
