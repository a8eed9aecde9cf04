//! Classic pcap: a 24-byte file header, then a 16-byte header before each packet.
//!
//! Like libpcap, this also reads versions before 2.4, whose records have their two lengths in the other order, and the
//! format of Alexey Kuznetsov's libpcap, whose records have 8 bytes more. What it lends is as in version 2.4.

use linerate_wire::frame::Frame;
use pcap_parser::{LegacyPcapBlock, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header};

use super::input::{BorrowedRecord, Input};
use crate::format::pcap::{FILE_HEADER_LEN, RECORD_HEADER_LEN};
use crate::{InterfaceDescription, Record, Resolution, Result};

/// The longest packet that a record may claim, as libpcap has it (`MAXIMUM_SNAPLEN`, 256 KiB) with
/// room for what other programs write; a longer claim is damage, not a packet.
const MAX_PACKET_LEN: u32 = 16 << 20;

/// The bits between the link type and the length of the frame check sequence.
const RESERVED_BITS: u32 = 0x03ff_0000;

/// Kuznetsov's format: bytes between the header of a record and its packet, and what libpcap adds to the snapshot
/// length.
const KUZNETSOV_LEN: usize = 8;
const KUZNETSOV_SNAPLEN: u32 = 14;

/// The order of the two lengths in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LengthOrder {
    CapturedFirst,
    WireFirst,
    /// The shorter one is that of what was captured.
    Unknown,
}

/// What the file header said.
pub(super) struct State {
    /// The file header, as in version 2.4.
    pub(super) header: [u8; FILE_HEADER_LEN],
    pub(super) big_endian: bool,
    resolution: Resolution,
    order: LengthOrder,
    /// Bytes between the header of a record and its packet.
    gap: usize,
    /// What is longer is cut.
    max_len: usize,
}

impl State {
    /// Reads the file header.
    pub(super) fn open(
        input: &mut Input,
        interfaces: &mut Vec<InterfaceDescription>,
    ) -> Result<Self> {
        let start = input.peek(FILE_HEADER_LEN)?.to_vec();
        let (big_endian, resolution, gap) = match start.get(..4) {
            Some([0xd4, 0xc3, 0xb2, 0xa1]) => (false, Resolution::Decimal(6), 0),
            Some([0xa1, 0xb2, 0xc3, 0xd4]) => (true, Resolution::Decimal(6), 0),
            Some([0x4d, 0x3c, 0xb2, 0xa1]) => (false, Resolution::Decimal(9), 0),
            Some([0xa1, 0xb2, 0x3c, 0x4d]) => (true, Resolution::Decimal(9), 0),
            Some([0x34, 0xcd, 0xb2, 0xa1]) => (false, Resolution::Decimal(6), KUZNETSOV_LEN),
            Some([0xa1, 0xb2, 0xcd, 0x34]) => (true, Resolution::Decimal(6), KUZNETSOV_LEN),
            _ => return Err(input.not_a_capture(&start[..start.len().min(4)])),
        };
        let mut whole = [0; FILE_HEADER_LEN];
        whole[..start.len()].copy_from_slice(&start);
        let mut put = |at: usize, number: &[u8]| {
            let field = &mut whole[at..at + number.len()];
            field.copy_from_slice(number);
            if !big_endian {
                field.reverse();
            }
            whole
        };
        if gap > 0 {
            put(0, &0xa1b2_c3d4_u32.to_be_bytes());
        }
        let header = match parse_pcap_header(&put(0, &[])) {
            Ok((_, header)) if start.len() == FILE_HEADER_LEN => header,
            _ => {
                let (needed, there) = (FILE_HEADER_LEN as u64, start.len() as u64);
                return Err(input.truncated("file header", needed, there));
            }
        };
        let order = match (header.version_major, header.version_minor) {
            (2, 4) => LengthOrder::CapturedFirst,
            // Some programs wrote version 2.3 and the order of 2.2.
            (2, 3) => LengthOrder::Unknown,
            // 543.0 is of one program.
            (2, 0..3) | (543, 0) => LengthOrder::WireFirst,
            (major, minor) => {
                return Err(input.malformed(format!(
                    "pcap version {major}.{minor}; 2.0 to 2.4 and 543.0 are known"
                )));
            }
        };
        let network = header.network.0 as u32;
        if network & RESERVED_BITS != 0 {
            let what = format!("reserved bits beside the link type ({network:#010x})");
            return Err(input.malformed(what));
        }
        let more = if gap > 0 { KUZNETSOV_SNAPLEN } else { 0 };
        let snaplen = header.snaplen.saturating_add(more);
        interfaces.push(InterfaceDescription {
            linktype: network as u16,
            link_extension: network & !0xffff,
            snaplen,
            resolution,
            ..InterfaceDescription::default()
        });
        put(4, &2_u16.to_be_bytes());
        put(6, &4_u16.to_be_bytes());
        let header = put(16, &snaplen.to_be_bytes());
        input.skip(FILE_HEADER_LEN);
        // libpcap takes it as a signed number, and one that is not above 0 as none.
        let max_len =
            if (1..=0x7fff_ffff).contains(&snaplen) { snaplen } else { u32::MAX } as usize;
        Ok(Self { header, big_endian, resolution, order, gap, max_len })
    }

