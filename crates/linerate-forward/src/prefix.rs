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
    pub fn shorter(self) -> impl Iterator<Item = Self> {
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect(text)
    }

    #[test]
    fn a_prefix_holds_what_begins_as_it_does() {
        let net = prefix("192.0.2.0/24");
        assert!(net.contains("192.0.2.255".parse().unwrap()));
        assert!(!net.contains("192.0.3.0".parse().unwrap()));
        assert!(!net.contains("::ffff:192.0.2.1".parse().unwrap()));
        assert!(prefix("0.0.0.0/0").contains("255.1.2.3".parse().unwrap()));
        assert!(prefix("::/0").contains("2001:db8::1".parse().unwrap()));
        assert!(!prefix("2001:db8::/33").contains("2001:db8:8000::".parse().unwrap()));
        assert_eq!(prefix("192.0.2.1").length(), 32);
        assert_eq!(prefix("2001:db8::1/128").to_string(), "2001:db8::1");
    }

    #[test]
    fn what_is_none_is_said() {
        let said = "192.0.2.1/24".parse::<Prefix>().unwrap_err();
        assert!(said.contains("write 192.0.2.0/24 for the prefix"), "{said}");
        let said = "192.0.2.0/33".parse::<Prefix>().unwrap_err();
        assert!(said.contains("32 bits"), "{said}");
        for bad in
            ["", "/", "x", "192.0.2/24", "192.0.2.0/", "192.0.2.0/+1", "::/129/1", "1.2.3.4/999"]
        {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_prefix_is_read_as_written(bits: u128, length in 0u8..=128, four: bool) {
            let address = if four { IpAddr::V4((bits as u32).into()) } else { IpAddr::V6(bits.into()) };
            let length = length.min(width(address));
            let made = Prefix::new(masked(address, length), length).unwrap();
            prop_assert!(made.contains(address));
            prop_assert_eq!(made.to_string().parse(), Ok(made));
        }
    }
}
