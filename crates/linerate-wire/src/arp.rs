//! ARP for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::error::require;
use crate::ethernet::Address;
use crate::{Error, Result, read};

/// Length in bytes of a packet for Ethernet and IPv4.
pub const PACKET_LEN: usize = 28;

const WHAT: &str = "ARP packet";

/// Types and lengths of hardware and protocol addresses, with which a packet starts.
const ETHERNET_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];

mod field {
    use core::ops::Range;
    pub(super) const OPERATION: Range<usize> = 6..8;
    pub(super) const SENDER_MAC: usize = 8;
    pub(super) const SENDER_IP: usize = 14;
    pub(super) const TARGET_MAC: usize = 18;
    pub(super) const TARGET_IP: usize = 24;
}

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Asks who has an address.
    Request,
    /// Tells who has it.
    Reply,
    /// Anything else, by its number.
    Other(u16),
}

impl Operation {
    const fn number(self) -> u16 {
        match self {
            Self::Request => 1,
            Self::Reply => 2,
            Self::Other(number) => number,
        }
    }
}

impl From<u16> for Operation {
    fn from(number: u16) -> Self {
        match number {
            1 => Self::Request,
            2 => Self::Reply,
            other => Self::Other(other),
        }
    }
}

/// An ARP packet for Ethernet and IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Repr {
    /// Request or reply.
    pub operation: Operation,
    /// Hardware address of the sender.
    pub sender_mac: Address,
    /// IPv4 address of the sender.
    pub sender_ip: Ipv4Addr,
    /// Hardware address of the target; zero in a request.
    pub target_mac: Address,
    /// IPv4 address of the target.
    pub target_ip: Ipv4Addr,
}

impl Repr {
    /// Reads a complete packet; refuses other hardware and protocols than Ethernet and IPv4.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        require(WHAT, bytes, PACKET_LEN)?;
        if bytes[..field::OPERATION.start] != ETHERNET_IPV4 {
            return Err(Error::Malformed { what: WHAT, why: "not for Ethernet and IPv4" });
        }
        Ok(Self {
            operation: read::u16(bytes, field::OPERATION).into(),
            sender_mac: Address(read::array(bytes, field::SENDER_MAC)),
            sender_ip: read::array::<4>(bytes, field::SENDER_IP).into(),
            target_mac: Address(read::array(bytes, field::TARGET_MAC)),
            target_ip: read::array::<4>(bytes, field::TARGET_IP).into(),
        })
    }

    /// Writes the packet at the start of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        require(WHAT, bytes, PACKET_LEN)?;
        read::put(bytes, 0, &ETHERNET_IPV4);
        read::put(bytes, field::OPERATION.start, &self.operation.number().to_be_bytes());
        read::put(bytes, field::SENDER_MAC, &self.sender_mac.0);
        read::put(bytes, field::SENDER_IP, &self.sender_ip.octets());
        read::put(bytes, field::TARGET_MAC, &self.target_mac.0);
        read::put(bytes, field::TARGET_IP, &self.target_ip.octets());
        Ok(())
    }
}
