//! Upper devices of ports that the learner accepts packets from: the map `upper_devices`. `bpf/learn.bpf.c`
//! explains why it rejects others.

use std::collections::BTreeSet;

use libbpf_rs::{MapCore, MapFlags};
use linerate_net::link::{self, Link};

use crate::maps::Maps;
use crate::runtime::link::vlan_of;
use crate::{Error, Result};

/// Updates the map with the current upper devices of these ports. Returns whether it changed. Call it in the
/// network namespace of the ports, when a port is added and after each change of a link. After a change a
/// bump must follow: sessions that were learned since then rely on the former entries.
///
/// # Errors
/// [`Error::System`] if the kernel does not list its interfaces; [`Error::Invalid`] for maps of programs that
/// do not learn.
pub fn refresh(maps: &Maps, ports: &[u32]) -> Result<bool> {
    let links = link::all().map_err(|error| Error::system("list the interfaces", error.into()))?;
    let wanted: BTreeSet<Vec<u8>> = pairs(&links, ports).into_iter().map(key).collect();
    let map = maps.get("upper_devices")?;
    let refused = |error| Error::bpf("note which interfaces lie on ports", &error);
    let there: BTreeSet<Vec<u8>> = map.keys().collect();
    for key in there.difference(&wanted) {
        map.delete(key).map_err(refused)?;
    }
    for key in wanted.difference(&there) {
        map.update(key, &[1], MapFlags::ANY).map_err(refused)?;
    }
    Ok(there != wanted)
}

/// The entries of the map: each upper device with its port, in order.
pub(crate) fn pairs_in(maps: &Maps) -> Result<BTreeSet<(u32, u32)>> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_ne_bytes);
    let pair =
        |key: Vec<u8>| key.split_at_checked(4).map(|(upper, port)| (number(upper), number(port)));
    Ok(maps.get("upper_devices")?.keys().filter_map(pair).collect())
}

/// `struct upper_device`.
fn key((upper, port): (u32, u32)) -> Vec<u8> {
    [upper.to_ne_bytes(), port.to_ne_bytes()].concat()
}

/// Each upper device with each port below it, at any depth.
fn pairs(links: &[Link], ports: &[u32]) -> BTreeSet<(u32, u32)> {
    let mut pairs = BTreeSet::new();
    for &port in ports {
        let mut below = vec![port];
        while let Some(lower) = below.pop() {
            let masters =
                links.iter().filter(|link| link.index == lower).filter_map(|link| link.master);
            let vlans =
                links.iter().filter(|link| vlan_of(link) == Some(lower)).map(|link| link.index);
            below.extend(masters.chain(vlans).filter(|upper| pairs.insert((*upper, port))));
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_on_what_lies_on_a_port_lies_on_it() {
        let link = |index, master, vlan_of: Option<u32>| Link {
            index,
            master,
            link: vlan_of,
            kind: vlan_of.map_or("", |_| "vlan").to_owned(),
            ..Link::default()
        };
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
        // Guards against a cycle of masters, although the kernel forbids one.
        let circle = [link(1, Some(2), None), link(2, Some(1), None)];
        assert_eq!(pairs(&circle, &[1]), [(1, 1), (2, 1)].into());
    }
}
