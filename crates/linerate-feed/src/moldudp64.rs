//! MoldUDP64, the framing of many market data feeds (Nasdaq, "MoldUDP64 Protocol Specification", V 1.00).
//!
//! A downstream packet is a session of ten characters, the number of its first message in eight bytes, the
//! count of messages in two, and for each message its length in two bytes and its bytes; all numbers in
//! network order. A count of 0 is a heartbeat, one of 65,535 the end of the session. A receiver that missed
//! something asks a re-request server with a packet that has no messages: session, number, count.

use super::{Gap, PacketHeader, ParseError, Protocol};

/// Bytes of a header, and of a request.
pub const HEADER_LEN: usize = 20;
/// The count that ends a session.
const END: u16 = u16::MAX;
/// Messages that one request may ask for: the next count has another meaning.
pub const MAX_REQUESTED: u16 = END - 1;

/// The protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct MoldUdp64;

impl Protocol for MoldUdp64 {
    #[inline]
    fn header<'a>(&self, packet: &'a [u8]) -> Result<PacketHeader<'a>, ParseError> {
        let (session, rest) = packet.split_at_checked(10).ok_or(ParseError::Header)?;
        let (number, rest) = rest.split_first_chunk::<8>().ok_or(ParseError::Header)?;
        let (count, _) = rest.split_first_chunk::<2>().ok_or(ParseError::Header)?;
        let (first, count) = (u64::from_be_bytes(*number), u16::from_be_bytes(*count));
        let messages = if count == END { 0 } else { u64::from(count) };
        first.checked_add(messages).ok_or(ParseError::Number)?;
        Ok(PacketHeader { session, first, messages, end: count == END })
    }

    #[inline]
    fn messages(&self, packet: &[u8], message: &mut dyn FnMut(&[u8])) -> Result<(), ParseError> {
        let mut left = self.header(packet)?.messages;
        let mut rest = packet.get(HEADER_LEN..).ok_or(ParseError::Header)?;
        while left > 0 {
            let (len, after) = rest.split_first_chunk::<2>().ok_or(ParseError::Messages)?;
            let len = usize::from(u16::from_be_bytes(*len));
            let (bytes, after) = after.split_at_checked(len).ok_or(ParseError::Messages)?;
            message(bytes);
            (rest, left) = (after, left - 1);
        }
        Ok(())
    }
}

/// The request for the beginning of a gap, as many messages of it as one request can ask for.
pub fn request(session: &[u8], gap: Gap) -> [u8; HEADER_LEN] {
    let mut bytes = [b' '; HEADER_LEN];
    let len = session.len().min(10);
    bytes[..len].copy_from_slice(&session[..len]);
    bytes[10..18].copy_from_slice(&gap.from.to_be_bytes());
    let count = u16::try_from(gap.len()).unwrap_or(MAX_REQUESTED).min(MAX_REQUESTED);
    bytes[18..].copy_from_slice(&count.to_be_bytes());
    bytes
}

/// Writes a packet with these messages over `packet`; for senders and tests.
///
/// Messages that do not fit into a count or a length of 16 bits are cut off.
pub fn write(session: [u8; 10], first: u64, messages: &[&[u8]], packet: &mut Vec<u8>) {
    let count = messages.len().min(usize::from(MAX_REQUESTED));
    packet.clear();
    packet.extend(session);
    packet.extend(first.to_be_bytes());
    packet.extend((count as u16).to_be_bytes());
    for message in &messages[..count] {
        let len = message.len().min(usize::from(u16::MAX));
        packet.extend((len as u16).to_be_bytes());
        packet.extend(&message[..len]);
    }
}
