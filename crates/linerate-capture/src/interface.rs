//! Interfaces as a capture sees them: their users, and what they received and lost.

mod hidden;

use std::fmt;
use std::net::IpAddr;

use linerate_net::link::{Link, Statistics};
use linerate_net::route::{self, ConfiguredRoutes};
use linerate_net::{Connection, packet_socket};

use crate::filter::ETHERNET;
use crate::link_type::DOCSIS;
use crate::{Error, Result};

/// The kernel's numbers of link layers (`ARPHRD_`, `linux/if_arp.h`).
/// Link type of bare IP packets (LINKTYPE_RAW).
const RAW: u16 = 101;

const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
const ARPHRD_NONE: u16 = 0xfffe;
const ARPHRD_RAWIP: u16 = 519;

/// The name that stands for all interfaces, as in tcpdump.
pub const ANY: &str = "any";

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
    pub users: Vec<InterfaceUser>,
    /// Its counters.
    pub counters: Counters,
}

/// A user of an interface that would lose its traffic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceUser {
    /// The loopback interface carries the traffic between local programs.
    Loopback,
    /// It has an address other than an IPv6 link-local one.
    Address(IpAddr),
    /// It is a port of a bridge, a bond or another device of this name.
    Port(String),
    /// An upper device of this name, such as a VLAN.
    UpperDevice(String),
    /// Routes lead through it; true if the default route is among them.
    Routes {
        /// The default route is one of them.
        default: bool,
    },
    /// It is promiscuous, as by a macvlan that has no hardware address of its own.
    Promiscuous,
    /// It was told to receive for this hardware address, as by a macvlan, also of another namespace.
    OtherAddress([u8; 6]),
    /// A queueing discipline or program at the ingress of the stack (clsact, tcx) filters what it receives.
    Ingress,
    /// A packet socket of another process receives from it; the process, where known.
    PacketSocket(String),
}

impl Interface {
    /// Receive queues in use; 1 if the driver does not report them.
    ///
    /// # Errors
    ///
    /// [`Error::Net`], as when the interface has gone.
    pub(crate) fn rx_queues(&self) -> Result<u32> {
        Ok(linerate_net::Interface::open(&self.name)?.rx_queues()?)
    }
}

impl fmt::Display for InterfaceUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback => f.write_str("it is the loopback interface"),
            Self::Address(address) => write!(f, "it has the address {address}"),
            Self::Port(above) => write!(f, "it is a port of {above}"),
            Self::UpperDevice(upper) => write!(f, "{upper} is on top of it"),
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

/// Counters of an interface since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets received.
    pub received: u64,
    /// Packets lost before the driver saw them: missed, overrun. As libpcap without `rx_dropped`, where the stack counts
    /// packets that a capture has seen and nobody else wants, and some drivers what an XDP program took.
    pub missed: u64,
}

impl Interface {
    /// All interfaces, in the kernel's order, without the users that take a query for each interface: [`Interface::with_users`] adds them.
    ///
    /// # Errors
    ///
    /// [`Error::Net`].
    pub fn all() -> Result<Vec<Self>> {
        let mut interfaces = Self::all_without_socket_search()?;
        add_packet_sockets(&mut interfaces);
        Ok(interfaces)
    }

    /// As [`Interface::all`] without [`InterfaceUser::PacketSocket`], which takes a search of all processes.
    pub(crate) fn all_without_socket_search() -> Result<Vec<Self>> {
        let connection = Connection::open()?;
        let links = connection.links()?;
        let mut interfaces: Vec<Self> = links.iter().map(describe).collect();
        for link in &links {
            note_relations(link, &mut interfaces);
        }
        for address in connection.addresses()? {
            note_address(address, &mut interfaces);
        }
        Ok(interfaces)
    }

    /// What stands for all interfaces, with Ethernet frames.
    pub(crate) fn any() -> Self {
        Self { name: ANY.to_owned(), up: true, link_layer: ARPHRD_ETHER, ..Self::default() }
    }

