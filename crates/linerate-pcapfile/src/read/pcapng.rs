//! pcapng: blocks of a type and a length, packets among them.

use std::borrow::Cow;

use linerate_wire::frame::{Direction, Frame, Timestamp};
use pcap_parser::{
    Block, InterfaceDescriptionBlock, InterfaceStatisticsBlock, PcapNGOption, parse_block_be,
    parse_block_le,
};

use super::input::{BorrowedRecord, Input};
use crate::format::pcapng::{
    BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE_DESCRIPTION, INTERFACE_STATISTICS,
    OBSOLETE_PACKET, PACKET_HEADER_LEN, SECTION_HEADER, SIMPLE_PACKET,
};
use crate::{InterfaceDescription, InterfaceStatistics, Record, Resolution, Result};

/// The longest block that is accepted: well above any packet, and above the name and secret blocks that
/// programs write.
const MAX_BLOCK_LEN: u32 = 64 << 20;

/// Bytes of an interface description before its options.
const INTERFACE_HEADER_LEN: usize = 16;

/// `if_tsresol` and `if_tsoffset`.
const RESOLUTION: usize = 9;
const OFFSET: usize = 14;

/// Where in the file's sections the reader is.
#[derive(Default)]
pub(super) struct State {
    pub(super) big_endian: bool,
    /// Index of the current section's first interface: numbering restarts in each section.
    first_interface: usize,
}

/// A block as it is in the file.
pub(super) struct RawBlock<'a> {
    /// The number of its type.
    pub(super) number: u32,
    pub(super) bytes: &'a [u8],
    /// The packet, if it is one.
    pub(super) record: Option<Record<'a>>,
}

fn is_packet(block_type: u32) -> bool {
    matches!(block_type, ENHANCED_PACKET | SIMPLE_PACKET | OBSOLETE_PACKET)
}

/// Whether a file that starts like this is pcapng.
pub(super) fn recognises(start: &[u8]) -> bool {
    start == SECTION_HEADER.to_be_bytes()
}

impl State {
    /// Reads the blocks before the first packet: the section header, interface descriptions, and
    /// perhaps names, secrets and statistics.
    pub(super) fn open(
        &mut self,
        input: &mut Input,
        interfaces: &mut Vec<InterfaceDescription>,
    ) -> Result<()> {
        while let Some((block_type, length)) = self.block_header(input)? {
            if is_packet(block_type) {
                break;
            }
            self.describe(block_type, length, input, interfaces)?;
            input.skip(length);
        }
        Ok(())
    }

