//! ARP for IPv4 over Ethernet (RFC 826).

use core::fmt;
use core::net::Ipv4Addr;

use crate::error::require;
use crate::ethernet::Address;
use crate::{Error, Result, read};

/// Length in bytes of a packet for Ethernet and IPv4.
pub const PACKET_LEN: usize = 28;

const WHAT: &str = "ARP packet";

mod field {
    use core::ops::Range;
    pub(super) const HARDWARE_TYPE: Range<usize> = 0..2;
    pub(super) const PROTOCOL_TYPE: Range<usize> = 2..4;
    pub(super) const HARDWARE_LEN: usize = 4;
    pub(super) const PROTOCOL_LEN: usize = 5;
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

/// A view of an ARP packet for Ethernet and IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<T> {
    buffer: T,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// A view of a complete packet; refuses other hardware and protocols than Ethernet and IPv4.
    pub fn new_checked(buffer: T) -> Result<Self> {
        let bytes = buffer.as_ref();
        require(WHAT, bytes, PACKET_LEN)?;
        let ours = read::u16(bytes, field::HARDWARE_TYPE) == 1
            && read::u16(bytes, field::PROTOCOL_TYPE) == 0x0800
            && read::u8(bytes, field::HARDWARE_LEN) == 6
            && read::u8(bytes, field::PROTOCOL_LEN) == 4;
        if !ours {
            return Err(Error::Malformed { what: WHAT, why: "not for Ethernet and IPv4" });
        }
        Ok(Self { buffer })
    }

    /// The bytes again.
    pub fn into_inner(self) -> T {
        self.buffer
    }

    /// Request or reply.
    pub fn operation(&self) -> Operation {
        read::u16(self.buffer.as_ref(), field::OPERATION).into()
    }

    /// Hardware address of the sender.
    pub fn sender_mac(&self) -> Address {
        Address(read::array(self.buffer.as_ref(), field::SENDER_MAC))
    }

    /// IPv4 address of the sender.
    pub fn sender_ip(&self) -> Ipv4Addr {
        read::array::<4>(self.buffer.as_ref(), field::SENDER_IP).into()
    }

    /// Hardware address of the target; zero in a request.
    pub fn target_mac(&self) -> Address {
        Address(read::array(self.buffer.as_ref(), field::TARGET_MAC))
    }

    /// IPv4 address of the target.
    pub fn target_ip(&self) -> Ipv4Addr {
        read::array::<4>(self.buffer.as_ref(), field::TARGET_IP).into()
    }
}

impl<T: AsRef<[u8]>> fmt::Display for Packet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation() {
            Operation::Request => {
                write!(f, "ARP who-has {} tell {}", self.target_ip(), self.sender_ip())
            }
            Operation::Reply => write!(f, "ARP {} is-at {}", self.sender_ip(), self.sender_mac()),
            Operation::Other(number) => write!(f, "ARP operation {number}"),
        }
    }
}

/// The packet as a value.
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
    /// Reads a packet.
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Self {
        Self {
            operation: packet.operation(),
            sender_mac: packet.sender_mac(),
            sender_ip: packet.sender_ip(),
            target_mac: packet.target_mac(),
            target_ip: packet.target_ip(),
        }
    }

    /// Bytes that [`Repr::emit`] writes.
    pub const fn header_len(&self) -> usize {
        PACKET_LEN
    }

    /// Writes the packet at the start of `bytes`.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        require(WHAT, bytes, PACKET_LEN)?;
        read::put(bytes, field::HARDWARE_TYPE.start, &[0, 1, 8, 0, 6, 4]);
        read::put(bytes, field::OPERATION.start, &self.operation.number().to_be_bytes());
        read::put(bytes, field::SENDER_MAC, &self.sender_mac.0);
        read::put(bytes, field::SENDER_IP, &self.sender_ip.octets());
        read::put(bytes, field::TARGET_MAC, &self.target_mac.0);
        read::put(bytes, field::TARGET_IP, &self.target_ip.octets());
        Ok(())
    }
}
