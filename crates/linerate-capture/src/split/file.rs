//! From one capture file into another.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use linerate_pcapfile::edit::{RawRecord, options};
use linerate_pcapfile::{
    Block, BlockReader, BlockType, Encoder, Error as FileError, Format, InterfaceDescription,
    PacketOptions, Record, Resolution, SectionHeader, Writer,
};
use serde::Serialize;

use super::join::{JoinOptions, Joiner};
use super::statistics::{JoinStatistics, SplitStatistics};
use super::{Decision, SplitOptions, TunnelPorts, completed, link};
use crate::engine::{Cpu, Outcome, description};
use crate::filter::{FilterCache, TagReading};
use crate::{Error, Result};

/// What to do with the packets of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Super-packets become frames.
    Split(SplitOptions),
    /// Frames become super-packets.
    Join(JoinOptions),
}

/// A file to make from another.
pub struct Rewrite {
    /// The file to read.
    pub input: BlockReader,
    /// The file to write.
    pub output: Writer,
    /// Whether that is pcapng. Where the formats are the same, everything except the packets that change
    /// is copied byte for byte.
    pub pcapng: bool,
    /// What to do.
    pub operation: Operation,
    /// Which datagrams are tunnels.
    pub ports: TunnelPorts,
    /// Only packets that match are split or joined.
    pub filters: FilterCache,
    /// Fill in checksums that a sender left to its network card, also in packets that stay whole.
    pub fix_checksums: bool,
    /// The section header of a pcapng file that is made from a pcap file.
    pub section: SectionHeader,
}

/// The filters for the expression of a rewrite; setting `stop` ends a compilation.
pub fn filters(text: Option<&str>, stop: Arc<AtomicBool>) -> FilterCache {
    FilterCache::new(text, TagReading::File, MIN_SNAPLEN, stop)
}

/// What was done; serialises to the command's JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Packets read.
    pub read: u64,
    /// Packets written.
    pub written: u64,
    /// Packets that did not get into the file.
    pub unwritten: u64,
    /// What was split.
    #[serde(flatten)]
    pub split: SplitStatistics,
    /// What was joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined: Option<JoinStatistics>,
    /// Seconds that it took.
    pub seconds: f64,
    /// The file written.
    pub file: PathBuf,
    /// Bytes in it.
    pub file_bytes: u64,
    /// Processor time of the process in seconds.
    pub cpu: Cpu,
    /// The reader of the pipe went away.
    #[serde(skip)]
    pub pipe_closed: bool,
}

/// How far it is, for other threads; packets that are held back count as written.
#[derive(Debug)]
pub struct Progress {
    read: AtomicU64,
    written: AtomicU64,
    consumed: Arc<AtomicU64>,
    size: Option<u64>,
}

impl Progress {
    /// For this rewrite.
    pub fn of(rewrite: &Rewrite) -> Self {
        let (consumed, size) = (rewrite.input.consumed(), rewrite.input.size());
        Self { read: AtomicU64::new(0), written: AtomicU64::new(0), consumed, size }
    }

    /// Packets read.
    pub fn packets_read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Packets made from them.
    pub fn packets_written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Bytes of the file that were read, and how many there are, where that is known.
    pub fn position(&self) -> (u64, Option<u64>) {
        (self.consumed.load(Relaxed), self.size)
    }
}

/// Rewrites a file until its end or until `stop`. After a failure, everything that was read before is in
/// the output.
pub fn rewrite(rewrite: Rewrite, stop: &AtomicBool, progress: &Progress) -> Outcome<Report> {
    let start = Instant::now();
    let Rewrite {
        mut input,
        output,
        pcapng,
        operation,
        ports,
        mut filters,
        fix_checksums,
        section,
    } = rewrite;
    let from_pcapng = input.format() == Format::Pcapng;
    let (split, joiner) = match operation {
        Operation::Split(options) => (Some(options), None),
        Operation::Join(options) => (None, Some(Joiner::new(options, ports))),
    };
    let mut rewriter = Rewriter {
        output,
        conversion: match (from_pcapng, pcapng) {
            (false, true) => Conversion::ToPcapng,
            (true, false) => Conversion::ToPcap { header: None },
            _ => Conversion::None,
        },
        split,
        joiner,
        ports,
        fix_checksums,
        section,
        statistics: SplitStatistics::default(),
        scratch: Scratch::default(),
        made: 0,
    };
    let mut read = 0;
    let copied = rewriter.copy(&mut input, &mut filters, &mut read, stop, progress);
    let finished = rewriter.finish();
    let written = rewriter.output.packets();
    let joined = rewriter.joiner.as_ref().map(Joiner::statistics);
    // Joined frames are one packet in the output.
    let gone = joined.map_or(0, |joined| joined.frames - joined.super_packets);
    // A full disk explains more than the end of the input that it caused.
    let failure = finished.err().or(copied.err());
    let pipe_closed = failure.as_ref().is_some_and(Error::is_broken_pipe);
    let report = Report {
        read,
        written,
        unwritten: rewriter.made - gone - written,
        split: rewriter.statistics,
        joined,
        seconds: start.elapsed().as_secs_f64(),
        file: rewriter.output.path().to_owned(),
        file_bytes: rewriter.output.bytes_written(),
        cpu: Cpu::now(),
        pipe_closed,
    };
    Outcome { report, failure: failure.filter(|_| !pipe_closed) }
}

