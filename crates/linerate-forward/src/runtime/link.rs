//! Queries about interfaces that only the accelerator needs.

use linerate_net::link::Link;

/// Indices of the interfaces with one of these names.
pub(crate) fn indices(links: &[Link], names: &[String]) -> Vec<u32> {
    links.iter().filter(|link| names.contains(&link.name)).map(|link| link.index).collect()
}

/// The destination MAC address of frames for this host that arrive on `link`: its own, or that of its bridge.
pub(crate) fn dst_mac(link: &Link, links: &[Link]) -> Option<[u8; 6]> {
    let mut receiver = link;
    // Bridges cannot be members of each other. This guards against a cycle nevertheless.
    for _ in links {
        let master = links.iter().find(|link| Some(link.index) == receiver.master);
        match master.filter(|master| master.kind == "bridge") {
            Some(bridge) => receiver = bridge,
            None => break,
        }
    }
    receiver.address.map(|address| address.0)
}

/// The lower interface of VLAN device `link`, if it is in this namespace.
pub(crate) fn vlan_of(link: &Link) -> Option<u32> {
    link.lower().filter(|_| link.kind == "vlan")
}

#[cfg(test)]
mod tests {
    use linerate_wire::ethernet::Address;

    use super::*;

    #[test]
    fn frames_for_a_member_of_a_bridge_are_addressed_to_the_bridge() {
        let link = |index, kind: &str, master| Link {
            index,
            kind: kind.to_owned(),
            master,
            address: Some(Address([2, 0, 0, 0, 0, index as u8])),
            ..Link::default()
        };
        let links = [link(1, "", Some(9)), link(2, "veth", Some(8)), link(3, "", None)];
        let links = [&links[..], &[link(8, "vrf", None), link(9, "bridge", Some(8))]].concat();
        let addresses = links.iter().map(|link| dst_mac(link, &links).unwrap()[5]);
        assert_eq!(addresses.collect::<Vec<_>>(), [9, 2, 3, 8, 9]);
        let circle = [link(1, "bridge", Some(2)), link(2, "bridge", Some(1))];
        assert!(dst_mac(&circle[0], &circle).is_some());
    }
}
