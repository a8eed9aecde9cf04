//! Ranges of addresses and ports.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::{Error, Result};

/// Addresses that a range may hold at most: 2^32.
pub const MAX_ADDRESSES: u64 = 1 << 32;

/// One address, or several that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Addresses {
    first: IpAddr,
    count: u64,
}

impl Addresses {
    /// A single address.
    pub const fn one(address: IpAddr) -> Self {
        Self { first: address, count: 1 }
    }

    /// `count` addresses from `first` on, 1 to 2^32, of which all but the low 32 bits agree.
    ///
    /// # Errors
    /// When they are too many or run past the end of the address space (IPv4) or of the lower 64 bits
    /// (IPv6).
    pub fn new(first: IpAddr, count: u64) -> Result<Self> {
        let low = match first {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits() as u64,
        };
        let limit = if first.is_ipv4() { u64::from(u32::MAX) } else { u64::MAX };
        let fits = low.checked_add(count.saturating_sub(1)).is_some_and(|last| last <= limit);
        if count == 0 || count > MAX_ADDRESSES || !fits {
            return Err(Error::argument(
                format!(
                    "{count} {} from {first}",
                    if count == 1 { "address" } else { "addresses" }
                ),
                "a range holds 1 to 2^32 addresses and ends before its upper half would change",
            ));
        }
        Ok(Self { first, count })
    }

    /// The first address.
    pub const fn first(&self) -> IpAddr {
        self.first
    }

    /// How many there are.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Address number `index`, counted from 0, modulo the number of addresses.
    pub fn nth(&self, index: u64) -> IpAddr {
        let index = index % self.count;
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits() + index as u32).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits() + u128::from(index)).into(),
        }
    }

    /// IPv6, not IPv4.
    pub const fn is_ipv6(&self) -> bool {
        self.first.is_ipv6()
    }

    /// The number that varies: the address, or the lower half of an IPv6 address.
    pub(crate) fn base(&self) -> u64 {
        match self.first {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits() as u64,
        }
    }
}

impl FromStr for Addresses {
    type Err = Error;

    /// An address, as `10.0.0.1`; a range, as `10.0.0.1-10.0.0.254` or `10.0.0.1-254`; or a network in
    /// CIDR notation, as `10.0.0.0/24` or `2001:db8::/112`, of which all addresses are taken.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |reason: &str| Error::argument(format!("address {text:?}"), reason);
        let address = |part: &str| {
            part.trim().parse::<IpAddr>().map_err(|_| {
                wrong("expected an address as 10.0.0.1, a range as 10.0.0.1-10.0.0.9, or a network as 10.0.0.0/24")
            })
        };
        if let Some((network, prefix)) = text.split_once('/') {
            return Self::network(address(network)?, prefix.trim())
                .map_err(|reason| wrong(&reason));
        }
        let Some((first, last)) = text.split_once('-') else {
            return address(text).map(Self::one);
        };
        let first = address(first)?;
        let last = match (first, last.trim().parse::<u8>()) {
            (IpAddr::V4(first), Ok(last)) => {
                let [a, b, c, _] = first.octets();
                Ipv4Addr::new(a, b, c, last).into()
            }
            _ => address(last)?,
        };
        let distance = match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                u128::from(last.to_bits()).checked_sub(u128::from(first.to_bits()))
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => last.to_bits().checked_sub(first.to_bits()),
            _ => return Err(wrong("both ends must be IPv4 or both IPv6")),
        };
        let distance = distance.ok_or_else(|| wrong("the range runs backwards"))?;
        let count = u64::try_from(distance)
            .ok()
            .and_then(|distance| distance.checked_add(1))
            .ok_or_else(|| wrong("more than 2^32 addresses"))?;
        Self::new(first, count)
    }
}

impl Addresses {
    fn network(address: IpAddr, prefix: &str) -> std::result::Result<Self, String> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix: u32 = prefix
            .parse()
            .ok()
            .filter(|prefix| *prefix <= bits)
            .ok_or_else(|| format!("the prefix length must be 0 to {bits}"))?;
        let host_bits = bits - prefix;
        if host_bits > 32 {
            return Err("more than 2^32 addresses; /96 is the widest IPv6 network".into());
        }
        let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
        let first = match address {
            IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & mask as u32).into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & mask).into(),
        };
        Ok(Self { first, count: 1 << host_bits })
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(f, "{}", self.first),
            count => write!(f, "{}-{}", self.first, self.nth(count - 1)),
        }
    }
}

/// One port, or several that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// A single port.
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// The ports from `first` to `last`.
    ///
    /// # Errors
    /// When the range runs backwards.
    pub fn new(first: u16, last: u16) -> Result<Self> {
        if first > last {
            let what = format!("ports {first}-{last}");
            return Err(Error::argument(what, format!("{last}-{first} would be right")));
        }
        Ok(Self { first, last })
    }

    /// The first port.
    pub const fn first(&self) -> u16 {
        self.first
    }

    /// How many there are.
    pub const fn count(&self) -> u64 {
        (self.last - self.first) as u64 + 1
    }
}

impl FromStr for Ports {
    type Err = Error;

    /// A port, as `9`, or a range, as `1024-65535`.
    fn from_str(text: &str) -> Result<Self> {
        let number = |part: &str| {
            part.trim().parse::<u16>().map_err(|_| {
                Error::argument(
                    format!("port {text:?}"),
                    "expected 0 to 65535, or a range as 1024-65535",
                )
            })
        };
        match text.split_once('-') {
            Some((first, last)) => Self::new(number(first)?, number(last)?),
            None => number(text).map(Self::one),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count() {
            1 => write!(f, "{}", self.first),
            _ => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

#[cfg(test)]
mod tests;
