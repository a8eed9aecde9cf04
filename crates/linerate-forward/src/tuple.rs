//! [`FiveTuple`]: protocol, addresses and ports, by which users name a session.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::named::as_text;

/// The protocol above IP of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Protocol number 6.
    Tcp,
    /// Protocol number 17.
    Udp,
}

linerate_net::named!(Protocol, "protocol": Tcp = "tcp", Udp = "udp");

impl Protocol {
    /// Its number in the IP header.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// One direction of a conversation.
///
/// As text its five parts with commas between: `udp,192.0.2.1,5000,198.51.100.7,53`. That needs no quoting in
/// a shell, and no brackets around IPv6 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple {
    /// The transport protocol.
    pub protocol: Protocol,
    /// The sender.
    pub source: SocketAddr,
    /// The receiver, of the same family as the source.
    pub destination: SocketAddr,
}

impl FiveTuple {
    /// The other direction, where no NAT changes it.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source, ..self }
    }
}

impl fmt::Display for FiveTuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, source, destination } = self;
        let (from, to) = (source.ip(), destination.ip());
        write!(f, "{protocol},{from},{},{to},{}", source.port(), destination.port())
    }
}

impl FromStr for FiveTuple {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |reason: String| {
            format!(
                "{text:?} is not a session ({reason}): write protocol, source, port, destination and port, as \
                 udp,192.0.2.1,5000,198.51.100.7,53"
            )
        };
        let parts: Vec<_> = text.split(',').map(str::trim).collect();
        let &[protocol, source, source_port, destination, destination_port] = &parts[..] else {
            return Err(wrong(format!("{} parts, not 5", parts.len())));
        };
        let address = |text: &str| -> Result<IpAddr, String> {
            text.parse().map_err(|_| wrong(format!("{text:?} is not an address")))
        };
        let port = |text: &str| -> Result<u16, String> {
            text.parse().map_err(|_| wrong(format!("{text:?} is not a port")))
        };
        let tuple = Self {
            protocol: protocol.parse().map_err(wrong)?,
            source: (address(source)?, port(source_port)?).into(),
            destination: (address(destination)?, port(destination_port)?).into(),
        };
        if tuple.source.is_ipv4() != tuple.destination.is_ipv4() {
            return Err(wrong("addresses of two families".to_owned()));
        }
        Ok(tuple)
    }
}

as_text!(FiveTuple);

#[cfg(test)]
mod tests;
