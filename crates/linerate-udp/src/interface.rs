//! Properties of network interfaces for receivers and senders.

use std::net::IpAddr;

use linerate_net::{Interface, addresses, link};
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

/// The addresses of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InterfaceAddresses {
    pub(crate) mac: Option<ethernet::Address>,
    pub(crate) addresses: Vec<IpAddr>,
}

/// The addresses of an interface.
pub(crate) fn interface_addresses(name: &str) -> Result<InterfaceAddresses> {
    let link = link::by_name(name)?;
    let own = addresses()?.into_iter().filter(|found| found.index == link.index);
    Ok(InterfaceAddresses {
        mac: link.address,
        addresses: own.map(|found| found.address).collect(),
    })
}
