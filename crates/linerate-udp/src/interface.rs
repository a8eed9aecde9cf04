//! Properties of network interfaces for receivers and senders.

use std::net::IpAddr;

use linerate_net::link::{self, Link};
use linerate_net::{Connection, Interface, addresses};
use linerate_wire::ethernet;

use crate::Result;

/// The index of an interface.
pub(crate) fn index(name: &str) -> Result<u32> {
    Ok(Interface::open(name)?.index())
}

/// The interface that has `address`.
pub(crate) fn of_address(address: IpAddr) -> Option<String> {
    let found = addresses().ok()?.into_iter().find(|found| found.address == address)?;
    Some(link::by_index(found.index).ok()??.name)
}

/// The addresses that the stack accepts as local on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) mac: Option<ethernet::Address>,
    pub(crate) mtu: u32,
    /// Addresses that it delivers to this host, those of the interface first.
    pub(crate) addresses: Vec<IpAddr>,
    /// IPv4 addresses of the namespace. The kernel rejects them as source addresses from outside (`fib_validate_source`
    /// in `net/ipv4/fib_frontend.c`).
    pub(crate) own_sources: Vec<IpAddr>,
}

/// The addresses that the stack delivers to this host for packets from the interface `index`; `None` if the interface
/// is not in the namespace.
pub(crate) fn local(connection: &Connection, index: u32) -> Result<Option<Local>> {
    let links = connection.links()?;
    let find = |index: u32| links.iter().find(|link| link.index == index);
    let Some(own) = find(index) else { return Ok(None) };
    // The routing domain: that of a VRF, or the namespace's.
    let domain = |link: &Link| {
        let master = link.master.and_then(find).filter(|master| master.kind == "vrf");
        master.map(|master| master.index).or((link.kind == "vrf").then_some(link.index))
    };
    let mut all = connection.addresses()?;
    let own_sources = all.iter().map(|found| found.address).filter(IpAddr::is_ipv4).collect();
    all.retain(|found| match found.address {
        _ if found.index == index => true,
        // Weak host model: the local table has the addresses of all interfaces. But 127.0.0.0/8 and ::1 cannot come
        // from outside, and link-local addresses are those of one link.
        ip if ip.is_loopback() => false,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => false,
        _ => find(found.index).is_some_and(|link| domain(link) == domain(own)),
    });
    all.sort_by_key(|found| found.index != index);
    let addresses = all.into_iter().map(|found| found.address).collect();
    Ok(Some(Local { mac: own.address, mtu: own.mtu, addresses, own_sources }))
}
