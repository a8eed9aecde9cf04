//! [`Group`]: a multicast group to join, from any source or from one.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::versions::Versions;

/// A multicast group on an interface (RFC 1112, RFC 3678 §4).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// The group's address.
    pub address: IpAddr,
    /// The one sender to receive from; default: any.
    pub source: Option<IpAddr>,
    /// The interface to join on; default: the one of the route.
    pub interface: Option<String>,
}

impl Group {
    /// A group that any host may send to.
    pub fn any_source(address: IpAddr) -> Self {
        Self { address, source: None, interface: None }
    }

    /// A group of which only messages from `source` are received.
    pub fn source_specific(address: IpAddr, source: IpAddr) -> Self {
        Self { address, source: Some(source), interface: None }
    }

    /// The same on `interface`.
    #[must_use]
    pub fn on(mut self, interface: &str) -> Self {
        self.interface = Some(interface.to_owned());
        self
    }

    /// Whether a receiver bound to `address` receives what is sent to the group.
    pub(crate) fn check_bind(&self, address: SocketAddr, versions: Versions) -> Result<(), String> {
        if !versions.include(self.address) {
            return Err(format!("{address} is of the other version of IP"));
        }
        if address.ip().is_unspecified() || address.ip() == self.address {
            return Ok(());
        }
        // `__udp_is_mcast_sock` in `net/ipv4/udp.c`.
        let any = if address.is_ipv4() { "0.0.0.0" } else { "[::]" };
        let port = address.port();
        Err(format!(
            "a receiver bound to {address} gets nothing that is sent to a group; bind to the group's own \
             address, or to {any}:{port}"
        ))
    }
}

impl fmt::Display for Group {
    /// As [`Group::from_str`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = self.source {
            write!(f, "{source},")?;
        }
        write!(f, "{}", self.address)?;
        match &self.interface {
            Some(interface) => write!(f, "@{interface}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Group {
    type Err = String;

    /// `GROUP`, `GROUP@IFACE`, or either with `SOURCE,` in front.
    fn from_str(text: &str) -> Result<Self, String> {
        let address = |text: &str| {
            text.parse::<IpAddr>().map_err(|_| {
                format!("`{text}` is not an address; a group is [SOURCE,]GROUP[@IFACE]")
            })
        };
        let (addresses, interface) = match text.split_once('@') {
            Some((_, "")) => return Err("an interface has to follow the @".to_owned()),
            Some((addresses, interface)) => (addresses, Some(interface.to_owned())),
            None => (text, None),
        };
        let (source, group) = match addresses.split_once(',') {
            Some((source, group)) => (Some(address(source)?), address(group)?),
            None => (None, address(addresses)?),
        };
        if !group.is_multicast() {
            return Err(format!(
                "{group} is not a multicast group: multicast groups are 224.0.0.0/4 and ff00::/8"
            ));
        }
        if source.is_some_and(|source| source.is_ipv4() != group.is_ipv4()) {
            return Err(format!("the source and the group {group} are of two versions of IP"));
        }
        Ok(Self { address: group, source, interface })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_read_as_it_is_printed() {
        for text in ["239.1.1.1", "239.1.1.1@eth1", "10.0.0.1,232.1.1.1@eth1", "ff15::1@a"] {
            assert_eq!(text.parse::<Group>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_group_is_refused() {
        for text in ["10.0.0.1", "239.1.1.1@", "x", "::1,239.1.1.1", "10.0.0.1,"] {
            assert!(text.parse::<Group>().is_err(), "{text}");
        }
    }
}
