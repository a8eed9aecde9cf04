//! What IPv4 and IPv6 share: the protocol number, and a header that is either.

use core::net::IpAddr;

use crate::checksum::Sum;
use crate::ethernet::EtherType;
pub use crate::protocol::Protocol;
use crate::{Error, Result, ipv4, ipv6, read};

/// A header without options or extensions as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repr {
    /// IPv4.
    V4(ipv4::Repr),
    /// IPv6.
    V6(ipv6::Repr),
}

impl Repr {
    /// A header with a TTL or hop limit of 64, and DF in IPv4. `payload_len` is the length in bytes of what
    /// follows the header.
    ///
    /// # Errors
    /// One address is IPv4 and the other IPv6.
    pub fn new(
        source: IpAddr,
        destination: IpAddr,
        protocol: Protocol,
        payload_len: usize,
    ) -> Result<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Ok(Self::V4(ipv4::Repr {
                source,
                destination,
                protocol,
                payload_len,
                traffic_class: 0,
                identification: 0,
                dont_fragment: true,
                ttl: 64,
            })),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Ok(Self::V6(ipv6::Repr {
                source,
                destination,
                next_header: protocol,
                payload_len,
                traffic_class: 0,
                flow_label: 0,
                hop_limit: 64,
            })),
            _ => Err(Error::Malformed { what: "IP header", why: "addresses of two versions" }),
        }
    }

    /// The EtherType of a frame that carries the packet.
    pub const fn ether_type(&self) -> EtherType {
        match self {
            Self::V4(_) => EtherType::IPV4,
            Self::V6(_) => EtherType::IPV6,
        }
    }

    /// Bytes that [`Repr::emit`] writes.
    pub const fn header_len(&self) -> usize {
        match self {
            Self::V4(_) => ipv4::HEADER_LEN,
            Self::V6(_) => ipv6::HEADER_LEN,
        }
    }

    /// The pseudo header of the payload.
    pub const fn pseudo(&self) -> Sum {
        match self {
            Self::V4(ip) => {
                Sum::pseudo_v4(ip.source, ip.destination, ip.protocol, ip.payload_len as u16)
            }
            Self::V6(ip) => {
                Sum::pseudo_v6(ip.source, ip.destination, ip.next_header, ip.payload_len as u32)
            }
        }
    }

    /// Writes the header at the start of `bytes`.
    ///
    /// # Errors
    /// Fewer bytes than [`Repr::header_len`], or a payload that is too long.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        match self {
            Self::V4(repr) => repr.emit(bytes),
            Self::V6(repr) => repr.emit(bytes),
        }
    }
}

/// The destination of an IP packet; `None` where its fixed header is incomplete or of another version.
#[inline]
pub fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 if packet.len() >= ipv4::HEADER_LEN => Some(read::array::<4>(packet, 16).into()),
        6 if packet.len() >= ipv6::HEADER_LEN => Some(read::array::<16>(packet, 24).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_of_the_version_of_its_addresses() {
        let (v4, v6) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([0xfd; 16]));
        for (address, ether_type) in [(v4, EtherType::IPV4), (v6, EtherType::IPV6)] {
            let repr = Repr::new(address, address, Protocol::UDP, 8).unwrap();
            let mut bytes = [0; 48];
            repr.emit(&mut bytes).unwrap();
            let packet = &bytes[..repr.header_len()];
            assert_eq!((destination(packet), repr.ether_type()), (Some(address), ether_type));
            assert_eq!(destination(&packet[..packet.len() - 1]), None);
            assert_eq!(repr.pseudo(), Sum::pseudo(address, address, Protocol::UDP, 8).unwrap());
        }
        assert!(Repr::new(v4, v6, Protocol::UDP, 8).is_err());
        assert_eq!(destination(&[0; 60]), None);
    }
}
