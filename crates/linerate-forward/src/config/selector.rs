//! [`Selector`]: sessions by interface, prefix, port, mark or flowtable.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::named::as_text;
use crate::prefix::Prefix;

/// Sessions that the configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// They come in or leave by it; also one above a port.
    Interface(String),
    /// The source or the destination is in it, before NAT or after.
    Prefix(Prefix),
    /// The source or the destination port is in it, before NAT or after.
    Port(RangeInclusive<u16>),
    /// Their packets leave with this mark.
    Mark(u32),
    /// A rule has put their connection into a flowtable (`flow add`, `IPS_OFFLOAD`).
    Offloaded,
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid =
            |_| format!("{text:?}: write \"port 53\", \"port 5000-5999\" or \"mark 0x10\"");
        if let Some(ports) = text.strip_prefix("port ") {
            let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
            let range = first.parse().map_err(invalid)?..=last.parse().map_err(invalid)?;
            return if range.is_empty() {
                Err(format!("{text:?}: the last port is before the first"))
            } else {
                Ok(Self::Port(range))
            };
        }
        if let Some(mark) = text.strip_prefix("mark ") {
            let number = match mark.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => mark.parse(),
            };
            return number.map(Self::Mark).map_err(invalid);
        }
        if text == "offloaded" {
            return Ok(Self::Offloaded);
        }
        if text.contains('/') || text.parse::<IpAddr>().is_ok() {
            return text.parse().map(Self::Prefix);
        }
        super::check_interfaces(&[text.to_owned()])?;
        Ok(Self::Interface(text.to_owned()))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => f.write_str(name),
            Self::Prefix(prefix) => prefix.fmt(f),
            Self::Port(range) if range.start() == range.end() => {
                write!(f, "port {}", range.start())
            }
            Self::Port(range) => write!(f, "port {}-{}", range.start(), range.end()),
            Self::Mark(mark) => write!(f, "mark {mark:#x}"),
            Self::Offloaded => f.write_str("offloaded"),
        }
    }
}

as_text!(Selector);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_read_as_it_is_written() {
        for text in [
            "eth1",
            "10.0.0.0/8",
            "2001:db8::1",
            "port 53",
            "port 5000-5999",
            "mark 0x10",
            "offloaded",
        ] {
            assert_eq!(text.parse::<Selector>().unwrap().to_string(), text);
        }
        for text in ["port x", "port 9-1", "mark 0xg", "10.0.0.1/8", "an interface", ""] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }
}
