//! [`Link`]: an interface as the kernel describes it now (`ip -details -statistics link`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use linerate_wire::ethernet;

use crate::connection::Connection;
use crate::error::Context;
use crate::netlink::{
    NLM_F_CREATE, NLM_F_EXCL, attr_str, attr_u32, attribute, attributes, bytes_at, put_attr,
    put_attr_str, put_nested,
};
use crate::{Error, NoInterface, Result};

/// Bytes of `struct ifinfomsg`.
const HEADER: usize = 16;
// Constants of `linux/if_link.h` and `linux/veth.h` that libc lacks.
const IFLA_INET6_CONF: u16 = 2;
const IFLA_GSO_IPV4_MAX_SIZE: u16 = 63;
const IFLA_GRO_IPV4_MAX_SIZE: u16 = 64;
/// Index in `IFLA_INET6_CONF`, of `linux/ipv6.h`.
const DEVCONF_DISABLE_IPV6: usize = 26;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const VETH_INFO_PEER: u16 = 1;
const IFLA_TUN_NUM_QUEUES: u16 = 8;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VLAN_EGRESS_QOS: u16 = 3;
const IFLA_VLAN_PROTOCOL: u16 = 5;

/// An interface as it is at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `veth`, `vlan`, `bridge` and the like; empty for hardware.
    pub kind: String,
    /// Type of its link layer, an `ARPHRD_` number of `linux/if_arp.h`.
    pub hardware_type: u16,
    /// `IFF_` flags of `linux/if.h`.
    pub flags: u32,
    /// Its Ethernet address; `None` where its hardware address has another length.
    pub address: Option<ethernet::Address>,
    /// The Ethernet address that the hardware has; `None` for most virtual interfaces.
    pub permanent_address: Option<ethernet::Address>,
    /// The largest network-layer packet in bytes.
    pub mtu: u32,
    /// The longest super-packet that the stack builds for it (GSO) or of its frames (GRO), in bytes: 65,536, or more with
    /// BIG TCP.
    pub max_super_packet: u32,
    /// Index of the bridge, bond or VRF that it is a port of.
    pub master: Option<u32>,
    /// Index of its lower device, or of the other end of a veth pair; `if@LINK` in iproute2.
    pub link: Option<u32>,
    /// The network namespace of `link`, by the id that it has in this one; `None` where both are in this one.
    pub link_netnsid: Option<i32>,
    /// The count of requests for promiscuous mode, including the administrator's.
    pub promiscuity: u32,
    /// Id of the XDP program on it; 0 where there are several.
    pub xdp: Option<u32>,
    /// What a VLAN device does.
    pub vlan: Option<Vlan>,
    /// Queues of a TUN or TAP device that programs have.
    pub tun_queues: u32,
    /// The kernel receives IPv6 packets from it: it has IPv6, and `disable_ipv6` is 0.
    pub ipv6: bool,
    /// Transmit queues that the driver has created.
    pub num_tx_queues: u32,
    /// Receive queues that the driver has created.
    pub num_rx_queues: u32,
    /// Its state is `UP` by RFC 2863: it can pass packets.
    pub operational: bool,
    /// Its counters.
    pub statistics: Statistics,
}

/// A VLAN device (`ip -details link show type vlan`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vlan {
    /// Its identifier.
    pub id: u16,
    /// EtherType of its tags: 0x8100 or 0x88a8.
    pub protocol: u16,
    /// The priority in its tags depends on the packet (`egress-qos-map`); otherwise it is 0.
    pub maps_priority: bool,
}

impl Vlan {
    /// Reads the `IFLA_INFO_DATA` of a VLAN device.
    fn parse(value: &[u8]) -> Option<Self> {
        let number = |kind| attribute(value, kind).and_then(|value| bytes_at(value, 0));
        let maps = attribute(value, IFLA_VLAN_EGRESS_QOS);
        Some(Self {
            id: u16::from_ne_bytes(number(IFLA_VLAN_ID)?),
            protocol: u16::from_be_bytes(number(IFLA_VLAN_PROTOCOL)?),
            maps_priority: maps.is_some_and(|maps| attributes(maps).next().is_some()),
        })
    }
}

