//! Where IPFIX messages go: `ipfix://HOST:PORT`, `ipfix+tcp://HOST:PORT`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use super::Error;

/// IANA's port of IPFIX.
const DEFAULT_PORT: u16 = 4739;

/// The transport of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP: `ipfix://`. Templates are sent periodically.
    Udp,
    /// TCP: `ipfix+tcp://`.
    Tcp,
}

/// A collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The transport.
    pub transport: Transport,
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether a record has both directions (RFC 5103). `?uniflow` sends one record for each direction: a collector
    /// that ignores reverse elements loses what they count.
    pub biflow: bool,
}

impl Target {
    /// Whether this is the address of a collector, and not a folder.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("ipfix://") || text.starts_with("ipfix+")
    }

    /// Its socket address.
    pub(super) fn resolve(&self) -> std::io::Result<SocketAddr> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let mut addresses = (host, self.port).to_socket_addrs()?;
        addresses.next().ok_or_else(|| std::io::ErrorKind::AddrNotAvailable.into())
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse =
            |reason: &str| Error::Target { text: text.to_owned(), reason: reason.to_owned() };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| refuse("it is no URL"))?;
        let transport = match scheme {
            "ipfix" | "ipfix+udp" => Transport::Udp,
            "ipfix+tcp" => Transport::Tcp,
            "ipfix+tls" | "ipfix+dtls" => {
                return Err(refuse(
                    "there is no TLS; send to a local stunnel or ghostunnel by ipfix+tcp",
                ));
            }
            _ => return Err(refuse("the transports are ipfix (UDP) and ipfix+tcp")),
        };
        let (authority, query) = rest.split_once('?').unwrap_or((rest, ""));
        let biflow = match query {
            "" | "biflow" => true,
            "uniflow" => false,
            _ => return Err(refuse("what follows the question mark is biflow or uniflow")),
        };
        let authority = authority.trim_end_matches('/');
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, port.parse().map_err(|_| refuse("the port is no number up to 65535"))?)
            }
            _ => (authority, DEFAULT_PORT),
        };
        if host.is_empty() || host.contains('/') {
            return Err(refuse("it has no host"));
        }
        Ok(Self { transport, host: host.to_owned(), port, biflow })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.transport {
            Transport::Udp => "ipfix",
            Transport::Tcp => "ipfix+tcp",
        };
        let query = if self.biflow { "" } else { "?uniflow" };
        write!(f, "{scheme}://{}:{}{query}", self.host, self.port)
    }
}
