//! What the kernel says about interfaces: who uses them, and what they received and lost.

mod hidden;
mod routes;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::ControlFlow::{self, Break, Continue};

use linerate_ring::packet::Listener;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Stats64,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::{Error, Result};

/// The kernel's numbers of link layers (`ARPHRD_`, `linux/if_arp.h`).
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
const ARPHRD_NONE: u16 = 0xfffe;
const ARPHRD_RAWIP: u16 = 519;

/// One interface of this network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// It is administratively up.
    pub up: bool,
    /// It has a carrier.
    pub running: bool,
    /// It is the loopback interface.
    pub loopback: bool,
    /// Largest packet, in bytes, without the link-layer header.
    pub mtu: u32,
    /// What kind of virtual device it is, such as `veth`; `None` for hardware.
    pub kind: Option<String>,
    /// The kernel's `ARPHRD_` number of its link layer.
    pub link_layer: u16,
    /// Its addresses, IPv6 link-local ones included.
    pub addresses: Vec<IpAddr>,
    /// What else uses it.
    pub uses: Vec<Use>,
    /// Its counters.
    pub counters: Counters,
}

/// Something that needs an interface's traffic, and would be cut off without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Use {
    /// The loopback interface carries what local programs say to each other.
    Loopback,
    /// It has an address other than an IPv6 link-local one.
    Address(IpAddr),
    /// It is a port of a bridge, a bond or another device of this name.
    Port(String),
    /// A device on top of it, such as a VLAN.
    Under(String),
    /// Routes lead through it; true if the default route is among them.
    Routes {
        /// The default route is one of them.
        default: bool,
    },
    /// Something made it receive what is addressed to others, as a macvlan without a hardware address of
    /// its own does.
    Promiscuous,
    /// It was told to receive for this hardware address, as by a macvlan, also of another namespace.
    OtherAddress([u8; 6]),
    /// A queue discipline or program at the entrance of the stack (clsact, tcx) judges what it receives.
    Ingress,
    /// A packet socket of another process hears it; who, as far as that can be told.
    PacketSocket(String),
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("it is the loopback interface"),
            Self::Address(address) => write!(f, "it has the address {address}"),
            Self::Port(above) => write!(f, "it is a port of {above}"),
            Self::Under(above) => write!(f, "{above} is on top of it"),
            Self::Routes { default: true } => f.write_str("the default route leads through it"),
            Self::Routes { default: false } => f.write_str("routes lead through it"),
            Self::Promiscuous => f.write_str("something made it promiscuous"),
            Self::OtherAddress([a, b, c, d, e, g]) => write!(
                f,
                "it receives for {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}, perhaps a macvlan in \
                 another namespace"
            ),
            Self::Ingress => f.write_str("tc or tcx filters what it receives"),
            Self::PacketSocket(who) => write!(f, "{who} has a packet socket on it"),
        }
    }
}

/// What an interface counted since it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets received.
    pub received: u64,
    /// Packets lost before the driver saw them: missed, overrun.
    pub missed: u64,
    /// `rx_dropped`: packets that the driver or the stack dropped. Several drivers (tun, virtio_net,
    /// veth) count here what an XDP program took or could not hand on.
    pub dropped: u64,
}

impl Interface {
    /// All interfaces, in the kernel's order, without those uses that have to be asked for interface
    /// by interface: [`Interface::with_all_uses`] adds them.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`].
    pub fn all() -> Result<Vec<Self>> {
        let mut interfaces = Self::all_but_listeners()?;
        note_listeners(&mut interfaces);
        Ok(interfaces)
    }

