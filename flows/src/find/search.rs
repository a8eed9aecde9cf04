//! Reads packet files, and writes the packets that are wanted in the order of time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Cursor, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow};
use linerate_flow::community_id::community_id;
use linerate_flow::{FlowKey, meter};
use linerate_pcapfile::write::PacketOptions;
use linerate_pcapfile::{
    BlockReader, Compression, Encoder, Error as FileError, Format, InterfaceDescription, Record,
    SectionHeader, Writer,
};
use linerate_wire::ethernet::EtherType;
use linerate_wire::frame::Frame;
use linerate_wire::layers::{Layers, Network};
use pcap::{BpfInstruction, BpfProgram, Capture};
use tempfile::NamedTempFile;

use super::beginning::Beginning;
use super::expected::{Expected, RESOLUTION};
use super::later::Period;
use super::parts::FileParts;
use super::{Options, open};
use crate::time::Range;

/// The longest frame of a filter that reads its length, in bytes: as long a one as tools read.
const MAX_FRAME: usize = 1 << 18;

/// The packets found so far, as blocks of pcapng in a file without a name.
pub(super) struct Search {
    filter: String,
    community_id: Option<String>,
    range: Range,
    pub(super) expected: Expected,
    /// Only packets of the records are taken.
    only_expected: bool,
    /// The sensors of this file, in words.
    sensor: Option<String>,
    /// The filter by link type.
    programs: HashMap<u16, Program>,
    interfaces: Vec<InterfaceDescription>,
    encoder: Encoder,
    blocks: BufWriter<File>,
    written: u64,
    /// Time, location and length of each block. The sort is stable: packets of one instant stay in the order of files.
    index: Vec<(u64, u64, u32)>,
    buffer: Vec<u8>,
}

/// How a file was searched.
#[derive(Debug)]
pub(super) struct Searched {
    /// Bytes of the file that were read, however often.
    pub(super) bytes: u64,
    /// It has not the packets that its records point at.
    pub(super) replaced: bool,
    /// Why it was not read to its end.
    pub(super) damage: Option<FileError>,
}

/// Not an error of a packet file: no other one could be searched, either.
#[derive(Debug)]
pub(super) struct NoTemporaryFile;

impl fmt::Display for NoTemporaryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot write a temporary file")
    }
}

/// How the reading of a stream ended.
enum End {
    /// All of it was read, perhaps but for a packet that is cut off.
    Whole,
    /// It has packets of an interface that it does not describe.
    Undescribed,
    Damaged(FileError),
}

