//! [`Prefix`]: an IP prefix.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::named::as_text;

/// An address, or the addresses that share its first bits (RFC 4632, RFC 4291). The other bits are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// The addresses that share the first `length` bits of `address`.
    ///
    /// # Errors
    /// A sentence, if the family has fewer bits, or bits after the prefix are set.
    pub fn new(address: IpAddr, length: u8) -> Result<Self, String> {
        let bits = width(address);
        if length > bits {
            return Err(format!("{address}/{length}: an address of this family has {bits} bits"));
        }
        let first = masked(address, length);
        if first != address {
            return Err(format!(
                "{address}/{length} has bits set behind the prefix: write {first}/{length} for the \
                 prefix, or {address} for the one address"
            ));
        }
        Ok(Self { address, length })
    }

    /// The first of the addresses.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Bits that they share: up to 32, or 128.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// The shorter prefixes that have all of these addresses, the longest first.
    pub fn supernets(self) -> impl Iterator<Item = Self> {
        (0..self.length)
            .rev()
            .map(move |length| Self { address: masked(self.address, length), length })
    }

    /// Whether `address` is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && masked(address, self.length) == self.address
    }
}

impl From<IpAddr> for Prefix {
    fn from(address: IpAddr) -> Self {
        Self { address, length: width(address) }
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not an address or prefix: write it as 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32"
            )
        };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        match length {
            None => Ok(address.into()),
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_digit()) => {
                Self::new(address, digits.parse().map_err(|_| wrong())?)
            }
            Some(_) => Err(wrong()),
        }
    }
}

as_text!(Prefix);

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.length == width(self.address) {
            return write!(f, "{}", self.address);
        }
        write!(f, "{}/{}", self.address, self.length)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6((address.to_bits() & mask).into())
        }
    }
}

#[cfg(test)]
mod tests;
