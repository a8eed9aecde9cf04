//! [`Link`]: an interface, asked of the kernel: what it is, what it is made of, what it lies on.

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;

use crate::netlink::{Channel, attribute, attributes, number, text, word};

/// Bytes of `struct ifinfomsg`.
const HEADER: usize = 16;
/// What `linux/if_link.h` has and libc lacks.
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    /// `veth`, `vlan` and the like; empty for a card.
    pub(crate) kind: String,
    /// Ethernet (`ARPHRD_ETHER`).
    pub(crate) ethernet: bool,
    pub(crate) loopback: bool,
    /// Somebody has set it up; a carrier is another matter.
    pub(crate) up: bool,
    /// None where it has no Ethernet address.
    pub(crate) mac: Option<[u8; 6]>,
    pub(crate) mtu: u32,
    /// Bridge or bond that it is a member of.
    pub(crate) master: Option<u32>,
    /// What it stands on, or its other end.
    pub(crate) other: Option<u32>,
    /// The namespace of that, as the kernel calls it here; `None` for this one.
    pub(crate) space: Option<i32>,
    /// Id of the XDP program on it, with 0 where there are several.
    pub(crate) xdp: Option<u32>,
    pub(crate) tx_queues: u32,
    pub(crate) rx_queues: u32,
    /// Frames sent and frames dropped on the way out.
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
}

/// Indices of those that have one of these names.
pub(crate) fn indices(links: &[Link], names: &[String]) -> Vec<u32> {
    links.iter().filter(|link| names.contains(&link.name)).map(|link| link.index).collect()
}

impl Link {
    /// All of the namespace of the calling thread.
    pub(crate) fn all() -> io::Result<Vec<Self>> {
        let channel = Channel::open(NETLINK_ROUTE)?;
        loop {
            let mut links = Vec::new();
            let whole = channel.ask(libc::RTM_GETLINK, true, &[0; HEADER], |message| {
                links.extend(Self::read(message.body));
            })?;
            if whole {
                return Ok(links);
            }
        }
    }

    /// The MAC address that frames for this host have where they come in by this interface: its own, or that of
    /// the bridge that it is a member of.
    pub(crate) fn station(&self, links: &[Self]) -> Option<[u8; 6]> {
        let mut station = self;
        // Bridges cannot be members of each other; that they could be made to is no reason to go round for ever.
        for _ in links {
            let master = links.iter().find(|link| Some(link.index) == station.master);
            match master.filter(|master| master.kind == "bridge") {
                Some(bridge) => station = bridge,
                None => break,
            }
        }
        station.mac
    }

    /// The interface in this namespace that it is a VLAN of.
    pub(crate) fn vlan_of(&self) -> Option<u32> {
        self.other.filter(|_| self.kind == "vlan" && self.space.is_none())
    }

    /// The one of this index in the namespace of the calling thread.
    pub(crate) fn numbered(index: u32) -> io::Result<Self> {
        let channel = Channel::open(NETLINK_ROUTE)?;
        let mut body = [0; HEADER];
        body[4..8].copy_from_slice(&index.to_ne_bytes());
        let mut link = None;
        channel.ask(libc::RTM_GETLINK, false, &body, |message| link = Self::read(message.body))?;
        link.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn read(body: &[u8]) -> Option<Self> {
        const SENT: usize = 8; // struct rtnl_link_stats64: rx_packets, tx_packets, ...
        const DROPPED: usize = 7 * 8;
        let flags = u32::from_ne_bytes(number(body, 8)?);
        let mut link = Self {
            index: u32::from_ne_bytes(number(body, 4)?),
            ethernet: u16::from_ne_bytes(number(body, 2)?) == libc::ARPHRD_ETHER,
            loopback: flags & libc::IFF_LOOPBACK as u32 != 0,
            up: flags & libc::IFF_UP as u32 != 0,
            ..Self::default()
        };
        for (kind, value) in attributes(body.get(HEADER..)?) {
            let value32 = word(value);
            match kind {
                libc::IFLA_IFNAME => link.name = text(value),
                libc::IFLA_ADDRESS => link.mac = value.try_into().ok(),
                libc::IFLA_MTU => link.mtu = value32?,
                libc::IFLA_MASTER => link.master = value32,
                // 0 where it stands on nothing.
                libc::IFLA_LINK => link.other = value32.filter(|index| *index != 0),
                IFLA_LINK_NETNSID => link.space = value32.map(u32::cast_signed),
                libc::IFLA_NUM_TX_QUEUES => link.tx_queues = value32?,
                libc::IFLA_NUM_RX_QUEUES => link.rx_queues = value32?,
                libc::IFLA_LINKINFO => {
                    link.kind =
                        attribute(value, libc::IFLA_INFO_KIND).map(text).unwrap_or_default();
                }
                libc::IFLA_XDP => {
                    let attached = attribute(value, IFLA_XDP_ATTACHED).and_then(|v| v.first());
                    if attached.is_some_and(|mode| *mode != 0) {
                        link.xdp = attribute(value, IFLA_XDP_PROG_ID).and_then(word).or(Some(0));
                    }
                }
                libc::IFLA_STATS64 => {
                    link.sent = number(value, SENT).map_or(0, u64::from_ne_bytes);
                    link.dropped = number(value, DROPPED).map_or(0, u64::from_ne_bytes);
                }
                _ => {}
            }
        }
        Some(link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_there() {
        let links = Link::all().unwrap();
        let loopback = links.iter().find(|link| link.name == "lo").expect("lo");
        assert!(loopback.loopback && !loopback.ethernet, "{loopback:?}");
        assert!(loopback.index > 0 && loopback.mac == Some([0; 6]), "{loopback:?}");
        assert_eq!(Link::numbered(loopback.index).unwrap().name, "lo");
    }

    #[test]
    fn frames_for_a_member_of_a_bridge_are_addressed_to_the_bridge() {
        let link = |index, kind: &str, master| Link {
            index,
            kind: kind.to_owned(),
            master,
            mac: Some([2, 0, 0, 0, 0, index as u8]),
            ..Link::default()
        };
        let links = [link(1, "", Some(9)), link(2, "veth", Some(8)), link(3, "", None)];
        let links = [&links[..], &[link(8, "vrf", None), link(9, "bridge", Some(8))]].concat();
        let stations = links.iter().map(|link| link.station(&links).unwrap()[5]);
        assert_eq!(stations.collect::<Vec<_>>(), [9, 2, 3, 8, 9]);
        let circle = [link(1, "bridge", Some(2)), link(2, "bridge", Some(1))];
        assert!(circle[0].station(&circle).is_some());
    }
}