/// Counters of an interface since its creation (`struct rtnl_link_stats64`), in packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets that were received and then dropped. A veth counts here packets that found no room, and those
    /// that an XDP program dropped.
    pub rx_dropped: u64,
    /// Packets that could not be sent. A veth counts here packets that the peer had no room for.
    pub tx_dropped: u64,
    /// Packets that overran a receive ring.
    pub rx_over_errors: u64,
    /// Packets that overran a receive FIFO; some drivers count the same packets in `rx_over_errors`.
    pub rx_fifo_errors: u64,
    /// Packets that the device had no buffer for.
    pub rx_missed_errors: u64,
}

impl Link {
    /// An administrator has set it up; a carrier is another matter.
    pub fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// It has a carrier.
    pub fn is_running(&self) -> bool {
        self.flags & libc::IFF_RUNNING as u32 != 0
    }

    /// It is the loopback interface.
    pub fn is_loopback(&self) -> bool {
        self.flags & libc::IFF_LOOPBACK as u32 != 0
    }

    /// Its frames are Ethernet frames.
    pub fn is_ethernet(&self) -> bool {
        self.hardware_type == libc::ARPHRD_ETHER
    }

    /// It is one end of a veth pair.
    pub fn is_veth(&self) -> bool {
        self.kind == "veth"
    }

    /// Index of its lower device in this namespace, as of a VLAN or a macvlan.
    pub fn lower(&self) -> Option<u32> {
        let here = !self.is_veth() && self.link_netnsid.is_none();
        self.link.filter(|lower| here && *lower != self.index)
    }

    /// The peer of a veth, if it is among `links`, which are of the same namespace.
    pub fn veth_peer<'a>(&self, links: &'a [Self]) -> Option<&'a Self> {
        let peer = self.link.filter(|_| self.is_veth() && self.link_netnsid.is_none())?;
        links.iter().find(|link| link.index == peer && link.link == Some(self.index))
    }

    /// Reads the body of an `RTM_NEWLINK` or `RTM_DELLINK` message.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut link = Self {
            hardware_type: u16::from_ne_bytes(bytes_at(body, 2)?),
            index: u32::from_ne_bytes(bytes_at(body, 4)?),
            flags: u32::from_ne_bytes(bytes_at(body, 8)?),
            ..Self::default()
        };
        for (kind, value) in attributes(body.get(HEADER..)?) {
            let number32 = attr_u32(value);
            match kind {
                libc::IFLA_IFNAME => link.name = attr_str(value),
                libc::IFLA_ADDRESS => link.address = value.try_into().ok().map(ethernet::Address),
                libc::IFLA_PERM_ADDRESS => {
                    link.permanent_address = value.try_into().ok().map(ethernet::Address);
                }
                libc::IFLA_MTU => link.mtu = number32?,
                libc::IFLA_GSO_MAX_SIZE
                | libc::IFLA_GRO_MAX_SIZE
                | IFLA_GSO_IPV4_MAX_SIZE
                | IFLA_GRO_IPV4_MAX_SIZE => {
                    link.max_super_packet = link.max_super_packet.max(number32?);
                }
                libc::IFLA_MASTER => link.master = number32.filter(|index| *index != 0),
                libc::IFLA_LINK => link.link = number32.filter(|index| *index != 0),
                libc::IFLA_LINK_NETNSID => link.link_netnsid = number32.map(u32::cast_signed),
                libc::IFLA_PROMISCUITY => link.promiscuity = number32?,
                libc::IFLA_NUM_TX_QUEUES => link.num_tx_queues = number32?,
                libc::IFLA_NUM_RX_QUEUES => link.num_rx_queues = number32?,
                libc::IFLA_OPERSTATE => {
                    link.operational = value.first() == Some(&(libc::IF_OPER_UP as u8));
                }
                libc::IFLA_LINKINFO => {
                    link.kind =
                        attribute(value, libc::IFLA_INFO_KIND).map(attr_str).unwrap_or_default();
                    let data = attribute(value, libc::IFLA_INFO_DATA);
                    link.vlan = data.filter(|_| link.kind == "vlan").and_then(Vlan::parse);
                    let tun = data.filter(|_| link.kind == "tun");
                    let queues = tun.and_then(|data| attribute(data, IFLA_TUN_NUM_QUEUES));
                    // A device of one queue has no count of them. It has a carrier while a program has it.
                    link.tun_queues = queues.and_then(attr_u32).unwrap_or(0);
                }
                libc::IFLA_AF_SPEC => {
                    let settings = attribute(value, libc::AF_INET6 as u16)
                        .and_then(|own| attribute(own, IFLA_INET6_CONF));
                    let is_disabled = |settings| bytes_at(settings, DEVCONF_DISABLE_IPV6 * 4);
                    link.ipv6 = settings.and_then(is_disabled) == Some([0; 4]);
                }
                libc::IFLA_XDP => {
                    let mode = attribute(value, IFLA_XDP_ATTACHED).and_then(<[u8]>::first);
                    if mode.is_some_and(|mode| *mode != 0) {
                        link.xdp =
                            attribute(value, IFLA_XDP_PROG_ID).and_then(attr_u32).or(Some(0));
                    }
                }
                libc::IFLA_STATS64 => link.statistics = Statistics::parse(value),
                _ => {}
            }
        }
        Some(link)
    }
}

