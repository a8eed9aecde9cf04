//! From a frame that the steering program let through to a message.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use linerate_wire::checksum::{Engine, Sum};
use linerate_wire::ip::Protocol;
use linerate_wire::{ethernet, ipv4, ipv6, udp};

const ETHERNET: usize = ethernet::HEADER_LEN;
const IPV4: usize = ipv4::HEADER_LEN;
const IPV6: usize = ipv6::HEADER_LEN;
const UDP: usize = udp::HEADER_LEN;

/// A UDP datagram found in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where in the frame the payload is; it lies within.
    pub payload: Range<usize>,
    /// Who sent it.
    pub source: SocketAddr,
    /// Whom it is for.
    pub destination: SocketAddr,
    /// The traffic class (RFC 2474, RFC 3168).
    pub traffic_class: u8,
}

/// Why a frame gives no message. The stack refuses the same ones (`udp_rcv` in `net/ipv4/udp.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The lengths contradict each other, or it is no UDP over IP without options at all.
    Malformed,
    /// The checksum of the IPv4 header or of the datagram is wrong, or an IPv6 datagram has none.
    Checksum,
}

/// What frames are parsed with.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    engine: Engine,
    /// A sender on this host may have left the checksum to hardware that there is not.
    partial_checksums: bool,
}

impl Parser {
    /// `partial_checksums` says that frames may come from a sender on this machine over a device without a
    /// wire, such as a veth: then a checksum field that holds the sum of the pseudo header, which is what
    /// such a sender leaves there (`CHECKSUM_PARTIAL`), is good, as it is to the stack.
    pub fn new(partial_checksums: bool) -> Self {
        Self { engine: Engine::detect(), partial_checksums }
    }

    /// The datagram in `frame`, an Ethernet frame without tags.
    ///
    /// # Errors
    /// What is wrong with it.
    #[inline]
    pub fn parse(&self, frame: &[u8]) -> Result<Datagram, ParseError> {
        match frame.get(12..ETHERNET) {
            Some([0x08, 0x00]) => self.v4(&frame[ETHERNET..]),
            Some([0x86, 0xdd]) => self.v6(&frame[ETHERNET..]),
            _ => Err(ParseError::Malformed),
        }
    }

    #[inline]
    fn v4(&self, packet: &[u8]) -> Result<Datagram, ParseError> {
        let Some((header, _)) = packet.split_first_chunk::<IPV4>() else {
            return Err(ParseError::Malformed);
        };
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
        if header[0] != 0x45 || fragment != 0 || header[9] != Protocol::UDP.0 {
            return Err(ParseError::Malformed);
        }
        let datagram = packet.get(IPV4..total).ok_or(ParseError::Malformed)?;
        if !self.engine.sum(header).is_valid() {
            return Err(ParseError::Checksum);
        }
        let udp = Udp::read(datagram)?;
        let len = udp.len;
        if udp.checksum != 0 {
            let pseudo = Sum::ZERO.word(Protocol::UDP.0.into()).word(len as u16);
            // Source and destination stand in front of the datagram, so that one sum takes them all.
            let whole = pseudo.plus(self.engine.sum(&packet[12..IPV4 + len]));
            if !whole.is_valid() && !self.is_partial(udp, pseudo, &packet[12..IPV4]) {
                return Err(ParseError::Checksum);
            }
        }
        let address =
            |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        Ok(Datagram {
            payload: ETHERNET + IPV4 + UDP..ETHERNET + IPV4 + len,
            source: (address(12), udp.source).into(),
            destination: (address(16), udp.destination).into(),
            traffic_class: header[1],
        })
    }

    #[inline]
    fn v6(&self, packet: &[u8]) -> Result<Datagram, ParseError> {
        let Some((header, _)) = packet.split_first_chunk::<IPV6>() else {
            return Err(ParseError::Malformed);
        };
        let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[0] >> 4 != 6 || header[6] != Protocol::UDP.0 {
            return Err(ParseError::Malformed);
        }
        let datagram = packet.get(IPV6..IPV6 + payload).ok_or(ParseError::Malformed)?;
        // RFC 2675 §4 has 0 for a jumbogram; the stack takes it at any length (`__udp6_lib_rcv`).
        let udp = match datagram.get(4..6) {
            Some([0, 0]) => Udp { len: datagram.len(), ..Udp::header(datagram)? },
            _ => Udp::read(datagram)?,
        };
        let len = udp.len;
        // RFC 8200 §8.1: a datagram without a checksum is to be discarded.
        if udp.checksum == 0 {
            return Err(ParseError::Checksum);
        }
        let pseudo = Sum::ZERO.word(Protocol::UDP.0.into()).word32(len as u32);
        let whole = pseudo.plus(self.engine.sum(&packet[8..IPV6 + len]));
        if !whole.is_valid() && !self.is_partial(udp, pseudo, &packet[8..IPV6]) {
            return Err(ParseError::Checksum);
        }
        let address = |at: usize| -> Ipv6Addr {
            let bytes: [u8; 16] = header[at..at + 16].try_into().unwrap_or([0; 16]);
            bytes.into()
        };
        Ok(Datagram {
            payload: ETHERNET + IPV6 + UDP..ETHERNET + IPV6 + len,
            source: (address(8), udp.source).into(),
            destination: (address(24), udp.destination).into(),
            traffic_class: header[0] << 4 | header[1] >> 4,
        })
    }

    #[cold]
    fn is_partial(&self, udp: Udp, pseudo: Sum, addresses: &[u8]) -> bool {
        self.partial_checksums && pseudo.plus(self.engine.sum(addresses)).folded() == udp.checksum
    }
}

#[derive(Clone, Copy)]
struct Udp {
    source: u16,
    destination: u16,
    len: usize,
    checksum: u16,
}

impl Udp {
    #[inline]
    fn read(datagram: &[u8]) -> Result<Self, ParseError> {
        let udp = Self::header(datagram)?;
        match udp.len {
            len if len < UDP || len > datagram.len() => Err(ParseError::Malformed),
            _ => Ok(udp),
        }
    }

    #[inline]
    fn header(datagram: &[u8]) -> Result<Self, ParseError> {
        let Some((header, _)) = datagram.split_first_chunk::<UDP>() else {
            return Err(ParseError::Malformed);
        };
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let len = usize::from(word(4));
        Ok(Self { source: word(0), destination: word(2), len, checksum: word(6) })
    }
}

#[cfg(test)]
mod tests;
