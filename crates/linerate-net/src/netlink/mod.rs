//! Netlink sockets (netlink(7)): requests with their answers, dumps, and notifications.

mod attribute;
mod generic;
mod notifications;

use std::io;
use std::ops::ControlFlow::{self, Break, Continue};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer,
};
use netlink_sys::SocketAddr;
use netlink_sys::protocols::{
    NETLINK_GENERIC, NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_SOCK_DIAG, NETLINK_XFRM,
};

pub(crate) use attribute::put_attr_str;
pub use attribute::{attr_str, attr_u32, attribute, attributes, bytes_at, put_attr, put_nested};
pub use generic::Family;
pub use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
pub use notifications::{Notifications, Received};

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

/// Which part of the kernel a socket talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `NETLINK_ROUTE`: links, addresses, routes, neighbours, traffic control (rtnetlink(7)).
    Route,
    /// `NETLINK_GENERIC`: families such as ethtool and netdev.
    Generic,
    /// `NETLINK_NETFILTER`: nftables and connection tracking.
    Netfilter,
    /// `NETLINK_XFRM`: IPsec.
    Xfrm,
    /// `NETLINK_SOCK_DIAG`: sockets (sock_diag(7)).
    SockDiag,
}

impl Protocol {
    fn number(self) -> isize {
        match self {
            Self::Route => NETLINK_ROUTE,
            Self::Generic => NETLINK_GENERIC,
            Self::Netfilter => NETLINK_NETFILTER,
            Self::Xfrm => NETLINK_XFRM,
            Self::SockDiag => NETLINK_SOCK_DIAG,
        }
    }
}

/// A message in a buffer.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// `nlmsg_type`, by the protocol's numbers.
    pub kind: u16,
    /// `NLM_F_` flags.
    pub flags: u16,
    /// The bytes after the header.
    pub body: &'a [u8],
}

/// Whether a dump is consistent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Dump {
    /// It is.
    Consistent,
    /// Something changed during the dump (`NLM_F_DUMP_INTR`): entries may be missing or duplicated.
    Interrupted,
}

/// A socket of one protocol. It stays in the network namespace of the thread that opened it. Threads may share
/// it; their requests take turns.
#[derive(Debug)]
pub struct Socket {
    socket: netlink_sys::Socket,
    /// The sequence number of the last request.
    sequence: Mutex<u32>,
}

impl Socket {
    /// Opens it in the network namespace of the calling thread.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` where the kernel has no such protocol.
    pub fn open(protocol: Protocol) -> io::Result<Self> {
        let mut socket = netlink_sys::Socket::new(protocol.number())?;
        socket.bind_auto()?;
        if protocol == Protocol::Route {
            // The kernel filters a dump by the request's fields only with this option (Linux 4.20).
            let _ = socket.set_netlink_get_strict_chk(true);
        }
        Ok(Self { socket, sequence: Mutex::new(0) })
    }

    /// Its port ID, by which the kernel says whose request caused a notification.
    pub fn port(&self) -> io::Result<u32> {
        let mut address = SocketAddr::new(0, 0);
        self.socket.get_address(&mut address)?;
        Ok(address.port_number())
    }

    /// Joins a multicast group, such as `RTNLGRP_LINK`.
    ///
    /// # Errors
    /// `EINVAL` if the kernel has no such group, `EPERM` without the required privilege.
    pub fn join(&self, group: u32) -> io::Result<()> {
        self.socket.add_membership(group)
    }

    /// Queries one object or requests a change, and passes on the answers before the acknowledgement. `flags`
    /// are added to `NLM_F_REQUEST` and `NLM_F_ACK`.
    pub fn request(
        &self,
        kind: u16,
        flags: u16,
        body: &[u8],
        mut take: impl FnMut(Message<'_>),
    ) -> io::Result<()> {
        self.exchange(kind, NLM_F_ACK | flags, body, |message| {
            take(message);
            Continue(())
        })
        .map(drop)
    }

    /// Asks for all of a kind.
    pub fn dump(
        &self,
        kind: u16,
        body: &[u8],
        mut take: impl FnMut(Message<'_>),
    ) -> io::Result<Dump> {
        self.exchange(kind, NLM_F_DUMP, body, |message| {
            take(message);
            Continue(())
        })
    }

    /// Dumps all objects of a kind until `take` returns false. The socket cannot be used again: the rest of
    /// the dump is queued in it.
    pub fn dump_until(
        self,
        kind: u16,
        body: &[u8],
        take: impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> io::Result<()> {
        self.exchange(kind, NLM_F_DUMP, body, take).map(|_| ())
    }

    fn exchange(
        &self,
        kind: u16,
        flags: u16,
        body: &[u8],
        mut take: impl FnMut(Message<'_>) -> ControlFlow<()>,
    ) -> io::Result<Dump> {
        let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        *sequence = sequence.wrapping_add(1);
        let request = encode(kind, NLM_F_REQUEST | flags, *sequence, body);
        self.socket.send_to(&request, &SocketAddr::new(0, 0), 0)?;
        let mut dump = Dump::Consistent;
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            for (number, message) in numbered_messages(&bytes) {
                // An answer that an earlier request did not wait for.
                if number != *sequence {
                    continue;
                }
                if message.flags & NLM_F_DUMP_INTR != 0 {
                    dump = Dump::Interrupted;
                }
                if message.kind != NLMSG_DONE && message.kind != NLMSG_ERROR {
                    match take(message) {
                        Continue(()) => continue,
                        Break(()) => return Ok(dump),
                    }
                }
                // Both begin with a negative error number; 0 is success.
                return match number_at(message.body).map_or(0, i32::from_ne_bytes) {
                    0.. => Ok(dump),
                    code => Err(io::Error::from_raw_os_error(-code)),
                };
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn number_at(body: &[u8]) -> Option<[u8; 4]> {
    bytes_at(body, 0)
}

fn encode(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(((HEADER + body.len()) as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]); // the kernel fills in the port
    bytes.extend(body);
    bytes
}

/// The messages of a buffer, up to the first that is cut.
pub fn messages(bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    numbered_messages(bytes).map(|(_, message)| message)
}

/// The same with their sequence numbers.
fn numbered_messages(mut bytes: &[u8]) -> impl Iterator<Item = (u32, Message<'_>)> {
    std::iter::from_fn(move || {
        let message = NetlinkBuffer::new_checked(bytes).ok()?;
        bytes = bytes.get((message.length() as usize).next_multiple_of(4)..).unwrap_or_default();
        let body = message.payload();
        let (kind, flags) = (message.message_type(), message.flags());
        Some((message.sequence_number(), Message { kind, flags, body }))
    })
}

#[cfg(test)]
mod tests;