impl Statistics {
    fn parse(value: &[u8]) -> Self {
        let counter = |place: usize| bytes_at(value, place * 8).map_or(0, u64::from_ne_bytes);
        Self {
            rx_packets: counter(0),
            tx_packets: counter(1),
            rx_bytes: counter(2),
            tx_bytes: counter(3),
            rx_dropped: counter(6),
            tx_dropped: counter(7),
            rx_over_errors: counter(11),
            rx_fifo_errors: counter(14),
            rx_missed_errors: counter(15),
        }
    }
}

/// What [`Connection::set_link`] changes; `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Sets it up or down.
    pub up: Option<bool>,
    /// Receives frames for other addresses too.
    pub promisc: Option<bool>,
    /// Its Ethernet address.
    pub address: Option<ethernet::Address>,
    /// The largest network-layer packet in bytes.
    pub mtu: Option<u32>,
    /// The longest super-packet that the stack builds for it, in bytes.
    pub gso_max_size: Option<u32>,
    /// Maximum segments of a super-packet.
    pub gso_max_segs: Option<u32>,
}

/// One end of a veth pair to create.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its Ethernet address; with `None` the kernel chooses a random one.
    pub address: Option<ethernet::Address>,
    /// The largest network-layer packet in bytes.
    pub mtu: u32,
    /// Receive and transmit queues.
    pub queues: u32,
}

impl VethEnd<'_> {
    fn put(&self, body: &mut Vec<u8>) {
        body.extend([0; HEADER]);
        put_attr_str(body, libc::IFLA_IFNAME, self.name);
        put_attr(body, libc::IFLA_MTU, &self.mtu.to_ne_bytes());
        put_attr(body, libc::IFLA_NUM_TX_QUEUES, &self.queues.to_ne_bytes());
        put_attr(body, libc::IFLA_NUM_RX_QUEUES, &self.queues.to_ne_bytes());
        if let Some(address) = self.address {
            put_attr(body, libc::IFLA_ADDRESS, &address.0);
        }
    }
}

/// All interfaces of the namespace of the calling thread, in the kernel's order.
pub fn all() -> Result<Vec<Link>> {
    Connection::open()?.links()
}

/// The interface of this name.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::System`].
pub fn by_name(name: &str) -> Result<Link> {
    Connection::open()?.link_by_name(name)
}

/// The interface with this index; `None` when it is not in the namespace.
pub fn by_index(index: u32) -> Result<Option<Link>> {
    Connection::open()?.link_by_index(index)
}

/// The NUMA node that the device behind an interface is attached to; `None` for a virtual interface, for a
/// machine with one node, and if the firmware does not report it. The source is sysfs, which shows the
/// interfaces of the network namespace that it was mounted in.
pub fn numa_node(name: &str) -> Option<u32> {
    let path = std::path::Path::new("/sys/class/net").join(name).join("device/numa_node");
    // The kernel writes -1 for "unknown", which does not parse.
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether the kernel could have an interface of this name.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() < libc::IF_NAMESIZE && !name.contains('\0')
}

impl Connection {
    /// All interfaces, in the kernel's order.
    pub fn links(&self) -> Result<Vec<Link>> {
        self.list(libc::RTM_GETLINK, &[0; HEADER], Link::parse)
            .context(|| "list the interfaces".to_owned())
    }

