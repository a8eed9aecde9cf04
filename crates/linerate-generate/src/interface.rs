//! [`Interface`]: what a source of traffic has to know of the interface that it sends to.

use std::io;

use linerate_wire::{ethernet, vlan};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::{Error, Result};

/// A network interface in the namespace of the thread that asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its hardware address; zero where it has none.
    pub mac: ethernet::Address,
    /// The largest network-layer packet in bytes.
    pub mtu: u32,
    /// Whether it is up.
    pub up: bool,
    /// Hardware address of the other end of a veth pair, where that is in the same namespace.
    pub peer_mac: Option<ethernet::Address>,
    /// Whether a default route goes out of it, so that flooding it would cut this host off.
    pub carries_default_route: bool,
}

impl Interface {
    /// Finds an interface by its name.
    ///
    /// # Errors
    /// [`Error::NoInterface`], which lists those that exist.
    pub fn find(name: &str) -> Result<Self> {
        let links = links().map_err(|source| Error::Kernel {
            name: name.to_owned(),
            action: "list the interfaces through netlink",
            source,
        })?;
        let Some(link) = links.iter().find(|link| link.name == name) else {
            let known = links.into_iter().map(|link| link.name).collect();
            return Err(Error::NoInterface { name: name.to_owned(), known });
        };
        let peer_mac = link
            .link
            .filter(|_| !link.link_elsewhere)
            .and_then(|peer| links.iter().find(|other| other.index == peer))
            .filter(|peer| peer.link == Some(link.index))
            .map(|peer| peer.mac);
        Ok(Self {
            name: link.name.clone(),
            index: link.index,
            mac: link.mac,
            mtu: link.mtu,
            up: link.up,
            peer_mac,
            carries_default_route: carries_default_route(name),
        })
    }

    /// Refuses an interface that is down, or that carries a default route where that is not allowed.
    pub(crate) fn check(&self, allow_default_route: bool) -> Result<()> {
        let refuse = |why: String| Err(Error::Interface { name: self.name.clone(), why });
        if !self.up {
            return refuse(format!("is down; `ip link set dev {} up` brings it up", self.name));
        }
        if self.carries_default_route && !allow_default_route {
            return refuse(
                "carries a default route: a flood would cut this host off from its network; \
                 --allow-default-route does it all the same"
                    .into(),
            );
        }
        Ok(())
    }

    /// Bytes of the longest frame, with a VLAN tag or without.
    pub(crate) fn longest_frame(&self, tagged: bool) -> usize {
        let tag = if tagged { vlan::TAG_LEN } else { 0 };
        self.mtu as usize + ethernet::HEADER_LEN + tag
    }

    /// The name that goes with an index, or the index where it is gone.
    pub(crate) fn name_of(index: u32) -> String {
        links()
            .ok()
            .and_then(|links| links.into_iter().find(|link| link.index == index))
            .map_or_else(|| format!("number {index}"), |link| link.name)
    }

    /// Frames that an interface dropped instead of sending them, since it exists; 0 where it is gone.
    pub(crate) fn transmit_dropped(index: u32) -> u64 {
        links()
            .ok()
            .and_then(|links| links.into_iter().find(|link| link.index == index))
            .map_or(0, |link| link.transmit_dropped)
    }
}

struct Link {
    name: String,
    index: u32,
    mac: ethernet::Address,
    mtu: u32,
    up: bool,
    link: Option<u32>,
    /// `link` is an index of another namespace.
    link_elsewhere: bool,
    transmit_dropped: u64,
}

fn links() -> io::Result<Vec<Link>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetLink(LinkMessage::default()));
    request.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut links = Vec::new();
    loop {
        let (answer, _) = socket.recv_from_full()?;
        let mut rest = answer.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            let len = (message.header.length as usize).next_multiple_of(4);
            match message.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                    links.push(Link::from(&link));
                }
                NetlinkPayload::Done(_) => return Ok(links),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
            rest = rest.get(len..).unwrap_or(&[]);
        }
    }
}

impl From<&LinkMessage> for Link {
    fn from(message: &LinkMessage) -> Self {
        let mut link = Self {
            name: String::new(),
            index: message.header.index,
            mac: ethernet::Address::default(),
            mtu: 0,
            up: message.header.flags.contains(LinkFlags::Up),
            link: None,
            link_elsewhere: false,
            transmit_dropped: 0,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Link(peer) => link.link = Some(*peer),
                LinkAttribute::Stats64(statistics) => {
                    link.transmit_dropped = statistics.tx_dropped;
                }
                LinkAttribute::LinkNetNsId(_) => link.link_elsewhere = true,
                LinkAttribute::Address(address) => {
                    if let Ok(address) = <[u8; 6]>::try_from(address.as_slice()) {
                        link.mac = ethernet::Address(address);
                    }
                }
                _ => {}
            }
        }
        link
    }
}

/// Whether an IPv4 or IPv6 default route leaves through the interface. `/proc/thread-self` answers for
/// the namespace of this thread, as `/proc/net` need not.
fn carries_default_route(name: &str) -> bool {
    let read = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}"));
    let v4 = read("route").is_ok_and(|table| {
        table.lines().skip(1).any(|line| {
            let mut columns = line.split_whitespace();
            let (interface, destination) = (columns.next(), columns.next());
            let mask = columns.nth(5);
            interface == Some(name) && destination == Some("00000000") && mask == Some("00000000")
        })
    });
    let zero = "00000000000000000000000000000000";
    let v6 = read("ipv6_route").is_ok_and(|table| {
        table.lines().any(|line| {
            let columns: Vec<&str> = line.split_whitespace().collect();
            columns.first() == Some(&zero)
                && columns.get(1) == Some(&"00")
                && columns.get(4).is_some_and(|gateway| *gateway != zero)
                && columns.last() == Some(&name)
        })
    });
    v4 || v6
}