    /// As [`Interface::all`] without [`Use::PacketSocket`], for which every process has to be looked at.
    pub(crate) fn all_but_listeners() -> Result<Vec<Self>> {
        let links = dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        let addresses = dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        let mut interfaces: Vec<Self> = links
            .iter()
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewLink(link) => Some(describe(link)),
                _ => None,
            })
            .collect();
        for message in &links {
            if let RouteNetlinkMessage::NewLink(link) = message {
                note_relations(link, &mut interfaces);
            }
        }
        for message in &addresses {
            if let RouteNetlinkMessage::NewAddress(address) = message {
                note_address(address, &mut interfaces);
            }
        }
        Ok(interfaces)
    }

    /// The interface of this name, with all its uses.
    ///
    /// # Errors
    ///
    /// [`Error::NoInterface`], which lists those that exist, and [`Error::Netlink`].
    pub fn named(name: &str) -> Result<Self> {
        Self::find(&Self::all()?, name)?.clone().with_all_uses()
    }

    /// The one of this name.
    ///
    /// # Errors
    ///
    /// [`Error::NoInterface`].
    pub(crate) fn find<'a>(all: &'a [Self], name: &str) -> Result<&'a Self> {
        let missing = || Error::NoInterface { name: name.to_owned(), names: listed(all) };
        all.iter().find(|interface| interface.name == name).ok_or_else(missing)
    }

    /// The same with [`Use::Routes`], [`Use::OtherAddress`] and [`Use::Ingress`], where it has them.
    ///
    /// # Errors
    ///
    /// [`Error::Netlink`].
    pub fn with_all_uses(mut self) -> Result<Self> {
        let routes = routes::through(self.index).map_err(|source| Error::Netlink { source })?;
        self.uses.extend(routes.map(|default| Use::Routes { default }));
        self.uses.extend(hidden::uses(self.index));
        if self.uses.len() > 1 {
            // A bridge, a capture or a macvlan is why.
            self.uses.retain(|one| *one != Use::Promiscuous);
        }
        Ok(self)
    }

    /// The link type of its frames in the LINKTYPE registry: 1 for Ethernet, 101 for bare IP
    /// packets, as of TUN devices.
    ///
    /// # Errors
    ///
    /// [`Error::LinkLayer`] for any other.
    pub fn linktype(&self) -> Result<u16> {
        match self.link_layer {
            ARPHRD_ETHER | ARPHRD_LOOPBACK => Ok(1),
            ARPHRD_NONE | ARPHRD_RAWIP => Ok(101),
            number => Err(Error::LinkLayer { interface: self.name.clone(), number }),
        }
    }
}

/// Names that an error message lists.
const LISTED: usize = 20;

/// The names of `all`, or of so many that a message stays readable.
fn listed(all: &[Interface]) -> String {
    let names: Vec<_> = all.iter().take(LISTED).map(|interface| interface.name.as_str()).collect();
    match all.len().saturating_sub(LISTED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// The counters of one interface now; `None` once it is gone.
pub(crate) fn counters(index: u32) -> Option<Counters> {
    let mut request = LinkMessage::default();
    request.header.index = index;
    let answers = exchange(RouteNetlinkMessage::GetLink(request), NLM_F_REQUEST).ok()?;
    answers.iter().find_map(|message| match message {
        RouteNetlinkMessage::NewLink(link) => Some(describe(link).counters),
        _ => None,
    })
}

fn describe(link: &LinkMessage) -> Interface {
    let mut interface = Interface {
        index: link.header.index,
        up: link.header.flags.contains(LinkFlags::Up),
        running: link.header.flags.contains(LinkFlags::Running),
        loopback: link.header.flags.contains(LinkFlags::Loopback),
        link_layer: u16::from(link.header.link_layer_type),
        ..Interface::default()
    };
    if interface.loopback {
        interface.uses.push(Use::Loopback);
    }
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            LinkAttribute::Stats64(counters) => interface.counters = summed(counters),
            _ => {}
        }
    }
    interface.kind = kind(link).map(ToString::to_string);
    // The flag is what an administrator set, and counts once.
    let asked = u32::from(link.header.flags.contains(LinkFlags::Promisc));
    let promiscuity = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Promiscuity(count) => Some(*count),
        _ => None,
    });
    if promiscuity.unwrap_or_default() > asked {
        interface.uses.push(Use::Promiscuous);
    }
    interface
}

fn summed(counters: &Stats64) -> Counters {
    Counters {
        received: counters.rx_packets,
        // Drivers use the last two for the same thing, and some set both.
        missed: counters.rx_missed_errors + counters.rx_fifo_errors.max(counters.rx_over_errors),
        dropped: counters.rx_dropped,
    }
}

fn kind(link: &LinkMessage) -> Option<&InfoKind> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.iter().find_map(|info| match info {
            LinkInfo::Kind(kind) => Some(kind),
            _ => None,
        }),
        _ => None,
    })
}