    /// The next packet; blocks before it are parsed or skipped.
    pub(super) fn next<'a>(
        &mut self,
        input: &'a mut Input,
        interfaces: &mut Vec<InterfaceDescription>,
    ) -> Result<Option<BorrowedRecord<'a>>> {
        let (block_type, length) = loop {
            let Some((block_type, length)) = self.block_header(input)? else { return Ok(None) };
            if is_packet(block_type) {
                break (block_type, length);
            }
            self.describe(block_type, length, input, interfaces)?;
            input.skip(length);
        };
        self.lend(block_type, length, input, interfaces).map(Some)
    }

    /// The next block, whatever it is.
    pub(super) fn next_block<'a>(
        &mut self,
        input: &'a mut Input,
        interfaces: &mut Vec<InterfaceDescription>,
    ) -> Result<Option<RawBlock<'a>>> {
        let Some((block_type, length)) = self.block_header(input)? else { return Ok(None) };
        if is_packet(block_type) {
            let BorrowedRecord { record, bytes, .. } =
                self.lend(block_type, length, input, interfaces)?;
            return Ok(Some(RawBlock { number: block_type, bytes, record: Some(record) }));
        }
        self.describe(block_type, length, input, interfaces)?;
        input.lend_other(length);
        Ok(Some(RawBlock { number: block_type, bytes: input.lent(), record: None }))
    }

    /// The packet block at the current position.
    fn lend<'a>(
        &self,
        block_type: u32,
        length: usize,
        input: &'a mut Input,
        interfaces: &[InterfaceDescription],
    ) -> Result<BorrowedRecord<'a>> {
        input.lend(length, "packet block")?;
        let input: &'a Input = input;
        let parsed = if block_type == OBSOLETE_PACKET {
            obsolete_packet(input.lent(), self.big_endian, &interfaces[self.first_interface..])
        } else {
            self.parse(input.lent())
                .and_then(|block| self.packet(block, &interfaces[self.first_interface..]))
        };
        let (mut record, index) = parsed.map_err(|what| input.malformed(what))?;
        record.interface = (self.first_interface + index) as u32;
        Ok(BorrowedRecord { record, bytes: input.lent(), offsets: input.offsets() })
    }

    /// Type and length of the next block, checked; `None` at the end of the file.
    fn block_header(&mut self, input: &mut Input) -> Result<Option<(u32, usize)>> {
        if input.peek(1)?.is_empty() {
            return Ok(None);
        }
        let header = input.whole(12, "block header")?;
        let words: [[u8; 4]; 3] =
            std::array::from_fn(|word| std::array::from_fn(|byte| header[word * 4 + byte]));
        if u32::from_be_bytes(words[0]) == SECTION_HEADER {
            self.big_endian = match words[2] {
                magic if magic == BYTE_ORDER_MAGIC.to_be_bytes() => true,
                magic if magic == BYTE_ORDER_MAGIC.to_le_bytes() => false,
                _ => return Err(input.malformed("a section header without the byte-order magic")),
            };
        }
        let (block_type, length) = (self.word(words[0]), self.word(words[1]));
        if !(12..=MAX_BLOCK_LEN).contains(&length) || !length.is_multiple_of(4) {
            return Err(input.malformed(format!(
                "a block of type {block_type:#x} says it is {length} bytes long; \
                 multiples of 4 from 12 to {MAX_BLOCK_LEN} are possible"
            )));
        }
        Ok(Some((block_type, length as usize)))
    }

    pub(super) fn word(&self, bytes: [u8; 4]) -> u32 {
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    /// Parses a block that is not a packet: sections and interfaces change the meaning of later blocks;
    /// other blocks are ignored.
    fn describe(
        &mut self,
        block_type: u32,
        length: usize,
        input: &mut Input,
        interfaces: &mut Vec<InterfaceDescription>,
    ) -> Result<()> {
        let bytes = input.whole(length, "block")?;
        match block_type {
            SECTION_HEADER => {
                match self.parse(bytes) {
                    // As libpcap: 1.0, and 1.2, which some programs wrote.
                    Ok(Block::SectionHeader(section))
                        if !matches!(
                            (section.major_version, section.minor_version),
                            (1, 0 | 2)
                        ) =>
                    {
                        let (major, minor) = (section.major_version, section.minor_version);
                        let what = format!("pcapng version {major}.{minor}; 1.0 is known");
                        return Err(input.malformed(what));
                    }
                    Ok(_) => {}
                    Err(what) => return Err(input.malformed(what)),
                }
                self.first_interface = interfaces.len();
            }
            INTERFACE_DESCRIPTION => match self.parse(bytes) {
                Ok(Block::InterfaceDescription(block)) => {
                    let options = bytes.get(INTERFACE_HEADER_LEN..length - 4).unwrap_or_default();
                    let checked = self.check_options(options);
                    let interface = describe_interface(&block, self.big_endian);
                    checked.map_err(|what| input.malformed(what))?;
                    interfaces.push(interface);
                }
                Ok(_) => return Err(input.malformed("not an interface description")),
                Err(what) => return Err(input.malformed(what)),
            },
            INTERFACE_STATISTICS => {
                // Statistics are optional: a broken block costs no packet.
                if let Ok(Block::InterfaceStatistics(block)) = self.parse(bytes)
                    && let Some(interface) =
                        interfaces.get_mut(self.first_interface + block.if_id as usize)
                {
                    let statistics = statistics(&block, interface, self.big_endian);
                    interface.statistics = Some(Box::new(statistics));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Refuses options of an interface as libpcap does: without them the times of its packets may be wrong.
    fn check_options(&self, options: &[u8]) -> std::result::Result<(), String> {
        let (mut at, mut seen) = (0, Vec::new());
        while at < options.len() {
            let number = |at: usize| {
                let bytes = options.get(at..at + 2)?;
                Some(unsigned(bytes, self.big_endian) as usize)
            };
            let (Some(code), Some(length)) = (number(at), number(at + 2)) else {
                return Err("an option of an interface is cut off".into());
            };
            let takes = match code {
                0 => Some(0),
                RESOLUTION => Some(1),
                OFFSET => Some(8),
                _ => None,
            };
            at += 4 + length.next_multiple_of(4);
            if takes.is_some_and(|takes| takes != length) || at > options.len() {
                return Err(format!("option {code} of an interface with {length} bytes"));
            }
            if takes.is_some() && seen.contains(&code) {
                return Err(format!("option {code} of an interface comes twice"));
            }
            if code == 0 {
                break;
            }
            seen.extend(takes.map(|_| code));
        }
        Ok(())
    }

    fn parse<'a>(&self, bytes: &'a [u8]) -> std::result::Result<Block<'a>, String> {
        let parse = if self.big_endian { parse_block_be } else { parse_block_le };
        parse(bytes).map(|(_, block)| block).map_err(|_| {
            format!("the fields of a block of {} bytes contradict its length", bytes.len())
        })
    }

    /// A packet block as a record, and the number of its interface within the section.
    fn packet<'a>(
        &self,
        block: Block<'a>,
        interfaces: &[InterfaceDescription],
    ) -> std::result::Result<(Record<'a>, usize), String> {
        match block {
            Block::EnhancedPacket(block) => {
                let index = block.if_id as usize;
                let interface = known(interfaces, index)?;
                let data = cut(block.data, block.caplen)?;
                let mut frame = Frame::new(data);
                frame.wire_len = block.origlen;
                frame.timestamp = Some(timestamp(interface, block.ts_high, block.ts_low));
                let mut record = Record { frame, interface: 0, comment: None };
                self.packet_options(&block.options, &mut record);
                Ok((record, index))
            }
            Block::SimplePacket(block) => {
                let interface = known(interfaces, 0)?;
                let limit = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
                let length = block.origlen.min(limit).min(block.data.len() as u32);
                let mut frame = Frame::new(cut(block.data, length)?);
                frame.wire_len = block.origlen.max(length);
                Ok((Record { frame, interface: 0, comment: None }, 0))
            }
            _ => Err("not a packet block".into()),
        }
    }

    fn packet_options<'a>(&self, options: &[PcapNGOption<'a>], record: &mut Record<'a>) {
        for option in options {
            let Some(value) = borrowed(option) else { continue };
            match option.code.0 {
                0 => break,
                1 if record.comment.is_none() => record.comment = std::str::from_utf8(value).ok(),
                2 => {
                    record.frame.direction = match unsigned(value, self.big_endian) & 0b11 {
                        1 => Direction::Inbound,
                        2 => Direction::Outbound,
                        _ => Direction::Unknown,
                    };
                }
                6 => record.frame.queue = unsigned(value, self.big_endian) as u16,
                _ => {}
            }
        }
    }
}