    pub(super) fn nanoseconds(&self) -> bool {
        self.resolution == Resolution::Decimal(9)
    }

    /// Bytes of the record that begins with this header: before the packet, and of it.
    #[inline]
    fn lengths(&self, header: &[u8; RECORD_HEADER_LEN]) -> (usize, u32) {
        let word = |at: usize| {
            let word = [header[at], header[at + 1], header[at + 2], header[at + 3]];
            if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
        };
        let captured = match self.order {
            LengthOrder::CapturedFirst => word(8),
            LengthOrder::WireFirst => word(12),
            LengthOrder::Unknown => word(8).min(word(12)),
        };
        (RECORD_HEADER_LEN + self.gap, captured)
    }

    /// Whether these bytes are a whole record, or more.
    pub(super) fn has_record(&self, ahead: &[u8]) -> bool {
        let lengths = ahead.first_chunk().map(|header| self.lengths(header));
        lengths.is_some_and(|(head, packet)| ahead.len() >= head + packet as usize)
    }

    /// The next packet.
    #[inline]
    pub(super) fn next<'a>(&self, input: &'a mut Input) -> Result<Option<BorrowedRecord<'a>>> {
        if input.peek(1)?.is_empty() {
            return Ok(None);
        }
        let header = input.whole(RECORD_HEADER_LEN, "packet header")?;
        let (head, packet) = header.first_chunk().map_or((0, 0), |header| self.lengths(header));
        if packet > MAX_PACKET_LEN {
            return Err(input.malformed(format!(
                "a packet says it has {packet} bytes; the maximum is {MAX_PACKET_LEN}"
            )));
        }
        input.lend(head + packet as usize, "packet")?;
        if self.order != LengthOrder::CapturedFirst || self.gap > 0 {
            self.update(input.lent_mut(), packet);
        }
        let input: &'a Input = input;
        let bytes = &input.lent()[self.gap..];
        let parse = if self.big_endian { parse_pcap_frame_be } else { parse_pcap_frame };
        let (_, block) = parse(bytes).map_err(|_| input.malformed("not a packet record"))?;
        Ok(Some(BorrowedRecord { record: self.record(&block), bytes, offsets: input.offsets() }))
    }

    /// Makes a record of version 2.4 of one of another format. It ends where the other one did.
    fn update(&self, record: &mut [u8], captured: u32) {
        let captured = match self.big_endian {
            true => captured.to_be_bytes(),
            false => captured.to_le_bytes(),
        };
        if record[8..12] != captured {
            record[8..16].rotate_left(4);
        }
        record.copy_within(..RECORD_HEADER_LEN, self.gap);
    }

    #[inline]
    fn record<'a>(&self, block: &LegacyPcapBlock<'a>) -> Record<'a> {
        let fraction = self.resolution.timestamp(u64::from(block.ts_usec), i64::from(block.ts_sec));
        let mut frame = Frame::new(&block.data[..block.data.len().min(self.max_len)]);
        frame.wire_len = block.origlen;
        frame.timestamp = Some(fraction);
        Record { frame, interface: 0, comment: None }
    }
}
