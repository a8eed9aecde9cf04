//! What a capture asks about interfaces: link types, counters, and an error that lists them.

use linerate_net::link::{self, Link, Statistics};
use linerate_net::{Connection, NoInterface};

use crate::filter::ETHERNET;
use crate::link_type::DOCSIS;
use crate::{Error, Result};

/// Link type of bare IP packets (LINKTYPE_RAW).
pub(crate) const RAW: u16 = 101;

/// The kernel's numbers of link layers (`linux/if_arp.h`).
pub(crate) const ARPHRD_ETHER: u16 = 1;
pub(crate) const ARPHRD_LOOPBACK: u16 = 772;
pub(crate) const ARPHRD_NONE: u16 = 0xfffe;
pub(crate) const ARPHRD_RAWIP: u16 = 519;

/// The name that stands for all interfaces, as in tcpdump.
pub const ANY: &str = "any";

/// What stands for all interfaces, with Ethernet frames.
pub(crate) fn any() -> Link {
    Link { name: ANY.to_owned(), hardware_type: ARPHRD_ETHER, ..Link::default() }
}

/// The interface of this name.
///
/// # Errors
///
/// [`Error::NoInterface`], which lists those that exist, and [`Error::Net`].
pub fn by_name(name: &str) -> Result<Link> {
    find(&link::all()?, name).cloned()
}

/// The one of this name.
///
/// # Errors
///
/// [`Error::NoInterface`].
pub(crate) fn find<'a>(all: &'a [Link], name: &str) -> Result<&'a Link> {
    let missing = || {
        let known = all.iter().map(|link| link.name.clone()).collect();
        Error::NoInterface(NoInterface { name: name.to_owned(), known })
    };
    all.iter().find(|link| link.name == name).ok_or_else(missing)
}

/// The XDP program that it has, which [`SourceKind::Trace`](crate::source::SourceKind::Trace) traces.
pub fn xdp_program(link: &Link) -> Option<linerate_bpf::xdp::AttachedProgram> {
    linerate_bpf::xdp::attached(&link.name).ok().flatten()
}

/// The link type of its frames in the LINKTYPE registry: 1 for Ethernet, 101 for bare IP packets, as of TUN devices.
///
/// # Errors
///
/// [`Error::LinkLayer`] for any other.
pub fn linktype(link: &Link) -> Result<u16> {
    match link.hardware_type {
        ARPHRD_ETHER | ARPHRD_LOOPBACK => Ok(ETHERNET),
        ARPHRD_NONE | ARPHRD_RAWIP => Ok(RAW),
        number => Err(Error::LinkLayer { interface: link.name.clone(), number }),
    }
}

/// All link types that its frames can have, that of [`linktype`] first. As libpcap, which leaves it to the user whether
/// Ethernet frames carry DOCSIS.
///
/// # Errors
///
/// [`Error::LinkLayer`].
pub fn linktypes(link: &Link) -> Result<&'static [u16]> {
    Ok(match linktype(link)? {
        ETHERNET if link.hardware_type == ARPHRD_ETHER => &[ETHERNET, DOCSIS],
        ETHERNET => &[ETHERNET],
        _ => &[RAW],
    })
}

/// Receive queues in use; 1 if the driver does not report them.
///
/// # Errors
///
/// [`Error::Net`], as when the interface has gone.
pub(crate) fn rx_queues(link: &Link) -> Result<u32> {
    Ok(linerate_net::Interface::open(&link.name)?.rx_queues()?)
}

/// The counters of one interface now; `None` once it is gone.
pub(crate) fn statistics(index: u32) -> Option<Statistics> {
    statistics_by(&Connection::open().ok()?, index)
}

/// The same, of the namespace of this connection.
pub(crate) fn statistics_by(connection: &Connection, index: u32) -> Option<Statistics> {
    Some(connection.link_by_index(index).ok()??.statistics)
}

/// Packets lost before the driver saw them: missed, overrun. As libpcap without `rx_dropped`, where the stack counts
/// packets that a capture has seen and nobody else wants, and some drivers what an XDP program took.
pub(crate) fn missed(statistics: &Statistics) -> u64 {
    // Drivers use the last two for the same packets, and some count them in both.
    statistics.rx_missed_errors + statistics.rx_fifo_errors.max(statistics.rx_over_errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_some_interfaces_and_counts_the_rest() {
        let named = |number| Link { name: format!("x{number}"), ..Link::default() };
        let all: Vec<_> = (1..=23).map(named).collect();
        let said = find(&all, "y").expect_err("no such name").to_string();
        assert!(said.contains("named y; there are x1, x2,"), "{said}");
        assert!(said.ends_with("x7, x8 and 15 others"), "{said}");
        let said = find(&all[..8], "y").expect_err("no such name").to_string();
        assert!(said.ends_with("x7, x8"), "{said}");
        assert_eq!(find(&all, "x22").expect("it is there").name, "x22");
    }
}
