//! [`Link`]: what an interface is called and is, asked of the kernel.

use std::io;

use crate::netlink::{Channel, attribute, number, text};
use crate::{Error, Result};

/// `NETLINK_ROUTE`, `RTM_GETLINK`, `IFLA_ADDRESS` and `IFLA_IFNAME` (rtnetlink(7)).
const ROUTE: isize = 0;
const GET: u16 = 18;
const ADDRESS: u16 = 1;
const NAME: u16 = 3;
/// Bytes of `struct ifinfomsg`.
const HEADER: usize = 16;

/// An interface of this network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) index: u32,
    /// None where it has no Ethernet address.
    pub(super) mac: Option<[u8; 6]>,
}

/// All interfaces of the network namespace of the calling thread.
pub(super) fn all() -> Result<Vec<Link>> {
    list().map_err(|source| Error::system("ask for the interfaces", source))
}

/// Indices of those that have one of these names.
pub(super) fn indices(links: &[Link], names: &[String]) -> Vec<u32> {
    links.iter().filter(|link| names.contains(&link.name)).map(|link| link.index).collect()
}

fn list() -> io::Result<Vec<Link>> {
    let channel = Channel::open(ROUTE)?;
    loop {
        let mut links = Vec::new();
        let whole =
            channel.ask(GET, true, &[0; HEADER], |message| links.extend(link(message.body)))?;
        if whole {
            return Ok(links);
        }
    }
}

fn link(body: &[u8]) -> Option<Link> {
    let attributes = body.get(HEADER..)?;
    Some(Link {
        name: text(attribute(attributes, NAME)?),
        index: u32::from_ne_bytes(number(body, 4)?),
        mac: attribute(attributes, ADDRESS).and_then(|mac| mac.try_into().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_there() {
        let links = all().unwrap();
        let loopback = links.iter().find(|link| link.name == "lo").expect("lo");
        assert!(loopback.index > 0 && loopback.mac == Some([0; 6]), "{loopback:?}");
    }
}
