//! One packet as bytes of a file, in either format.

use super::{pcap, pcapng};
use crate::Format;
use crate::read::Record;

/// Which of a packet's optional fields pcapng records carry. Each costs bytes in every record, so a
/// capture asks only for what can differ between its packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketOptions {
    /// `epb_flags` with the direction, 8 bytes; written where the direction is known.
    pub direction: bool,
    /// `epb_queue` with the receive queue, 8 bytes.
    pub queue: bool,
}

/// Turns packets into records of a file format.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    /// The format.
    pub format: Format,
    /// At most this many bytes of each packet are kept.
    pub snaplen: u32,
    /// Optional fields; classic pcap has none.
    pub options: PacketOptions,
}

impl Encoder {
    /// Appends a packet's record to `out`. Allocates only if `out` lacks [`Encoder::longest`] bytes
    /// of room.
    #[inline(always)]
    pub fn encode(&self, out: &mut Vec<u8>, record: &Record<'_>) {
        match self.format {
            Format::Pcapng => pcapng::packet(out, self.snaplen, self.options, record),
            Format::Pcap { nanoseconds } => {
                pcap::packet(out, self.snaplen, nanoseconds, &record.frame);
            }
        }
    }

    /// An upper bound of the record's length in bytes.
    #[inline(always)]
    pub fn longest(&self, record: &Record<'_>) -> usize {
        let comment = record.comment.map_or(0, |comment| comment.len() + 8);
        record.frame.len().min(self.snaplen as usize) + comment + pcapng::OVERHEAD
    }
}