    /// The interface of this name.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::System`].
    pub fn link_by_name(&self, name: &str) -> Result<Link> {
        if is_name(name) {
            let mut body = vec![0; HEADER];
            put_attr_str(&mut body, libc::IFLA_IFNAME, name);
            match self.get(libc::RTM_GETLINK, &body, Link::parse) {
                Err(error) if is_missing(&error) => {}
                other => return other.context(|| format!("ask about interface {name}")),
            }
        }
        // One that is no UTF-8 is found among all.
        let escaped = if name.contains('\\') { self.links()? } else { Vec::new() };
        let found = escaped.into_iter().find(|link| link.name == name);
        found.ok_or_else(|| {
            // Without them the message names the command that lists them.
            let known = self.links().unwrap_or_default().into_iter().map(|link| link.name);
            Error::NoInterface(NoInterface { name: name.to_owned(), known: known.collect() })
        })
    }

    /// The interface with this index; `None` when it is not in the namespace.
    pub fn link_by_index(&self, index: u32) -> Result<Option<Link>> {
        match self.get(libc::RTM_GETLINK, &by_index_body(index), Link::parse) {
            Err(error) if is_missing(&error) => Ok(None),
            other => other.map(Some).context(|| format!("ask about interface {index}")),
        }
    }

    /// Changes settings of an interface.
    ///
    /// # Errors
    /// [`Error::System`] if the driver refuses it; [`Error::Privilege`].
    pub fn set_link(&self, index: u32, options: &Options) -> Result<()> {
        let mut body = by_index_body(index);
        let mut flags = [0u32; 2];
        for (flag, on) in [(libc::IFF_UP, options.up), (libc::IFF_PROMISC, options.promisc)] {
            let Some(on) = on else { continue };
            flags[0] |= if on { flag as u32 } else { 0 };
            flags[1] |= flag as u32;
        }
        body[8..12].copy_from_slice(&flags[0].to_ne_bytes());
        body[12..16].copy_from_slice(&flags[1].to_ne_bytes());
        if let Some(address) = options.address {
            put_attr(&mut body, libc::IFLA_ADDRESS, &address.0);
        }
        for (kind, value) in [
            (libc::IFLA_MTU, options.mtu),
            (libc::IFLA_GSO_MAX_SIZE, options.gso_max_size),
            (libc::IFLA_GSO_MAX_SEGS, options.gso_max_segs),
        ] {
            if let Some(value) = value {
                put_attr(&mut body, kind, &value.to_ne_bytes());
            }
        }
        self.change(libc::RTM_SETLINK, 0, &body)
            .context(|| format!("change settings of interface {index}"))
    }

    /// Creates a veth pair: one end here, the other in the namespace of `peer_netns`. Both are down.
    ///
    /// # Errors
    /// [`Error::System`] where a name is taken, [`Error::Privilege`].
    pub fn add_veth(
        &self,
        end: &VethEnd<'_>,
        peer: &VethEnd<'_>,
        peer_netns: BorrowedFd<'_>,
    ) -> Result<()> {
        let mut body = Vec::new();
        end.put(&mut body);
        put_nested(&mut body, libc::IFLA_LINKINFO, |info| {
            put_attr_str(info, libc::IFLA_INFO_KIND, "veth");
            put_nested(info, libc::IFLA_INFO_DATA, |data| {
                put_nested(data, VETH_INFO_PEER, |other| {
                    peer.put(other);
                    put_attr(other, libc::IFLA_NET_NS_FD, &peer_netns.as_raw_fd().to_ne_bytes());
                });
            });
        });
        self.change(libc::RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &body)
            .context(|| format!("create the veth pair {} and {}", end.name, peer.name))
    }

    /// Removes an interface.
    ///
    /// # Errors
    /// [`Error::System`] where it is gone already, [`Error::Privilege`].
    pub fn delete_link(&self, index: u32) -> Result<()> {
        self.change(libc::RTM_DELLINK, 0, &by_index_body(index))
            .context(|| format!("delete interface {index}"))
    }
}

/// `struct ifinfomsg` with an index.
fn by_index_body(index: u32) -> Vec<u8> {
    let mut body = vec![0; HEADER];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body
}

fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}

#[cfg(test)]
mod tests;