/// The least snapshot length of a file whose packets were joined: readers cut longer packets.
const MIN_SNAPLEN: u32 = 262_144;

/// How the format of records changes.
enum Conversion {
    /// Not at all.
    None,
    ToPcapng,
    /// With precision and link type, once the first interface is known.
    ToPcap {
        header: Option<(bool, u16)>,
    },
}

#[derive(Default)]
struct Scratch {
    /// A record in the other format.
    converted: Vec<u8>,
    /// A record with its checksum.
    completed: Vec<u8>,
    /// A packet that the capture cut, with zeroes for what is missing.
    padded: Vec<u8>,
}

struct Rewriter {
    output: Writer,
    conversion: Conversion,
    split: Option<SplitOptions>,
    joiner: Option<Joiner>,
    ports: TunnelPorts,
    fix_checksums: bool,
    section: SectionHeader,
    statistics: SplitStatistics,
    scratch: Scratch,
    /// Packets made, also those that are held back.
    made: u64,
}

impl Rewriter {
    fn copy(
        &mut self,
        input: &mut BlockReader,
        filters: &mut FilterCache,
        read: &mut u64,
        stop: &AtomicBool,
        progress: &Progress,
    ) -> Result<()> {
        let mut checked = false;
        while !stop.load(Relaxed) {
            // A reader of the output must not wait for what a pipe has not delivered yet.
            if input.size().is_none() && !input.is_ready() {
                self.output.flush()?;
            }
            let (block, interfaces) = match input.next() {
                Ok(Some(next)) => next,
                Ok(None) | Err(FileError::Cancelled { .. }) => break,
                Err(error) => return Err(error.into()),
            };
            match &block.record {
                None => self.describe(&block, interfaces)?,
                Some(record) => {
                    *read += 1;
                    progress.read.store(*read, Relaxed);
                    let interface = &interfaces[record.interface as usize];
                    let mut gathered = Vec::new();
                    let bytes = record.frame.contiguous(&mut gathered);
                    let filter = filters.of(interface.linktype, block.big_endian)?;
                    checked = true;
                    let wanted = filter.is_none_or(|one| one.matches(&record.frame, bytes));
                    self.packet(&block, record, interface, wanted)?;
                    progress.written.store(self.made, Relaxed);
                }
            }
            if let Some(joiner) = &mut self.joiner {
                joiner.drain(&mut self.output)?;
            }
        }
        if !checked {
            // An expression with a mistake is refused also for an empty file.
            filters.of(link::ETHERNET, input.is_big_endian())?;
        }
        if let Conversion::ToPcap { header: None } = self.conversion {
            self.pcap_header(&InterfaceDescription {
                linktype: link::ETHERNET,
                ..InterfaceDescription::default()
            })?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(joiner) = &mut self.joiner {
            joiner.flush();
            joiner.drain(&mut self.output)?;
        }
        Ok(self.output.flush()?)
    }

    /// A block that is not a packet: copied, with changes where it would be wrong.
    fn describe(&mut self, block: &Block<'_>, interfaces: &[InterfaceDescription]) -> Result<()> {
        match self.conversion {
            Conversion::ToPcap { .. } => return Ok(()),
            Conversion::ToPcapng => {
                let describe = |interface: &InterfaceDescription| InterfaceDescription {
                    snaplen: self.snaplen(interface.snaplen),
                    ..description(interface, None, u32::MAX)
                };
                let interfaces: Vec<_> = interfaces.iter().map(describe).collect();
                let encoder = encoder(Format::Pcapng, u32::MAX);
                let (output, section) = (&mut self.output, &self.section);
                return Ok(output.write_record(false, |out| {
                    encoder.encode_file_header(out, section, &interfaces);
                })?);
            }
            Conversion::None => {}
        }
        let mut bytes = block.bytes.to_vec();
        let mut put_word = |at: usize, change: &dyn Fn(u32) -> u32| {
            let Some(field) = bytes.get_mut(at..at + 4) else { return };
            let old: [u8; 4] = [field[0], field[1], field[2], field[3]];
            let new = match block.big_endian {
                true => change(u32::from_be_bytes(old)).to_be_bytes(),
                false => change(u32::from_le_bytes(old)).to_le_bytes(),
            };
            field.copy_from_slice(&new);
        };
        match block.block_type {
            // The length of the section changes; all ones leave it open.
            BlockType::SectionHeader => {
                [16, 20].into_iter().for_each(|at| put_word(at, &|_| u32::MAX));
            }
            BlockType::InterfaceDescription => put_word(12, &|old| self.snaplen(old)),
            BlockType::PcapHeader => put_word(16, &|old| self.snaplen(old)),
            _ => {}
        }
        let Block { block_type, big_endian, .. } = *block;
        let record = RawRecord { bytes: &bytes, block_type, big_endian, captured: 0 };
        match &mut self.joiner {
            Some(joiner) => joiner.pass(&record, false),
            None => self.output.write_record(false, |out| out.extend_from_slice(record.bytes))?,
        }
        Ok(())
    }

    /// The snapshot length of an interface that had this one; 0 stands for none.
    fn snaplen(&self, before: u32) -> u32 {
        match before {
            1.. if self.joiner.is_some() => before.max(MIN_SNAPLEN),
            _ => before,
        }
    }

    fn pcap_header(&mut self, interface: &InterfaceDescription) -> Result<()> {
        let nanoseconds = match interface.resolution {
            Resolution::Decimal(exponent) => exponent > 6,
            Resolution::Binary(_) => true,
        };
        self.conversion = Conversion::ToPcap { header: Some((nanoseconds, interface.linktype)) };
        let snaplen = match self.snaplen(interface.snaplen) {
            0 => MIN_SNAPLEN,
            snaplen => snaplen,
        };
        let encoder = encoder(Format::Pcap { nanoseconds }, snaplen);
        let (output, section) = (&mut self.output, &self.section);
        let interfaces = std::slice::from_ref(interface);
        Ok(output
            .write_record(false, |out| encoder.encode_file_header(out, section, interfaces))?)
    }

    fn packet(
        &mut self,
        block: &Block<'_>,
        record: &Record<'_>,
        interface: &InterfaceDescription,
        wanted: bool,
    ) -> Result<()> {
        if let Conversion::ToPcap { header: None } = self.conversion {
            self.pcap_header(interface)?;
        }
        let format = match self.conversion {
            Conversion::None => None,
            Conversion::ToPcapng => Some(Format::Pcapng),
            Conversion::ToPcap { header } => {
                let (nanoseconds, linktype) = header.unwrap_or_default();
                if linktype != interface.linktype {
                    return Err(Error::LinkLayers);
                }
                Some(Format::Pcap { nanoseconds })
            }
        };
        // Taken out: its buffers are borrowed while the rest of `self` changes.
        let mut scratch = std::mem::take(&mut self.scratch);
        let captured = record.frame.len();
        let raw = match format {
            None => {
                let Block { bytes, block_type, big_endian, .. } = *block;
                RawRecord { bytes, block_type, big_endian, captured }
            }
            Some(format) => {
                scratch.converted.clear();
                encoder(format, u32::MAX).encode(&mut scratch.converted, record);
                let block_type = match format {
                    Format::Pcapng => BlockType::EnhancedPacket,
                    Format::Pcap { .. } => BlockType::PcapRecord,
                };
                RawRecord { bytes: &scratch.converted, block_type, big_endian: false, captured }
            }
        };
        let (completed, padded) = (&mut scratch.completed, &mut scratch.padded);
        let done = match (wanted, self.split) {
            (false, _) => self.pass(&raw),
            (true, Some(options)) => {
                self.split(&options, &raw, (record, interface), completed, padded)
            }
            (true, None) => {
                let raw = self.complete(raw, record, interface, completed);
                if let Some(joiner) = &mut self.joiner {
                    let time = record.frame.timestamp.unwrap_or_default().0;
                    let interface = (record.interface, interface.linktype);
                    joiner.push(&raw, record.frame.wire_len, interface, time);
                    self.made += 1;
                }
                Ok(())
            }
        };
        self.scratch = scratch;
        done
    }

    /// Passes a packet on unchanged.
    fn pass(&mut self, raw: &RawRecord<'_>) -> Result<()> {
        self.made += 1;
        match &mut self.joiner {
            Some(joiner) => joiner.pass(raw, true),
            None => self.output.write_record(true, |out| out.extend_from_slice(raw.bytes))?,
        }
        Ok(())
    }

    fn split(
        &mut self,
        options: &SplitOptions,
        raw: &RawRecord<'_>,
        (record, interface): (&Record<'_>, &InterfaceDescription),
        completed: &mut Vec<u8>,
        padded: &mut Vec<u8>,
    ) -> Result<()> {
        let wire_len = record.frame.wire_len as usize;
        let packet = raw.packet();
        let cut = packet.len() < wire_len;
        let decision = match link::packet(interface.linktype, packet) {
            Some((prefix, link)) => {
                let rest = wire_len.saturating_sub(prefix);
                let decision = options.decide(&packet[prefix..], link, self.ports, rest, padded);
                match decision {
                    // Its record has no length of what was captured.
                    Decision::Split(..) if cut && raw.block_type == BlockType::SimplePacket => {
                        (prefix, Decision::Refuse(super::UnsplitReason::Truncated))
                    }
                    decision => (prefix, decision),
                }
            }
            None if wire_len > usize::from(options.mtu) + MAX_LINK_HEADER_LEN => {
                (0, Decision::Refuse(super::UnsplitReason::LinkType))
            }
            None => (0, Decision::Keep),
        };
        let (prefix, mut segments, mut left) = match decision {
            (prefix, Decision::Split(segments, kept)) => (prefix, segments, kept),
            (_, decision) => {
                if let Decision::Refuse(reason) = decision {
                    self.statistics.refused.add(reason);
                }
                let raw = self.complete(*raw, record, interface, completed);
                return self.pass(&raw);
            }
        };
        self.statistics.super_packets += 1;
        self.statistics.cut += u64::from(cut);
        let mut first = true;
        while let Some(parts) = segments.next_view() {
            let kept = parts.payload.len().min(left);
            left -= kept;
            let all = [&packet[..prefix], parts.header, &parts.payload[..kept]];
            let wire_len = prefix + parts.header.len() + parts.payload.len();
            self.output.write_record(true, |out| {
                let start = out.len();
                raw.put(out, &all, wire_len, |out| {
                    options::append_segment_options(out, raw.options(), raw.big_endian, first);
                });
                if !first {
                    raw.clear_drop_count(out, start);
                }
            })?;
            self.statistics.segments += 1;
            self.made += 1;
            first = false;
        }
        Ok(())
    }

    /// The record with the checksum that its packet lacks, if checksums are to be fixed.
    fn complete<'t>(
        &mut self,
        raw: RawRecord<'t>,
        record: &Record<'_>,
        interface: &InterfaceDescription,
        out: &'t mut Vec<u8>,
    ) -> RawRecord<'t> {
        let packet = raw.packet();
        let whole = packet.len() as u64 >= u64::from(record.frame.wire_len);
        let Some((prefix, link)) =
            link::packet(interface.linktype, packet).filter(|_| self.fix_checksums && whole)
        else {
            return raw;
        };
        let Some(mut segments) = completed(&packet[prefix..], link, self.ports) else { return raw };
        let Some(parts) = segments.next_view() else { return raw };
        self.statistics.checksums += 1;
        // Lengths stay, and with them everything around the headers.
        out.clear();
        out.extend_from_slice(raw.bytes);
        let start = raw.data().start + prefix;
        out[start..start + parts.header.len()].copy_from_slice(parts.header);
        RawRecord { bytes: out, ..raw }
    }
}

/// The encoder of packets whose format changes.
fn encoder(format: Format, snaplen: u32) -> Encoder {
    Encoder { format, snaplen, options: PacketOptions { direction: true, queue: false } }
}

/// A packet of an unknown link type is too long if it is longer than the MTU and this.
const MAX_LINK_HEADER_LEN: usize = 64;
