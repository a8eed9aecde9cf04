//! [`MetricsAddress`]: where metrics are served, if anywhere.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use crate::named::as_text;

/// Where metrics are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricsAddress {
    /// Nowhere: `off`.
    Off,
    /// At this address. Everybody who can reach it can read them, unless it is a loopback address.
    At(SocketAddr),
}

impl Default for MetricsAddress {
    fn default() -> Self {
        Self::At(SocketAddr::from((Ipv4Addr::LOCALHOST, 9818)))
    }
}

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        text.parse().map(Self::At).map_err(|_| {
            format!("{text:?} is no address with a port: write it as 127.0.0.1:9818 or [::1]:9818, or off")
        })
    }
}

as_text!(MetricsAddress);

impl fmt::Display for MetricsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}