    /// The interface of this name, with all its users.
    ///
    /// # Errors
    ///
    /// [`Error::NoInterface`], which lists those that exist, and [`Error::Net`].
    pub fn by_name(name: &str) -> Result<Self> {
        Self::find(&Self::all()?, name)?.clone().with_users()
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

    /// The same with [`InterfaceUser::Routes`], [`InterfaceUser::OtherAddress`] and [`InterfaceUser::Ingress`], where it has them.
    ///
    /// # Errors
    ///
    /// [`Error::Net`].
    pub fn with_users(mut self) -> Result<Self> {
        match route::through(self.index)? {
            ConfiguredRoutes::None => {}
            ConfiguredRoutes::Some => self.users.push(InterfaceUser::Routes { default: false }),
            ConfiguredRoutes::Default => self.users.push(InterfaceUser::Routes { default: true }),
        }
        self.users.extend(hidden::users(self.index));
        if self.users.len() > 1 {
            // A bridge, a capture or a macvlan is why.
            self.users.retain(|one| *one != InterfaceUser::Promiscuous);
        }
        Ok(self)
    }

    /// The XDP program that it has, which [`SourceKind::Trace`](crate::source::SourceKind::Trace) traces.
    pub fn xdp_program(&self) -> Option<linerate_bpf::xdp::AttachedProgram> {
        linerate_bpf::xdp::attached(&self.name).ok().flatten()
    }

    /// The link type of its frames in the LINKTYPE registry: 1 for Ethernet, 101 for bare IP
    /// packets, as of TUN devices.
    ///
    /// # Errors
    ///
    /// [`Error::LinkLayer`] for any other.
    pub fn linktype(&self) -> Result<u16> {
        match self.link_layer {
            ARPHRD_ETHER | ARPHRD_LOOPBACK => Ok(ETHERNET),
            ARPHRD_NONE | ARPHRD_RAWIP => Ok(RAW),
            number => Err(Error::LinkLayer { interface: self.name.clone(), number }),
        }
    }

    /// All link types that its frames can have, that of [`Interface::linktype`] first. As libpcap, which leaves it to
    /// the user whether Ethernet frames carry DOCSIS.
    ///
    /// # Errors
    ///
    /// [`Error::LinkLayer`].
    pub fn linktypes(&self) -> Result<&'static [u16]> {
        Ok(match self.linktype()? {
            ETHERNET if self.link_layer == ARPHRD_ETHER => &[ETHERNET, DOCSIS],
            ETHERNET => &[ETHERNET],
            _ => &[RAW],
        })
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
    counters_by(&Connection::open().ok()?, index)
}

/// The same, of the namespace of this connection.
pub(crate) fn counters_by(connection: &Connection, index: u32) -> Option<Counters> {
    let link = connection.link_by_index(index).ok()??;
    Some(summed(&link.statistics))
}

fn describe(link: &Link) -> Interface {
    let mut interface = Interface {
        name: link.name.clone(),
        index: link.index,
        up: link.is_up(),
        running: link.is_running(),
        loopback: link.is_loopback(),
        mtu: link.mtu,
        kind: (!link.kind.is_empty()).then(|| link.kind.clone()),
        link_layer: link.hardware_type,
        counters: summed(&link.statistics),
        ..Interface::default()
    };
    if interface.loopback {
        interface.users.push(InterfaceUser::Loopback);
    }
    // `ip link set promisc on` counts once and is not a user.
    if link.promiscuity > u32::from(link.is_promisc()) {
        interface.users.push(InterfaceUser::Promiscuous);
    }
    interface
}

fn summed(statistics: &Statistics) -> Counters {
    Counters {
        received: statistics.rx_packets,
        // Drivers use the last two for the same packets, and some count them in both.
        missed: statistics.rx_missed_errors
            + statistics.rx_fifo_errors.max(statistics.rx_over_errors),
    }
}

/// Bridges and bonds above `link`, and its other upper devices.
fn note_relations(link: &Link, interfaces: &mut [Interface]) {
    if let Some(master) = link.master {
        let found = interfaces.iter().find(|interface| interface.index == master);
        let name = found.map_or_else(|| format!("device {master}"), |found| found.name.clone());
        note(interfaces, link.index, InterfaceUser::Port(name));
    }
    if let Some(lower) = link.lower() {
        note(interfaces, lower, InterfaceUser::UpperDevice(link.name.clone()));
    }
}

/// Packet sockets of other processes: captures, DHCP clients, LLDP daemons.
fn add_packet_sockets(interfaces: &mut [Interface]) {
    // Without /proc other processes are unknown.
    let sockets = packet_socket::all().unwrap_or_default();
    for (socket, holders) in sockets.iter().zip(packet_socket::processes_with_socket(&sockets)) {
        if holders.iter().any(|holder| holder.id == std::process::id()) {
            continue;
        }
        let who = match holders.as_slice() {
            [] => "another program".to_owned(),
            some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        };
        for interface in interfaces.iter_mut().filter(|one| socket.receives_from(one.index)) {
            let new = InterfaceUser::PacketSocket(who.clone());
            if !interface.users.contains(&new) {
                interface.users.push(new);
            }
        }
    }
}

fn note_address(found: linerate_net::Address, interfaces: &mut [Interface]) {
    let linerate_net::Address { index, address, .. } = found;
    if let Some(interface) = interfaces.iter_mut().find(|interface| interface.index == index) {
        interface.addresses.push(address);
        // Every interface that is up has an autoconfigured link-local IPv6 address. It does not mean that the
        // interface is in use.
        if !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
            interface.users.push(InterfaceUser::Address(address));
        }
    }
}

fn note(interfaces: &mut [Interface], index: u32, new: InterfaceUser) {
    if let Some(interface) = interfaces.iter_mut().find(|interface| interface.index == index)
        && !interface.users.contains(&new)
    {
        interface.users.push(new);
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