/// The packet block that pcapng had before the enhanced one.
fn obsolete_packet<'a>(
    block: &'a [u8],
    big_endian: bool,
    interfaces: &[InterfaceDescription],
) -> std::result::Result<(Record<'a>, usize), String> {
    if block.len() < PACKET_HEADER_LEN + 4 {
        return Err(format!("a packet block of {} bytes has no room for its fields", block.len()));
    }
    let field = |at: usize, length: usize| unsigned(&block[at..at + length], big_endian) as u32;
    let index = field(8, 2) as usize;
    let interface = known(interfaces, index)?;
    let captured = field(20, 4);
    let mut frame = Frame::new(cut(&block[PACKET_HEADER_LEN..block.len() - 4], captured)?);
    frame.wire_len = field(24, 4);
    frame.timestamp = Some(timestamp(interface, field(12, 4), field(16, 4)));
    Ok((Record { frame, interface: 0, comment: None }, index))
}

fn known(
    interfaces: &[InterfaceDescription],
    index: usize,
) -> std::result::Result<&InterfaceDescription, String> {
    interfaces.get(index).ok_or_else(|| {
        format!("a packet of interface {index}, but the section describes {}", interfaces.len())
    })
}

fn cut(data: &[u8], length: u32) -> std::result::Result<&[u8], String> {
    data.get(..length as usize).ok_or_else(|| {
        format!("a packet says it has {length} bytes, but its block has room for {}", data.len())
    })
}

