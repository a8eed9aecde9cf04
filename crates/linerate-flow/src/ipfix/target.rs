//! Where IPFIX messages go: `ipfix://HOST:PORT`, `ipfix+tcp://HOST:PORT`, `ipfix+tls://HOST:PORT`.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::str::FromStr;

use super::Error;

/// IANA's port of IPFIX.
const DEFAULT_PORT: u16 = 4739;
/// IANA's port of IPFIX over TLS.
const DEFAULT_TLS_PORT: u16 = 4740;
const DEFAULT_OBSERVATION_DOMAIN_ID: NonZeroU32 = NonZeroU32::MIN;

/// The transport of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP: `ipfix://`. Templates are sent periodically.
    Udp,
    /// TCP: `ipfix+tcp://`.
    Tcp,
    /// TLS over TCP: `ipfix+tls://`.
    Tls(Box<TlsFiles>),
}

/// PEM files of a TLS session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities that may sign the collector's certificate (`?ca=FILE`); `None` for those of the
    /// system.
    pub ca: Option<PathBuf>,
    /// The certificate of this exporter with its chain, and its private key (`?certificate=FILE&key=FILE`), for a
    /// collector that asks for them.
    pub identity: Option<(PathBuf, PathBuf)>,
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
    /// The Observation Domain ID of the flow records (RFC 7011 section 3.1): 1, or that of `?domain=N`. Exporters of one
    /// host need different ones at a collector that does not distinguish them by their ports. 0 is that of the statistics.
    pub observation_domain_id: NonZeroU32,
}

impl Target {
    /// Whether this is the address of a collector, and not a folder.
    pub fn is_one(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| is_ipfix(scheme))
    }

    /// The name or address without brackets.
    pub(super) fn name(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Its socket addresses.
    pub(super) fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        Ok((self.name(), self.port).to_socket_addrs()?.collect())
    }
}

/// Whether this is the scheme of a collector.
pub(crate) fn is_ipfix(scheme: &str) -> bool {
    let scheme = scheme.to_ascii_lowercase();
    scheme == "ipfix" || scheme.starts_with("ipfix+")
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse =
            |reason: &str| Error::Target { text: text.to_owned(), reason: reason.to_owned() };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| refuse("it is no URL"))?;
        let (authority, query) = rest.split_once('?').unwrap_or((rest, ""));
        let query = Query::parse(query).map_err(refuse)?;
        let Query { biflow, observation_domain_id, .. } = query;
        let (transport, default_port) = match scheme.to_ascii_lowercase().as_str() {
            "ipfix" | "ipfix+udp" => (query.without_files(Transport::Udp), DEFAULT_PORT),
            "ipfix+tcp" => (query.without_files(Transport::Tcp), DEFAULT_PORT),
            "ipfix+tls" => {
                (query.files().map(|files| Transport::Tls(Box::new(files))), DEFAULT_TLS_PORT)
            }
            "ipfix+dtls" => return Err(refuse("there is no DTLS; ipfix+tls is TLS over TCP")),
            _ => return Err(refuse("the transports are ipfix (UDP), ipfix+tcp and ipfix+tls")),
        };
        let transport = transport.map_err(refuse)?;
        let authority = authority.trim_end_matches('/');
        let (host, port) = split(authority).map_err(refuse)?;
        let port = port.map_or(default_port, NonZeroU16::get);
        Ok(Self { transport, host: host.to_owned(), port, biflow, observation_domain_id })
    }
}

/// The host and the port, if there is one.
fn split(authority: &str) -> Result<(&str, Option<NonZeroU16>), &'static str> {
    let end = if authority.starts_with('[') {
        authority.find(']').map(|bracket| bracket + 1).ok_or("a bracket is not closed")?
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, port) = authority.split_at(end);
    let port = match port.strip_prefix(':') {
        _ if port.is_empty() => None,
        Some(port) if host.starts_with('[') || !port.contains(':') => {
            Some(port.parse().map_err(|_| "the port is not a number from 1 to 65535")?)
        }
        Some(_) => return Err("an IPv6 address is written in brackets, as ipfix://[ADDRESS]:PORT"),
        None => return Err("only a port can follow the address in brackets"),
    };
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        // Without the zone, such as %eth0.
        let address = address.split_once('%').map_or(address, |(address, _)| address);
        address.parse::<Ipv6Addr>().map_err(|_| "in the brackets is no IPv6 address")?;
    } else if host.is_empty() {
        return Err("it has no host");
    } else if host.contains('/') {
        return Err("it has a path after the host");
    } else if host.contains(|c: char| c.is_whitespace() || c.is_control() || "@[]".contains(c)) {
        return Err("the host has a character that no name or address has");
    }
    Ok((host, port))
}

/// What follows the question mark.
struct Query {
    biflow: bool,
    observation_domain_id: NonZeroU32,
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Query {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut query = Self {
            biflow: true,
            observation_domain_id: DEFAULT_OBSERVATION_DOMAIN_ID,
            ca: None,
            certificate: None,
            key: None,
        };
        for part in text.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                None if part == "biflow" => query.biflow = true,
                None if part == "uniflow" => query.biflow = false,
                Some(("domain", id)) => {
                    query.observation_domain_id = id
                        .parse()
                        .map_err(|_| "the domain is not a number from 1 to 4294967295")?;
                }
                Some((_, "")) => return Err("a file has no name"),
                Some(("ca", file)) => query.ca = Some(file.into()),
                Some(("certificate", file)) => query.certificate = Some(file.into()),
                Some(("key", file)) => query.key = Some(file.into()),
                _ => {
                    return Err(
                        "what follows the question mark is biflow, uniflow, domain=, ca=, certificate= or \
                         key=",
                    );
                }
            }
        }
        Ok(query)
    }

    fn without_files(self, transport: Transport) -> Result<Transport, &'static str> {
        match self {
            Self { ca: None, certificate: None, key: None, .. } => Ok(transport),
            _ => Err("ca=, certificate= and key= are for ipfix+tls"),
        }
    }

    fn files(self) -> Result<TlsFiles, &'static str> {
        let identity = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("certificate= and key= belong together"),
        };
        Ok(TlsFiles { ca: self.ca, identity })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.transport {
            Transport::Udp => "ipfix",
            Transport::Tcp => "ipfix+tcp",
            Transport::Tls(_) => "ipfix+tls",
        };
        write!(f, "{scheme}://{}:{}", self.host, self.port)?;
        let mut query: Vec<String> = Vec::new();
        if !self.biflow {
            query.push("uniflow".into());
        }
        if self.observation_domain_id != DEFAULT_OBSERVATION_DOMAIN_ID {
            query.push(format!("domain={}", self.observation_domain_id));
        }
        if let Transport::Tls(files) = &self.transport {
            let TlsFiles { ca, identity } = files.as_ref();
            query.extend(ca.iter().map(|file| format!("ca={}", file.display())));
            query.extend(identity.iter().map(|(certificate, key)| {
                format!("certificate={}&key={}", certificate.display(), key.display())
            }));
        }
        if query.is_empty() { Ok(()) } else { write!(f, "?{}", query.join("&")) }
    }
}
