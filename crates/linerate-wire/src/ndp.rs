//! Neighbour solicitation and advertisement (RFC 4861 §4.3, §4.4), each as a whole IPv6 packet.

use core::net::Ipv6Addr;

use crate::checksum::Sum;
use crate::ethernet::Address;
use crate::ip::Protocol;
use crate::{Error, Result, ipv6, read};

/// Length in bytes of both messages without options: the ICMPv6 header (RFC 4443 §2.1), flags and target.
const MESSAGE_LEN: usize = 24;

/// ICMPv6 types of the messages.
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// Length in bytes of a link-layer address option for Ethernet (RFC 4861 §4.6.1).
const LINK_LAYER_OPTION_LEN: usize = 8;

/// Hop limit of every message: a router would have lowered it (RFC 4861 §3.1).
const HOP_LIMIT: u8 = 255;

mod field {
    pub(super) const TYPE: usize = 0;
    pub(super) const CODE: usize = 1;
    pub(super) const CHECKSUM: usize = 2;
    pub(super) const FLAGS: usize = 4;
    pub(super) const TARGET: usize = 8;
    pub(super) const OPTION: usize = 24;
}

/// Asks for the link-layer address of `target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Solicitation {
    /// Who asks; unspecified in duplicate address detection.
    pub source: Ipv6Addr,
    /// The solicited-node address of the target, or the target itself.
    pub destination: Ipv6Addr,
    /// The address in question.
    pub target: Ipv6Addr,
    /// The link-layer address of who asks, if an option says it.
    pub source_link_layer_address: Option<Address>,
}

impl Solicitation {
    /// Bytes that [`Solicitation::emit`] writes.
    pub const PACKET_LEN: usize = ipv6::HEADER_LEN + MESSAGE_LEN;

    /// Whether an IPv6 packet looks like a solicitation; solicitations have no extension headers.
    #[inline]
    pub fn is_solicitation(packet: &[u8]) -> bool {
        packet.get(6) == Some(&Protocol::ICMPV6.0)
            && packet.get(ipv6::HEADER_LEN) == Some(&NEIGHBOUR_SOLICITATION)
    }

    /// Reads an IPv6 packet; `None` where it is no valid solicitation (RFC 4861 §7.1.1).
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let ip = ipv6::Packet::new_checked(packet).ok()?;
        let (source, destination, payload) = (ip.source(), ip.destination(), ip.payload());
        let target = Ipv6Addr::from(*payload.get(field::TARGET..)?.first_chunk::<16>()?);
        let len = u32::try_from(payload.len()).ok()?;
        let valid = Self::is_solicitation(packet)
            && ip.hop_limit() == HOP_LIMIT
            && payload[field::CODE] == 0
            && !target.is_multicast()
            && !source.is_multicast()
            && Sum::pseudo_v6(source, destination, Protocol::ICMPV6, len).bytes(payload).is_valid();
        let source_link_layer_address = source_link_layer_address(&payload[field::OPTION..]);
        valid.then_some(Self { source, destination, target, source_link_layer_address })
    }

    /// Writes the packet, without options, at the start of `bytes`.
    ///
    /// # Errors
    /// Fewer than [`Solicitation::PACKET_LEN`] bytes.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        let Self { source, destination, target, .. } = *self;
        emit(bytes, (source, destination), NEIGHBOUR_SOLICITATION, 0, target, None)
    }

    /// The advertisement that answers: to who asked, or to all nodes where that has no address yet (RFC 4861
    /// §7.2.4). It overrides what neighbours remember.
    pub fn advertisement(&self, target_link_layer_address: Address) -> Advertisement {
        let solicited = !self.source.is_unspecified();
        Advertisement {
            destination: if solicited { self.source } else { ipv6::ALL_NODES },
            target: self.target,
            target_link_layer_address,
            solicited,
            override_: true,
        }
    }
}

/// The address in the options of a solicitation (RFC 4861 §4.6.1). Those after a malformed one are not read.
fn source_link_layer_address(mut options: &[u8]) -> Option<Address> {
    const SOURCE: u8 = 1;
    while let [kind, units, ..] = *options {
        let option = options.split_at_checked(usize::from(units) * 8).filter(|_| units > 0)?;
        if let (SOURCE, [_, _, a, b, c, d, e, f]) = (kind, option.0) {
            return Some(Address([*a, *b, *c, *d, *e, *f]));
        }
        options = option.1;
    }
    None
}

/// Tells the link-layer address of `target`, from that address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Advertisement {
    /// Whom it is for.
    pub destination: Ipv6Addr,
    /// Whose link-layer address it is; also the source of the packet.
    pub target: Ipv6Addr,
    /// The link-layer address.
    pub target_link_layer_address: Address,
    /// The S flag: it answers a solicitation.
    pub solicited: bool,
    /// The O flag: it replaces what neighbours remember.
    pub override_: bool,
}

impl Advertisement {
    /// Bytes that [`Advertisement::emit`] writes.
    pub const PACKET_LEN: usize = ipv6::HEADER_LEN + MESSAGE_LEN + LINK_LAYER_OPTION_LEN;

    /// Writes the packet at the start of `bytes`.
    ///
    /// # Errors
    /// Fewer than [`Advertisement::PACKET_LEN`] bytes.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<()> {
        let flags = u8::from(self.solicited) << 6 | u8::from(self.override_) << 5;
        let kind = NEIGHBOUR_ADVERTISEMENT;
        let option = Some(self.target_link_layer_address);
        emit(bytes, (self.target, self.destination), kind, flags, self.target, option)
    }
}

fn emit(
    bytes: &mut [u8],
    (source, destination): (Ipv6Addr, Ipv6Addr),
    kind: u8,
    flags: u8,
    target: Ipv6Addr,
    target_link_layer_address: Option<Address>,
) -> Result<()> {
    let option = target_link_layer_address.map_or(0, |_| LINK_LAYER_OPTION_LEN);
    let payload_len = MESSAGE_LEN + option;
    let (need, have) = (ipv6::HEADER_LEN + payload_len, bytes.len());
    let bytes = bytes.get_mut(..need).ok_or(Error::Truncated {
        what: "neighbour discovery message",
        need,
        have,
    })?;
    let next_header = Protocol::ICMPV6;
    let hop_limit = HOP_LIMIT;
    let (traffic_class, flow_label) = (0, 0);
    ipv6::Repr {
        source,
        destination,
        next_header,
        payload_len,
        traffic_class,
        flow_label,
        hop_limit,
    }
    .emit(bytes)?;
    let message = &mut bytes[ipv6::HEADER_LEN..];
    message.fill(0);
    read::put(message, field::TYPE, &[kind]);
    read::put(message, field::FLAGS, &[flags]);
    read::put(message, field::TARGET, &target.octets());
    if let Some(address) = target_link_layer_address {
        // Target link-layer address, one unit of eight bytes.
        read::put(message, field::OPTION, &[2, 1]);
        read::put(message, field::OPTION + 2, &address.0);
    }
    let pseudo = Sum::pseudo_v6(source, destination, next_header, payload_len as u32);
    let checksum = pseudo.bytes(message).checksum();
    read::put(message, field::CHECKSUM, &checksum.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests;