/// Bridges and bonds above `link`, and devices that it stands on.
fn note_relations(link: &LinkMessage, interfaces: &mut [Interface]) {
    let own = link.header.index;
    let name_of = |index: u32, interfaces: &[Interface]| {
        let found = interfaces.iter().find(|interface| interface.index == index);
        found.map_or_else(|| format!("device {index}"), |found| found.name.clone())
    };
    let elsewhere = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::LinkNetNsId(_));
    // The two ends of a veth pair name each other; neither is on top.
    let stands_on =
        !matches!(kind(link), Some(InfoKind::Veth)) && !link.attributes.iter().any(elsewhere);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Controller(above) if *above != 0 => {
                let name = name_of(*above, interfaces);
                note(interfaces, own, Use::Port(name));
            }
            LinkAttribute::Link(below) if stands_on && *below != 0 && *below != own => {
                let name = name_of(own, interfaces);
                note(interfaces, *below, Use::Under(name));
            }
            _ => {}
        }
    }
}

/// Packet sockets of other processes: captures, DHCP clients, LLDP daemons.
fn note_listeners(interfaces: &mut [Interface]) {
    // Without /proc nothing can be said about others.
    let listeners = Listener::all().unwrap_or_default();
    for (listener, holders) in listeners.iter().zip(Listener::holders(&listeners)) {
        if holders.iter().any(|holder| holder.id == std::process::id()) {
            continue;
        }
        let who = match holders.as_slice() {
            [] => "another program".to_owned(),
            some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        for interface in interfaces.iter_mut().filter(|one| listener.hears(one.index)) {
            let new = Use::PacketSocket(who.clone());
            if !interface.uses.contains(&new) {
                interface.uses.push(new);
            }
        }
    }
}

fn note_address(message: &AddressMessage, interfaces: &mut [Interface]) {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let remote = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    let Some(address) = local.or(remote) else { return };
    let index = message.header.index;
    if let Some(interface) = interfaces.iter_mut().find(|interface| interface.index == index) {
        interface.addresses.push(address);
        // Every interface that is up has a link-local IPv6 address of its own making: it says
        // nothing about use.
        if !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            interface.uses.push(Use::Address(address));
        }
    }
}

fn note(interfaces: &mut [Interface], index: u32, new: Use) {
    if let Some(interface) = interfaces.iter_mut().find(|interface| interface.index == index)
        && !interface.uses.contains(&new)
    {
        interface.uses.push(new);
    }
}

fn dump(request: RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>> {
    exchange(request, NLM_F_REQUEST | NLM_F_DUMP).map_err(|source| Error::Netlink { source })
}

/// Sends one request and collects the answers.
fn exchange(request: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
    let mut answers = Vec::new();
    ask(request, flags, |answer| {
        answers.push(answer);
        if flags & NLM_F_DUMP == 0 { Break(()) } else { Continue(()) }
    })?;
    Ok(answers)
}

/// Sends one request and hands over the answers, until they end or `take` wants no more.
fn ask(
    request: RouteNetlinkMessage,
    flags: u16,
    mut take: impl FnMut(RouteNetlinkMessage) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // The kernel filters a dump by what the request says only when it is told to look (Linux 4.20).
    let _ = socket.set_netlink_get_strict_chk(true);
    let mut request = NetlinkMessage::from(request);
    request.header.flags = flags;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            let length = message.header.length as usize;
            rest = rest.get(length.next_multiple_of(4).max(4)..).unwrap_or_default();
            match message.payload {
                NetlinkPayload::InnerMessage(answer) => match take(answer) {
                    Break(()) => return Ok(()),
                    Continue(()) => {}
                },
                NetlinkPayload::Done(done) if done.code < 0 => {
                    return Err(io::Error::from_raw_os_error(-done.code));
                }
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_some_interfaces_and_counts_the_rest() {
        let named = |number| Interface { name: format!("x{number}"), ..Interface::default() };
        let all: Vec<_> = (1..=23).map(named).collect();
        let said = Interface::find(&all, "y").expect_err("no such name").to_string();
        assert!(said.contains("named y; there are x1, x2,"), "{said}");
        assert!(said.ends_with("x19, x20 and 3 more"), "{said}");
        let said = Interface::find(&all[..20], "y").expect_err("no such name").to_string();
        assert!(said.ends_with("x19, x20"), "{said}");
        assert_eq!(Interface::find(&all, "x22").expect("it is there").name, "x22");
    }
}
