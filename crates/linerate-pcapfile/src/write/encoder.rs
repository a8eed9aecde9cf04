//! [`Encoder`]: packets, interfaces and statistics as bytes of a file, in either format.

use super::{pcap, pcapng};
use crate::{Format, InterfaceDescription, InterfaceStatistics, Record, SectionHeader};

/// Which optional fields pcapng packet blocks carry. Each costs bytes in every block, so a capture asks
/// only for what can differ between its packets.
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
    /// Appends what stands before the first packet. Classic pcap takes the link type of the first
    /// interface, Ethernet without one.
    pub fn encode_file_header(
        &self,
        out: &mut Vec<u8>,
        section: &SectionHeader,
        interfaces: &[InterfaceDescription],
    ) {
        match self.format {
            Format::Pcapng => {
                pcapng::section_header(out, section);
                interfaces.iter().for_each(|one| pcapng::interface_description(out, one));
            }
            Format::Pcap { nanoseconds } => {
                let network =
                    |first: &InterfaceDescription| u32::from(first.linktype) | first.link_extension;
                let network = interfaces.first().map_or(1, network);
                pcap::file_header(out, nanoseconds, self.snaplen, network);
            }
        }
    }

    /// Appends the description of one more interface; classic pcap has no room for it.
    pub fn encode_interface(&self, out: &mut Vec<u8>, interface: &InterfaceDescription) {
        if self.format == Format::Pcapng {
            pcapng::interface_description(out, interface);
        }
    }

    /// Appends the statistics of the interface of this number; classic pcap has no room for them.
    pub fn encode_statistics(
        &self,
        out: &mut Vec<u8>,
        interface: u32,
        statistics: &InterfaceStatistics,
    ) {
        if self.format == Format::Pcapng {
            pcapng::interface_statistics(out, interface, statistics);
        }
    }

    /// Appends a packet's record to `out`. Allocates only if `out` has less room than
    /// [`Encoder::max_len`] says.
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
    pub fn max_len(&self, record: &Record<'_>) -> usize {
        let comment = record.comment.map_or(0, |comment| comment.len() + 8);
        record.frame.len().min(self.snaplen as usize) + comment + pcapng::MAX_OVERHEAD
    }
}
