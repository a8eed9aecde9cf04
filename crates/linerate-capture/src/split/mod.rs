//! Super-packets of captures into the frames that were on the wire, and back.
//!
//! A host that leaves segmentation to its network card, or joins what it receives, hands a capture
//! packets of up to 64 KiB that no wire ever carried. [`rewrite`] makes a capture file out of another
//! in which they are split, or in which frames are joined; [`Live`] splits while a capture runs, with
//! what the kernel says of each super-packet. What is not split or joined stays as it is, byte for byte,
//! and what could not be is counted by [`Reason`].

mod file;
mod join;
mod link;
mod live;
mod options;
mod output;
mod record;
mod tally;

use linerate_segment::Error;
use linerate_segment::segment::{Checksums, IpId, Link, Options, Segments, Split};
use linerate_wire::ip::Protocol;

pub use file::{Job, Outcome, Progress, Report, Work, rewrite};
pub use join::Joining;
pub use live::Live;
pub use output::Output;
pub use tally::{Alone, Joined, Reason, Refused, Tally};

/// Into what packets of a file are split. A file does not say how long the segments were; the MTU does,
/// for whoever knows that of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Longest IP packet that the wire carried, in bytes, with its header.
    pub mtu: u16,
    /// Payload of a TCP segment in bytes; `None` for what the MTU leaves room for. With a number, packets
    /// that fit are split, too, where they have more.
    pub mss: Option<u16>,
    /// The same for UDP datagrams; without it UDP is not split.
    pub uso: Option<u16>,
    /// What is neither TCP nor, with [`Plan::uso`], UDP becomes IP fragments.
    pub fragment: bool,
    /// The checksums of what is split.
    pub checksums: Checksums,
    /// The IPv4 identifications of what is split.
    pub ip_id: IpId,
    /// Longest IP packet that is split, in bytes.
    pub max_burst: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            mtu: 1500,
            mss: None,
            uso: None,
            fragment: false,
            checksums: Checksums::Full,
            ip_id: IpId::Increment,
            max_burst: u32::MAX,
        }
    }
}

/// What is to become of a packet.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "it lives on the stack, for one packet")]
enum Verdict<'p> {
    /// It stays as it is: the wire could carry it.
    Fits,
    /// It becomes these.
    Pieces(Segments<'p>),
    /// It stays as it is, although it is too long.
    Refused(Reason),
}

impl Plan {
    fn options(&self, link: Link, split: Split) -> Options {
        let (checksums, max_burst) = (self.checksums, self.max_burst);
        let (outer_id, inner_id) = (self.ip_id, self.ip_id);
        Options { link, checksums, outer_id, inner_id, max_burst, ..Options::new(split) }
    }

    /// Judges a packet that had `wire_len` bytes.
    fn judge<'p>(
        &self,
        packet: &'p [u8],
        link: Link,
        wire_len: usize,
        scratch: &'p mut Vec<u8>,
    ) -> Verdict<'p> {
        let claimed = link::ip_len(packet, link);
        let over = claimed.unwrap_or_else(|| link::rest(packet, link, wire_len)) > self.mtu.into();
        if !over && self.mss.is_none() && self.uso.is_none() {
            return Verdict::Fits;
        }
        if packet.len() < wire_len {
            return if over { Verdict::Refused(Reason::Truncated) } else { Verdict::Fits };
        }
        let packet = match claimed {
            None if over => link::with_length(packet, link, scratch).unwrap_or(packet),
            _ => packet,
        };
        let new = |split| Segments::new(packet, &self.options(link, split));
        let tcp = new(Split::Tcp { mss: self.mss.unwrap_or(u16::MAX) });
        let pieces = match tcp {
            Ok(_) if self.mss.is_none() && over => new(Split::Mtu(self.mtu)),
            Ok(pieces) if self.mss.is_some() => Ok(pieces),
            Ok(_) => return Verdict::Fits,
            Err(Error::OtherProtocol { found: Protocol::UDP, .. }) => match self.uso {
                Some(size) => new(Split::Udp { size }),
                None if !over => return Verdict::Fits,
                None if self.fragment => new(Split::Fragments { mtu: self.mtu }),
                None => return Verdict::Refused(Reason::UdpSize),
            },
            Err(Error::Protocol(_)) if self.fragment => new(Split::Fragments { mtu: self.mtu }),
            Err(error) => Err(error),
        };
        match pieces {
            Ok(pieces) if pieces.len() > 1 => Verdict::Pieces(pieces),
            Err(error) if over => Verdict::Refused(error.into()),
            _ => Verdict::Fits,
        }
    }
}

/// The packet in one piece with its checksum filled in, if that was left to a network card: if the sum
/// of the pseudo header stands where the checksum belongs. Damaged checksums stay damaged.
fn completed(packet: &[u8], link: Link) -> Option<Segments<'_>> {
    let new = |split, checksums| {
        // The identification of a single segment stays what it is.
        let options = Options { link, checksums, ..Options::new(split) };
        Segments::new(packet, &options).ok().filter(|pieces| pieces.len() == 1)
    };
    let (tcp, udp) = (Split::Tcp { mss: u16::MAX }, Split::Udp { size: u16::MAX });
    let (mut partial, split) = match new(tcp, Checksums::Partial) {
        Some(pieces) => (pieces, tcp),
        None => (new(udp, Checksums::Partial)?, udp),
    };
    let field = partial.partial_checksum()?;
    let at = usize::from(field.start) + usize::from(field.offset);
    let stands = packet.get(at..at + 2)?;
    let unfinished = partial.next_parts()?.header.get(at..at + 2)? == stands;
    if unfinished { new(split, Checksums::Full) } else { None }
}

#[cfg(test)]
mod tests;
