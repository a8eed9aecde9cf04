//! [`Connection`]: an rtnetlink socket for queries and changes.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use crate::netlink::{Dump, Message, Protocol, Socket};
use crate::{Error, Result};

/// How often a dump that changes interrupted is repeated.
const ATTEMPTS: usize = 5;

/// A connection to rtnetlink (rtnetlink(7)). It stays in the network namespace of the thread that opened it;
/// threads may share it.
#[derive(Debug)]
pub struct Connection(Socket);

impl Connection {
    /// Connects to the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::System`] where the process has no descriptors left.
    pub fn open() -> Result<Self> {
        Socket::open(Protocol::Route)
            .map(Self)
            .map_err(|source| Error::new("open a netlink socket", source))
    }

    /// Queries one object; `read` parses an answer.
    pub(crate) fn get<T>(
        &self,
        kind: u16,
        body: &[u8],
        mut read: impl FnMut(&[u8]) -> Option<T>,
    ) -> io::Result<T> {
        let mut found = None;
        self.0.request(kind, 0, body, |message| found = read(message.body))?;
        found.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer without content"))
    }

    /// Requests a change.
    pub(crate) fn change(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.0.request(kind, flags, body, |_| ())
    }

    /// Dumps all objects of a kind, again if something changed during the dump; `read` parses an answer.
    pub(crate) fn list<T>(
        &self,
        kind: u16,
        body: &[u8],
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        let mut all = Vec::new();
        for _ in 0..ATTEMPTS {
            all.clear();
            let take = |message: Message<'_>| all.extend(read(message.body));
            if self.0.dump(kind, body, take)? == Dump::Consistent {
                break;
            }
        }
        Ok(all)
    }

    /// The socket, for a dump that ends early.
    pub(crate) fn into_socket(self) -> Socket {
        self.0
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `AF_INET` or `AF_INET6`.
pub(crate) fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

/// The bytes of an address as attributes have them.
pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The address in an attribute.
pub(crate) fn ip(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(value).ok().map(IpAddr::from),
        _ => None,
    }
}