fn timestamp(interface: &InterfaceDescription, high: u32, low: u32) -> Timestamp {
    let ticks = u64::from(high) << 32 | u64::from(low);
    interface.resolution.timestamp(ticks, interface.offset)
}

fn describe_interface(
    block: &InterfaceDescriptionBlock<'_>,
    big_endian: bool,
) -> InterfaceDescription {
    let mut interface = InterfaceDescription {
        linktype: block.linktype.0 as u16,
        snaplen: block.snaplen,
        ..InterfaceDescription::default()
    };
    for option in &block.options {
        let Some(value) = borrowed(option) else { continue };
        match option.code.0 {
            0 => break,
            1 => interface.comment = interface.comment.or_else(|| text(value)),
            2 => interface.name = text(value),
            3 => interface.description = text(value),
            9 => {
                if let [exponent, ..] = value {
                    interface.resolution = Resolution::from_option(*exponent);
                }
            }
            // The first byte says what the filter is: 0 is text.
            11 => interface.filter = value.strip_prefix(&[0]).and_then(text),
            12 => interface.os = text(value),
            14 => interface.offset = unsigned(value, big_endian) as i64,
            _ => {}
        }
    }
    interface
}

fn statistics(
    block: &InterfaceStatisticsBlock<'_>,
    interface: &InterfaceDescription,
    big_endian: bool,
) -> InterfaceStatistics {
    let mut statistics = InterfaceStatistics::default();
    for option in &block.options {
        let Some(value) = borrowed(option) else { continue };
        let count = || (value.len() == 8).then(|| unsigned(value, big_endian));
        let time = || {
            let (high, low) = (value.get(..4)?, value.get(4..8)?);
            let half = |bytes| unsigned(bytes, big_endian) as u32;
            Some(timestamp(interface, half(high), half(low)))
        };
        match option.code.0 {
            0 => break,
            1 => statistics.comment = statistics.comment.or_else(|| text(value)),
            2 => statistics.start = time(),
            3 => statistics.end = time(),
            4 => statistics.received = count(),
            5 => statistics.interface_dropped = count(),
            6 => statistics.filter_accepted = count(),
            7 => statistics.system_dropped = count(),
            8 => statistics.delivered = count(),
            _ => {}
        }
    }
    statistics
}

/// An option's value without its padding; the parser never owns one.
fn borrowed<'a>(option: &PcapNGOption<'a>) -> Option<&'a [u8]> {
    match option.value {
        Cow::Borrowed(value) => value.get(..usize::from(option.len)),
        Cow::Owned(_) => None,
    }
}

fn text(value: &[u8]) -> Option<String> {
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Up to eight bytes as a number.
fn unsigned(value: &[u8], big_endian: bool) -> u64 {
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    let value = &value[..value.len().min(8)];
    if big_endian { value.iter().fold(0, add) } else { value.iter().rev().fold(0, add) }
}
