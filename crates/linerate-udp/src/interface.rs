//! Properties of network interfaces for receivers and senders.

use std::net::{IpAddr, Ipv4Addr};

use linerate_net::link::{self, Link};
use linerate_net::route::LocalRoute;
use linerate_net::{Connection, Interface, addresses};
use linerate_wire::ethernet;

use crate::Result;

/// The index of an interface.
pub(crate) fn index(name: &str) -> Result<u32> {
    Ok(Interface::open(name)?.index())
}

/// The name of the interface with this index.
pub(crate) fn name(index: u32) -> Option<String> {
    link::by_index(index).ok()?.map(|link| link.name)
}

/// The interface that has `address`.
pub(crate) fn of_address(address: IpAddr) -> Option<String> {
    let found = addresses().ok()?.into_iter().find(|found| found.address == address)?;
    name(found.index)
}

/// The addresses that the stack accepts as local on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Local {
    pub(crate) mac: Option<ethernet::Address>,
    pub(crate) mtu: u32,
    /// Addresses that it delivers to this host, those of the interface first.
    pub(crate) addresses: Vec<IpAddr>,
    /// IPv4 addresses of the namespace, prefixes that are local, and broadcast addresses, each with the bits of its
    /// prefix. The kernel rejects them as source addresses from outside (`fib_validate_source` in
    /// `net/ipv4/fib_frontend.c`; broadcast addresses only where it looks closer).
    pub(crate) own_sources: Vec<(Ipv4Addr, u8)>,
    /// IPv6 packets are received from it.
    pub(crate) ipv6: bool,
}

/// The addresses that the stack delivers to this host for packets from the interface `index`, by the kernel's local
/// routes; `None` if the interface is not in the namespace.
pub(crate) fn local(connection: &Connection, index: u32) -> Result<Option<Local>> {
    let links = connection.links()?;
    let find = |index: u32| links.iter().find(|link| link.index == index);
    let Some(own) = find(index) else { return Ok(None) };
    let vrf = |link: &Link| {
        let master = link.master.and_then(find).filter(|master| master.kind == "vrf");
        master.map(|master| master.index).or((link.kind == "vrf").then_some(link.index))
    };
    let mut all = match vrf(own) {
        None => connection.local_routes(libc::RT_TABLE_LOCAL)?,
        // A VRF has local routes in a table of its own.
        domain => {
            let mut all = connection.local_routes(libc::RT_TABLE_UNSPEC)?;
            all.retain(|one| {
                one.table != libc::RT_TABLE_LOCAL.into()
                    && find(one.interface).is_some_and(|link| vrf(link) == domain)
            });
            all
        }
    };
    all.retain(|one| match one.address {
        // 127.0.0.0/8 and ::1 cannot come from outside, and link-local addresses are those of one link.
        ip if ip.is_loopback() => false,
        IpAddr::V6(ip) if ip.is_unicast_link_local() => one.interface == index,
        _ => true,
    });
    all.sort_by_key(|one| (one.interface != index, one.address));
    let configured = connection.addresses()?.into_iter().map(|one| (one.address, 32));
    let routes = all.iter().map(|one| (one.address, one.prefix_len));
    let mut own_sources: Vec<_> = routes
        .chain(configured)
        .filter_map(|(address, prefix_len)| match address {
            IpAddr::V4(v4) => Some((v4, prefix_len)),
            IpAddr::V6(_) => None,
        })
        .collect();
    own_sources.sort_unstable();
    own_sources.dedup();
    let addresses = all.into_iter().filter(LocalRoute::is_address).map(|one| one.address).collect();
    Ok(Some(Local { mac: own.address, mtu: own.mtu, addresses, own_sources, ipv6: own.ipv6 }))
}
