//! Interfaces as a capture sees them, and what they received and lost.

use std::net::IpAddr;

use linerate_net::Connection;
use linerate_net::link::{Link, Statistics};

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
    /// Its counters.
    pub counters: Counters,
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
    /// All interfaces, in the kernel's order.
    ///
    /// # Errors
    ///
    /// [`Error::Net`].
    pub fn all() -> Result<Vec<Self>> {
        let connection = Connection::open()?;
        let mut interfaces: Vec<Self> = connection.links()?.iter().map(describe).collect();
        for found in connection.addresses()? {
            if let Some(one) = interfaces.iter_mut().find(|one| one.index == found.index) {
                one.addresses.push(found.address);
            }
        }
        Ok(interfaces)
    }

    /// What stands for all interfaces, with Ethernet frames.
    pub(crate) fn any() -> Self {
        Self { name: ANY.to_owned(), up: true, link_layer: ARPHRD_ETHER, ..Self::default() }
    }

    /// The interface of this name.
    ///
    /// # Errors
    ///
    /// [`Error::NoInterface`], which lists those that exist, and [`Error::Net`].
    pub fn by_name(name: &str) -> Result<Self> {
        Self::find(&Self::all()?, name).cloned()
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
    Interface {
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
    }
}

fn summed(statistics: &Statistics) -> Counters {
    Counters {
        received: statistics.rx_packets,
        // Drivers use the last two for the same packets, and some count them in both.
        missed: statistics.rx_missed_errors
            + statistics.rx_fifo_errors.max(statistics.rx_over_errors),
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
