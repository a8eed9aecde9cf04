//! [`ListenAddress`]: the address that a server listens on, if any.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The address that metrics or a page are served at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ListenAddress {
    /// Nothing is served: `off`.
    #[default]
    Off,
    /// At this address. Everybody who can reach it can read what is served, unless it is a loopback address.
    At(SocketAddr),
}

impl ListenAddress {
    /// This port on the loopback interface.
    #[must_use]
    pub const fn loopback(port: u16) -> Self {
        Self::At(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }

    /// Listens in the network namespace of the calling thread; `None` if it is off.
    ///
    /// # Errors
    /// The kernel's error with the address, for instance if it does not belong to this host or is in use.
    pub fn listen(self) -> io::Result<Option<TcpListener>> {
        let Self::At(address) = self else { return Ok(None) };
        let named = |error: io::Error| {
            let remedy = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    "; another program has this port: choose another one, or `off`"
                }
                io::ErrorKind::AddrNotAvailable => "; no interface of this host has this address",
                _ => "",
            };
            io::Error::new(error.kind(), format!("cannot listen on {address}: {error}{remedy}"))
        };
        TcpListener::bind(address).map(Some).map_err(named)
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        if let Ok(port) = text.parse() {
            return Ok(Self::loopback(port));
        }
        text.parse().map(Self::At).map_err(|_| {
            format!(
                "{text:?} is not an address with a port: write 127.0.0.1:9818 or [::1]:9818, 9818 for a port on the \
                 loopback interface, or off"
            )
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl From<ListenAddress> for String {
    fn from(address: ListenAddress) -> Self {
        address.to_string()
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_the_loopback_interface() {
        for (text, is) in [
            ("9818", "127.0.0.1:9818"),
            ("127.0.0.1:9818", "127.0.0.1:9818"),
            ("[::]:80", "[::]:80"),
            ("off", "off"),
        ] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), is);
        }
        for wrong in ["", "localhost:9818", "127.0.0.1", "70000", ":9818", "on"] {
            let error = wrong.parse::<ListenAddress>().unwrap_err();
            assert!(error.contains("127.0.0.1:9818"), "{error}");
        }
        assert!(ListenAddress::Off.listen().unwrap().is_none());
        let taken = ListenAddress::loopback(0).listen().unwrap().unwrap();
        let address = taken.local_addr().unwrap();
        let error = ListenAddress::At(address).listen().unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