impl Search {
    pub(super) fn new(options: &Options<'_>, expected: Expected) -> Result<Self> {
        let folder =
            options.out.parent().filter(|folder| folder.is_dir()).unwrap_or(Path::new("/tmp"));
        let blocks = tempfile::tempfile_in(folder)
            .with_context(|| format!("cannot write to {}", folder.display()))?;
        let packet_options = PacketOptions { direction: true, queue: false };
        Ok(Self {
            filter: options.filter.to_owned(),
            community_id: options.community_id.map(str::to_owned),
            range: options.range,
            expected,
            only_expected: false,
            sensor: None,
            programs: HashMap::new(),
            interfaces: Vec::new(),
            encoder: Encoder { format: Format::Pcapng, snaplen: u32::MAX, options: packet_options },
            blocks: BufWriter::new(blocks),
            written: 0,
            index: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// Searches parts of a file, or all of it if it is not the file that records point at.
    pub(super) fn file(&mut self, path: &Path, of_path: &FileParts) -> Result<Searched> {
        let FileParts { parts, records, sensors, .. } = of_path;
        let names = sensors.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        self.sensor = (!names.is_empty()).then(|| format!("sensor {names}"));
        self.expected.begin_file();
        self.only_expected = *records == 0;
        let found = self.index.len();
        let size = open(path)?.metadata()?.len();
        let beginning = Beginning::of(path)?;
        let mut misplaced = false;
        if let Some(Beginning { blocks: start, .. }) = &beginning {
            let mut bytes = start.len() as u64;
            let mut whole = false;
            for part in parts {
                let mut file = open(path)?;
                let first = part.first.max(start.len() as u64);
                let length = part.end.unwrap_or(size).min(size).saturating_sub(first);
                file.seek(SeekFrom::Start(first))?;
                bytes += length;
                let stream = Box::new(Cursor::new(start.clone()).chain(file.take(length)));
                // A part may end within a packet that is not wanted; so may a file that is still written.
                let (end, has_record) = self.stream(path, stream, true, part.oldest)?;
                // An interface was described later in the file, or the packets are elsewhere.
                misplaced |= matches!(end, End::Damaged(_)) || !has_record;
                whole = misplaced || matches!(end, End::Undescribed);
                if whole {
                    break;
                }
            }
            if !whole {
                return Ok(Searched { bytes: bytes.min(size), replaced: false, damage: None });
            }
            self.index.truncate(found);
            self.expected.read_again();
        }
        let oldest = parts.iter().filter_map(|part| part.oldest).min_by_key(|period| period.last);
        let cut = beginning.is_some();
        let (end, has_record) = self.stream(path, Box::new(open(path)?), cut, oldest)?;
        let damage = match end {
            End::Damaged(error) => Some(error),
            _ => None,
        };
        let replaced = damage.is_none() && (misplaced || !has_record);
        Ok(Searched { bytes: size, replaced, damage })
    }

    /// Takes what matches from a stream; `cut` says that it may end within a packet. Also says whether a packet of
    /// this period was there.
    fn stream(
        &mut self,
        path: &Path,
        stream: Box<dyn Read + Send>,
        cut: bool,
        period: Option<Period>,
    ) -> Result<(End, bool)> {
        let mut has_period = period.is_none();
        let mut reader = match BlockReader::from_stream(&path.display().to_string(), stream) {
            Ok(reader) => reader,
            Err(error) => return Ok((End::Damaged(error), has_period)),
        };
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        loop {
            let (block, interfaces) = match reader.next() {
                Ok(Some(next)) => next,
                Ok(None) => return Ok((End::Whole, has_period)),
                Err(FileError::Truncated { .. }) if cut => return Ok((End::Whole, has_period)),
                Err(FileError::Malformed { what, .. })
                    if cut && what.starts_with("a packet of interface") =>
                {
                    // The whole file decides whether it has the packet.
                    return Ok((End::Undescribed, true));
                }
                Err(error) => return Ok((End::Damaged(error), has_period)),
            };
            let Some(record) = block.record else { continue };
            let time = record.frame.timestamp.unwrap_or_default().0;
            let nanos = i64::try_from(time).unwrap_or(i64::MAX);
            has_period |= period.is_none_or(|Period { start, last }| {
                record.frame.timestamp.is_none()
                    || (start.saturating_sub(RESOLUTION)..=last.saturating_add(RESOLUTION))
                        .contains(&nanos)
            });
            let described = interfaces.get(record.interface as usize);
            let interface = described
                .ok_or_else(|| anyhow!("{}: a packet without an interface", path.display()))?;
            let Some(layers) = metered(&record.frame, interface.linktype) else { continue };
            let is_expected = self.expected.count(&record.frame, &layers, nanos);
            if self.only_expected && !is_expected
                || self.range.after.is_some_and(|after| nanos < after)
                || self.range.before.is_some_and(|before| nanos >= before)
            {
                continue;
            }
            if let Some(id) = &self.community_id
                && !(is_expected && has_community_id(&record.frame, &layers, id))
            {
                continue;
            }
            let program = program(&mut self.programs, &self.filter, interface.linktype)
                .with_context(|| format!("cannot search {}", path.display()))?;
            if !matches(program, &record.frame, &mut self.buffer) {
                continue;
            }
            let number = *numbers
                .entry(record.interface)
                .or_insert_with(|| number(&mut self.interfaces, interface, self.sensor.as_deref()));
            self.buffer.clear();
            self.encoder.encode(&mut self.buffer, &Record { interface: number, ..record });
            self.blocks.write_all(&self.buffer).context(NoTemporaryFile)?;
            self.index.push((time, self.written, self.buffer.len() as u32));
            self.written += self.buffer.len() as u64;
        }
    }

    /// Writes the file. Returns its packets.
    pub(super) fn finish(mut self, out: &Path) -> Result<u64> {
        self.index.sort_by_key(|(time, ..)| *time);
        if self.interfaces.is_empty() {
            // tcpdump reads no file without an interface.
            self.interfaces.push(InterfaceDescription { linktype: 1, ..Default::default() });
        }
        let mut writer = Writer::create(out, Compression::None, &AtomicBool::new(false))?;
        let application = Some(concat!("linerate-flows ", env!("CARGO_PKG_VERSION")).to_owned());
        let section = SectionHeader { application, ..SectionHeader::default() };
        writer.write_record(false, |bytes| {
            self.encoder.encode_file_header(bytes, &section, &self.interfaces)
        })?;
        let mut blocks = self.blocks.into_inner().context(NoTemporaryFile)?;
        for (_, at, length) in &self.index {
            blocks.seek(SeekFrom::Start(*at))?;
            self.buffer.resize(*length as usize, 0);
            blocks.read_exact(&mut self.buffer).context("cannot read a temporary file")?;
            writer.write_record(true, |bytes| bytes.extend_from_slice(&self.buffer))?;
        }
        writer.flush()?;
        Ok(writer.packets())
    }
}

/// The number of an interface in the file that is written. Its description names the sensor.
fn number(
    interfaces: &mut Vec<InterfaceDescription>,
    interface: &InterfaceDescription,
    sensor: Option<&str>,
) -> u32 {
    let mut interface = InterfaceDescription { statistics: None, ..interface.clone() };
    if let Some(sensor) = sensor {
        interface.description = Some(match interface.description {
            Some(description) => format!("{description}, {sensor}"),
            None => sensor.to_owned(),
        });
    }
    let position = interfaces.iter().position(|one| *one == interface).unwrap_or_else(|| {
        interfaces.push(interface);
        interfaces.len() - 1
    });
    position as u32
}

/// The layers of a frame that a meter counts for a flow: the others (ARP, malformed ones) are in no record. A frame of
/// which the file has only the beginning may have been metered with all its headers.
fn metered(frame: &Frame<'_>, linktype: u16) -> Option<Layers> {
    let layers = meter::layers(frame.head(), linktype)?;
    let is_cut = (frame.head().len() as u64) < u64::from(frame.wire_len);
    let is_metered = match layers.network {
        Network::Ipv4 { .. } | Network::Ipv6 { .. } => is_cut || layers.protocol.is_some(),
        Network::Other => is_cut && matches!(layers.ether_type, EtherType::IPV4 | EtherType::IPV6),
        Network::Arp => false,
    };
    is_metered.then_some(layers)
}

/// Whether a packet of the records has this Community ID. Only the records say it of later fragments.
fn has_community_id(frame: &Frame<'_>, layers: &Layers, id: &str) -> bool {
    let head = frame.head();
    if layers.fragment(head).is_some_and(|fragment| fragment.offset != 0) {
        return true;
    }
    let (Some((source, destination)), Some(protocol)) = (layers.addresses(head), layers.protocol)
    else {
        return false;
    };
    let ports = layers.ports(head).filter(|_| protocol.has_ports());
    let key = FlowKey {
        source,
        destination,
        source_port: ports.map(|(source, _)| source),
        destination_port: ports.map(|(_, destination)| destination),
        icmp_type_code: layers.icmp(head).map(|(kind, code)| u16::from_be_bytes([kind, code])),
        protocol: protocol.0,
        ..FlowKey::default()
    };
    community_id(&key).is_some_and(|found| *found == *id)
}

/// Refuses a filter that libpcap compiles for none of the link types that meters know.
pub(super) fn check(filter: &str) -> Result<()> {
    const LINK_TYPES: [u16; 5] = [1, 276, 113, 101, 0];
    let mut refused = None;
    for linktype in LINK_TYPES {
        match compile(filter, linktype) {
            Ok(_) => return Ok(()),
            Err(error) if error.is::<NoTemporaryFile>() => return Err(error),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    refused.map_or(Ok(()), |error| Err(error.context(format!("libpcap refuses {filter:?}"))))
}

/// A filter for a link type.
struct Program {
    program: BpfProgram,
    /// It reads the length of the frame.
    loads_length: bool,
}

/// Whether a frame matches. The library takes the bytes that it is given for the whole frame: one that was cut gets zeros
/// in place of the rest where the filter asks for its length.
fn matches(filter: &Program, frame: &Frame<'_>, buffer: &mut Vec<u8>) -> bool {
    let (head, wire_len) = (frame.head(), frame.wire_len as usize);
    if !filter.loads_length || head.len() >= wire_len || wire_len > MAX_FRAME {
        return filter.program.filter(head);
    }
    buffer.clear();
    buffer.extend_from_slice(head);
    buffer.resize(wire_len, 0);
    filter.program.filter(buffer)
}

/// Whether `len` is loaded, into the accumulator or the index register.
fn loads_length(one: &BpfInstruction) -> bool {
    let text = one.to_string();
    text.starts_with("128 ") || text.starts_with("129 ")
}

fn program<'p>(
    programs: &'p mut HashMap<u16, Program>,
    filter: &str,
    linktype: u16,
) -> Result<&'p Program> {
    Ok(match programs.entry(linktype) {
        Entry::Occupied(compiled) => compiled.into_mut(),
        Entry::Vacant(vacant) => {
            let program = compile(filter, linktype).with_context(|| {
                format!("libpcap refuses the filter {filter:?} for link type {linktype}")
            })?;
            let loads_length = program.get_instructions().iter().any(loads_length);
            vacant.insert(Program { program, loads_length })
        }
    })
}

/// Compiles a filter for the link type of a file. libpcap's own numbers (DLT) differ from those of files, and it
/// translates them only where it opens a file: it is given the header of one.
fn compile(filter: &str, linktype: u16) -> Result<BpfProgram> {
    let interface = InterfaceDescription { linktype, ..InterfaceDescription::default() };
    let encoder = Encoder {
        format: Format::Pcap { nanoseconds: true },
        snaplen: 1 << 18,
        options: PacketOptions::default(),
    };
    let mut header = Vec::new();
    encoder.encode_file_header(&mut header, &SectionHeader::default(), &[interface]);
    let mut file = NamedTempFile::new().context(NoTemporaryFile)?;
    file.write_all(&header).context(NoTemporaryFile)?;
    Ok(Capture::from_file(file.path())?.compile(filter, true)?)
}
