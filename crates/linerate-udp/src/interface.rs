//! What a receiver has to know of network interfaces.

use std::net::IpAddr;

use linerate_wire::ethernet;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;

use crate::{Error, Result};

/// The index of an interface.
pub(crate) fn index(name: &str) -> Result<u32> {
    if_nametoindex(name).map_err(|_| Error::NoInterface(name.to_owned()))
}

/// The interface that has `address`.
pub(crate) fn of_address(address: IpAddr) -> Option<String> {
    let found = getifaddrs()
        .ok()?
        .find(|entry| entry.address.as_ref().and_then(ip).is_some_and(|found| found == address))?;
    Some(found.interface_name)
}

/// What one interface is called in frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) mac: Option<ethernet::Address>,
    pub(crate) addresses: Vec<IpAddr>,
}

/// The addresses of an interface.
pub(crate) fn identity(name: &str) -> Result<Identity> {
    let entries = getifaddrs()
        .map_err(|error| Error::system("list the addresses of this host", error.into()))?;
    let mut identity = Identity::default();
    for entry in entries.filter(|entry| entry.interface_name == name) {
        let Some(address) = &entry.address else { continue };
        if let Some(link) = address.as_link_addr() {
            identity.mac = link.addr().map(ethernet::Address);
        }
        identity.addresses.extend(ip(address));
    }
    Ok(identity)
}

fn ip(address: &nix::sys::socket::SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}
