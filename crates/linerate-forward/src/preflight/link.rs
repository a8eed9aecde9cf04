//! [`Link`]: an interface as the preflight sees it.

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
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) name: String,
    /// `veth`, `vlan` and the like; empty for a card.
    pub(super) kind: String,
    /// Ethernet (`ARPHRD_ETHER`).
    pub(super) ethernet: bool,
    pub(super) loopback: bool,
    pub(super) mac: [u8; 6],
    pub(super) mtu: u32,
    /// Bridge or bond that it is a member of.
    pub(super) master: Option<u32>,
    /// What it stands on, or its other end.
    pub(super) other: Option<u32>,
    /// The namespace of that, as the kernel calls it here; `None` for this one.
    pub(super) space: Option<i32>,
    /// Id of the XDP program on it, with 0 where there are several.
    pub(super) xdp: Option<u32>,
    pub(super) tx_queues: u32,
    pub(super) rx_queues: u32,
    /// Frames sent and frames dropped on the way out.
    pub(super) sent: u64,
    pub(super) dropped: u64,
}

impl Link {
    /// All of the namespace of the calling thread.
    pub(super) fn all() -> io::Result<Vec<Self>> {
        let channel = Channel::open(NETLINK_ROUTE)?;
        let mut links = Vec::new();
        channel.ask(libc::RTM_GETLINK, true, &[0; HEADER], |message| {
            links.extend(Self::read(message.body));
        })?;
        Ok(links)
    }

    /// The one of this index in the namespace of the calling thread.
    pub(super) fn numbered(index: u32) -> io::Result<Self> {
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
            ..Self::default()
        };
        for (kind, value) in attributes(body.get(HEADER..)?) {
            let value32 = word(value);
            match kind {
                libc::IFLA_IFNAME => link.name = text(value),
                libc::IFLA_ADDRESS => link.mac = number(value, 0).unwrap_or_default(),
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
