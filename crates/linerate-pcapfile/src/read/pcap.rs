//! Classic pcap: a 24-byte file header, then a 16-byte header before each packet.

use linerate_wire::frame::Frame;
use pcap_parser::{LegacyPcapBlock, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header};

use super::input::Input;
use crate::format::pcap::{FILE_HEADER_LEN, RECORD_HEADER_LEN};
use crate::{InterfaceDescription, Record, Resolution, Result};

/// The longest packet that a record may claim, as libpcap has it (`MAXIMUM_SNAPLEN`, 256 KiB) with
/// room for what other programs write; a longer claim is damage, not a packet.
const MAX_PACKET_LEN: u32 = 16 << 20;

/// The bits between the link type and the length of the frame check sequence.
const RESERVED_BITS: u32 = 0x03ff_0000;

/// What the file header said.
pub(super) struct State {
    /// The file header itself.
    pub(super) header: [u8; FILE_HEADER_LEN],
    pub(super) big_endian: bool,
    resolution: Resolution,
}

impl State {
    /// Reads the file header.
    pub(super) fn open(
        input: &mut Input,
        interfaces: &mut Vec<InterfaceDescription>,
    ) -> Result<Self> {
        let start = input.peek(FILE_HEADER_LEN)?.to_vec();
        let (big_endian, resolution) = match start.get(..4) {
            Some([0xd4, 0xc3, 0xb2, 0xa1]) => (false, Resolution::Decimal(6)),
            Some([0xa1, 0xb2, 0xc3, 0xd4]) => (true, Resolution::Decimal(6)),
            Some([0x4d, 0x3c, 0xb2, 0xa1]) => (false, Resolution::Decimal(9)),
            Some([0xa1, 0xb2, 0x3c, 0x4d]) => (true, Resolution::Decimal(9)),
            _ => return Err(input.not_a_capture(&start[..start.len().min(4)])),
        };
        let Ok((_, header)) = parse_pcap_header(&start) else {
            return Err(input.truncated("file header", FILE_HEADER_LEN as u64, start.len() as u64));
        };
        // As libpcap: version 2.4 and older, and 543.0 of one program. Up to 2.2 the two lengths of a packet were swapped.
        let version = (header.version_major, header.version_minor);
        if !matches!(version, (2, 3 | 4) | (543, 0)) {
            let (major, minor) = version;
            return Err(input.malformed(format!("pcap version {major}.{minor}; 2.4 is known")));
        }
        let network = header.network.0 as u32;
        if network & RESERVED_BITS != 0 {
            let what = format!("reserved bits beside the link type ({network:#010x})");
            return Err(input.malformed(what));
        }
        input.skip(FILE_HEADER_LEN);
        let mut whole = [0; FILE_HEADER_LEN];
        whole.copy_from_slice(&start);
        interfaces.push(InterfaceDescription {
            linktype: network as u16,
            link_extension: network & !0xffff,
            snaplen: header.snaplen,
            resolution,
            ..InterfaceDescription::default()
        });
        Ok(Self { header: whole, big_endian, resolution })
    }

    pub(super) fn nanoseconds(&self) -> bool {
        self.resolution == Resolution::Decimal(9)
    }

    /// The next packet, and its record as it is in the file.
    pub(super) fn next<'a>(&self, input: &'a mut Input) -> Result<Option<(Record<'a>, &'a [u8])>> {
        if input.peek(1)?.is_empty() {
            return Ok(None);
        }
        let header = input.whole(RECORD_HEADER_LEN, "packet header")?;
        let field = [header[8], header[9], header[10], header[11]];
        let length =
            if self.big_endian { u32::from_be_bytes(field) } else { u32::from_le_bytes(field) };
        if length > MAX_PACKET_LEN {
            return Err(input.malformed(format!(
                "a packet says it has {length} bytes; the maximum is {MAX_PACKET_LEN}"
            )));
        }
        input.lend(RECORD_HEADER_LEN + length as usize, "packet")?;
        let input: &'a Input = input;
        let parse = if self.big_endian { parse_pcap_frame_be } else { parse_pcap_frame };
        let (_, block) = parse(input.lent()).map_err(|_| input.malformed("not a packet record"))?;
        Ok(Some((self.record(&block), input.lent())))
    }

    fn record<'a>(&self, block: &LegacyPcapBlock<'a>) -> Record<'a> {
        let fraction = self.resolution.timestamp(u64::from(block.ts_usec), i64::from(block.ts_sec));
        let mut frame = Frame::new(block.data);
        frame.wire_len = block.origlen;
        frame.timestamp = Some(fraction);
        Record { frame, interface: 0, comment: None }
    }
}
