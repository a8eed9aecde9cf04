//! Interfaces on top of ports, through which the learner may see a port's packets come: the map `uppers` of
//! `bpf/learn.h`, where it is told why any other is not trusted.

use std::collections::BTreeSet;
use std::io;

use libbpf_rs::{MapCore, MapFlags};

use crate::netlink::{Channel, attribute, number, word};
use crate::program::Maps;
use crate::{Error, Result};

/// `NETLINK_ROUTE`, `RTM_GETLINK`, bytes of `struct ifinfomsg`; attributes of rtnetlink(7).
const ROUTE: isize = 0;
const GET: u16 = 18;
const HEADER: usize = 16;

/// How an interface lies on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    index: u32,
    /// The bridge, bond or VRF that it is a member of.
    master: Option<u32>,
    /// What it is a VLAN of.
    vlan_of: Option<u32>,
}

/// Enters what lies on these ports now, and takes out what does not any more. To be called, in the network
/// namespace of the ports, when a port is taken up and after each change of a link, before the bump.
///
/// # Errors
/// [`Error::System`] where the kernel does not tell its interfaces; [`Error::Invalid`] for maps that are
/// not of a program that learns.
pub fn refresh(maps: &Maps, ports: &[u32]) -> Result<()> {
    let links = list().map_err(|source| Error::system("ask how the interfaces lie", source))?;
    let wanted: BTreeSet<Vec<u8>> = pairs(&links, ports).into_iter().map(key).collect();
    let map = maps.get("uppers")?;
    let refused = |error| Error::bpf("note which interfaces lie on ports", &error);
    let there: BTreeSet<Vec<u8>> = map.keys().collect();
    for key in there.difference(&wanted) {
        map.delete(key).map_err(refused)?;
    }
    for key in wanted.difference(&there) {
        map.update(key, &[1], MapFlags::ANY).map_err(refused)?;
    }
    Ok(())
}

/// `struct upper`.
fn key((upper, port): (u32, u32)) -> Vec<u8> {
    [upper.to_ne_bytes(), port.to_ne_bytes()].concat()
}

/// Each interface with each port that it lies on, be it with others in between.
fn pairs(links: &[Link], ports: &[u32]) -> BTreeSet<(u32, u32)> {
    let mut pairs = BTreeSet::new();
    for &port in ports {
        let mut below = vec![port];
        while let Some(lower) = below.pop() {
            let masters =
                links.iter().filter(|link| link.index == lower).filter_map(|link| link.master);
            let vlans =
                links.iter().filter(|link| link.vlan_of == Some(lower)).map(|link| link.index);
            below.extend(masters.chain(vlans).filter(|upper| pairs.insert((*upper, port))));
        }
    }
    pairs
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
    let is_vlan = attribute(attributes, libc::IFLA_LINKINFO)
        .and_then(|information| attribute(information, libc::IFLA_INFO_KIND))
        .is_some_and(|kind| kind.starts_with(b"vlan\0"));
    let is_here = attribute(attributes, libc::IFLA_LINK_NETNSID).is_none();
    Some(Link {
        index: u32::from_ne_bytes(number(body, 4)?),
        master: attribute(attributes, libc::IFLA_MASTER).and_then(word),
        vlan_of: attribute(attributes, libc::IFLA_LINK)
            .and_then(word)
            .filter(|_| is_vlan && is_here),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_what_lies_on_a_port_lies_on_it() {
        let link = |index, master, vlan_of| Link { index, master, vlan_of };
        let links = [
            link(1, None, None),
            link(2, Some(5), None), // a port in bridge 5
            link(3, Some(5), None), // another
            link(4, None, None),    // a port by itself
            link(5, Some(7), None), // the bridge, in VRF 7
            link(6, None, Some(5)), // a VLAN of the bridge
            link(7, None, None),    // the VRF
            link(8, None, Some(4)), // a VLAN of 4
            link(9, None, Some(8)), // a VLAN within it
        ];
        let expected = [(5, 2), (6, 2), (7, 2), (8, 4), (9, 4)];
        assert_eq!(pairs(&links, &[2, 4]), expected.into());
        // Two masters of each other, which the kernel does not let be, are no reason to go round for ever.
        let circle = [link(1, Some(2), None), link(2, Some(1), None)];
        assert_eq!(pairs(&circle, &[1]), [(1, 1), (2, 1)].into());
    }
}
