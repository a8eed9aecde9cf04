//! Queries about interfaces that only the accelerator needs.

use linerate_net::ethtool;
use linerate_net::link::Link;
use rustix::net::{AddressFamily, SocketType};

/// Bytes of a page that XDP leaves for a frame: without the headroom (`XDP_PACKET_HEADROOM`), the
/// `skb_shared_info` at its end, and the Ethernet header. Some drivers have less, and report it when programs
/// are attached.
const HEADROOM: usize = 256;
const SHARED: usize = 320;
const ETHERNET: usize = 14;

/// The name of an interface of this network namespace.
pub(crate) fn name_of(index: u32) -> String {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
    let name = socket.and_then(|socket| rustix::net::netdevice::index_to_name(socket, index));
    name.unwrap_or_else(|_| format!("#{index}"))
}

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

/// Why XDP cannot serve this interface, where TC can: it sends by another one, or has no Ethernet header.
pub(crate) fn for_tc_only(link: &Link) -> Option<String> {
    let kind = link.kind.as_str();
    match kind {
        "bridge" | "bond" | "team" => Some(format!("a {kind} sends by its members")),
        "vlan" | "macvlan" => Some(format!("a {kind} device sends through its lower device")),
        "tun" | "wireguard" | "ppp" if !link.is_ethernet() => {
            Some(format!("a {kind} device has no Ethernet header"))
        }
        _ => None,
    }
}

/// Longest packet in one buffer, in bytes of the network layer.
pub(crate) fn longest_in_one_buffer() -> u32 {
    (rustix::param::page_size() - HEADROOM - SHARED - ETHERNET) as u32
}

/// Whether XDP gets the longest frames of this interface in several buffers, and its driver can do that. A
/// kernel that does not tell what drivers can (before Linux 6.3) says so when programs are attached.
pub(crate) fn needs_multi_buffer(link: &Link) -> bool {
    let can = || ethtool::xdp_features(link.index).ok().flatten();
    link.mtu > longest_in_one_buffer() && can().is_none_or(|xdp| xdp.has_multi_buffer())
}

/// Why XDP has no room for the longest frames of this interface, if that is so.
pub(crate) fn too_long_for_xdp(link: &Link, multi_buffer: bool) -> Option<String> {
    let longest = longest_in_one_buffer();
    let fits = link.mtu <= longest || (multi_buffer && needs_multi_buffer(link));
    (!fits).then(|| {
        format!("its MTU is {}, and XDP has room for {longest} bytes in one buffer", link.mtu)
    })
}

/// Why XDP does not serve this interface in any mode, if that is so.
pub(crate) fn why_no_xdp(link: &Link, multi_buffer: bool) -> Option<String> {
    for_tc_only(link).or_else(|| too_long_for_xdp(link, multi_buffer))
}

/// The devices in `links` that this one sends by, at any depth.
pub(crate) fn lower_devices(links: &[Link], ifindex: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut uppers = vec![ifindex];
    while let Some(upper) = uppers.pop() {
        let device = links.iter().find(|link| link.index == upper);
        let is_lower = |link: &&Link| {
            let sends =
                |device: &Link| for_tc_only(device).is_some() && device.lower() == Some(link.index);
            link.master == Some(upper) || device.is_some_and(sends)
        };
        for lower in links.iter().filter(is_lower) {
            if !found.contains(&lower.index) {
                found.push(lower.index);
                uppers.push(lower.index);
            }
        }
    }
    found
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
