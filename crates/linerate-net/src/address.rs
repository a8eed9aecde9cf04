//! [`Address`]: the IP addresses of interfaces (`ip address`).

use std::net::IpAddr;

use crate::Result;
use crate::connection::{Connection, family, ip, octets};
use crate::error::Context;
use crate::netlink::{NLM_F_CREATE, NLM_F_EXCL, attributes, bytes_at, put_attr};

/// Bytes of `struct ifaddrmsg`.
const HEADER: usize = 8;

/// An IP address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Index of the interface.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// Bits of its prefix.
    pub prefix_len: u8,
}

impl Address {
    /// Reads the body of an `RTM_NEWADDR` or `RTM_DELADDR` message.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let (mut local, mut remote) = (None, None);
        for (kind, value) in attributes(body.get(HEADER..)?) {
            match kind {
                libc::IFA_LOCAL => local = ip(value),
                libc::IFA_ADDRESS => remote = ip(value),
                _ => {}
            }
        }
        Some(Self {
            index: u32::from_ne_bytes(bytes_at(body, 4)?),
            // `IFA_ADDRESS` is the peer's if `IFA_LOCAL` is present too.
            address: local.or(remote)?,
            prefix_len: body[1],
        })
    }
}

/// All addresses of the namespace of the calling thread.
pub fn addresses() -> Result<Vec<Address>> {
    Connection::open()?.addresses()
}

impl Connection {
    /// All addresses of the namespace.
    pub fn addresses(&self) -> Result<Vec<Address>> {
        self.list(libc::RTM_GETADDR, &[0; HEADER], Address::parse)
            .context(|| "list the addresses of this host".to_owned())
    }

    /// Adds an address. An IPv6 address is usable at once: duplicate address detection is skipped.
    ///
    /// # Errors
    /// [`crate::Error::System`] if the interface has it already, [`crate::Error::Privilege`].
    pub fn add_address(&self, new: &Address) -> Result<()> {
        let mut body = vec![family(new.address), new.prefix_len, 0, 0];
        body.extend(new.index.to_ne_bytes());
        let address = octets(new.address);
        put_attr(&mut body, libc::IFA_ADDRESS, &address);
        match new.address {
            IpAddr::V4(_) => put_attr(&mut body, libc::IFA_LOCAL, &address),
            IpAddr::V6(_) => {
                put_attr(&mut body, libc::IFA_FLAGS, &libc::IFA_F_NODAD.to_ne_bytes());
            }
        }
        self.change(libc::RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &body)
            .context(|| format!("add the address {}/{}", new.address, new.prefix_len))
    }
}
