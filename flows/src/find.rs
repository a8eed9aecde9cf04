//! `find`: from flow records to the packets themselves.
//!
//! A record says in which part of a file its packets are. Only these parts are read, and libpcap decides about each
//! packet in them, so the answer is that of tcpdump over all files.

mod beginning;
mod output;
mod parts;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{BufWriter, Cursor, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, bail};
use datafusion::arrow::array::Array;
use datafusion::common::cast::{as_int64_array, as_string_array, as_uint64_array};
use datafusion::prelude::SessionContext;
use linerate_pcapfile::write::PacketOptions;
use linerate_pcapfile::{
    BlockReader, Compression, Encoder, Error as FileError, Format, InterfaceDescription, Record,
    SectionHeader, Writer,
};
use pcap::{BpfProgram, Capture, Linktype};

use self::beginning::Beginning;
use self::parts::{Part, Parts};
use crate::filter::{self, Meaning};
use crate::queries::condition;
use crate::source::TABLE;
use crate::time::Range;

/// What a search needs.
pub(crate) struct Options<'a> {
    /// The filter as the user wrote it: libpcap reads it, too.
    pub(crate) filter: &'a str,
    pub(crate) range: Range,
    /// Where the packet files are now, if not where the records say.
    pub(crate) folder: Option<&'a Path>,
    pub(crate) out: &'a Path,
}

/// What a search did.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Packets written.
    pub(crate) packets: u64,
    /// Flow records that may have such packets.
    pub(crate) records: u64,
    /// Of these, records that do not say where their packets are.
    pub(crate) without_files: u64,
    /// Packet files read.
    pub(crate) files: u64,
    pub(crate) bytes_read: u64,
    /// Bytes of all packet files in the folders.
    pub(crate) bytes_total: u64,
}

/// Writes the packets of a filter and a range of time, in the order of time.
pub(crate) async fn run(context: &SessionContext, options: &Options<'_>) -> Result<Report> {
    let filter = filter::parse(options.filter)?.context("find needs a filter")?;
    if filter.matches_other_packets() {
        bail!(
            "this filter also matches packets that are in no flow (ARP, say): name a host, net, port or protocol"
        );
    }
    output::check_name(options.out)?;
    let mut report = Report::default();
    let mut parts = Parts::new(options.folder);
    let sql = format!(
        "SELECT arrow_cast(\"packetFile\", 'Utf8') AS file, \"packetOffset\" AS first, \"packetEnd\" AS \"end\", \
         arrow_cast(\"flowEndNanoseconds\", 'Int64') AS last FROM {TABLE} WHERE \"natEvent\" IS NULL AND {}",
        condition(Some(&filter), options.range, Meaning::MayHavePackets)
    );
    let frame = context.sql(&sql).await?;
    for batch in frame.collect().await? {
        let (files, lasts) = (as_string_array(batch.column(0))?, as_int64_array(batch.column(3))?);
        let (firsts, ends) = (as_uint64_array(batch.column(1))?, as_uint64_array(batch.column(2))?);
        for row in 0..batch.num_rows() {
            report.records += 1;
            if !files.is_valid(row) || !firsts.is_valid(row) {
                report.without_files += 1;
                continue;
            }
            let end = ends.is_valid(row).then(|| ends.value(row));
            parts.add(files.value(row), firsts.value(row), end, lasts.value(row))?;
        }
    }
    let parts = parts.finish()?;
    report.bytes_total = parts.bytes_total;
    output::check_inputs(options.out, parts.files.keys())?;
    let mut search = Search::new(options)?;
    for (path, parts) in &parts.files {
        report.files += 1;
        report.bytes_read += search.file(path, parts)?;
    }
    report.packets = search.finish(options.out)?;
    Ok(report)
}

/// The packets found so far, as blocks of pcapng in a file without a name.
struct Search {
    filter: String,
    range: Range,
    /// The filter by link type.
    programs: HashMap<u16, BpfProgram>,
    interfaces: Vec<InterfaceDescription>,
    encoder: Encoder,
    blocks: BufWriter<File>,
    written: u64,
    /// Time, location and length of each block. The sort is stable: packets of one instant stay in the order of files.
    index: Vec<(u64, u64, u32)>,
    buffer: Vec<u8>,
}

impl Search {
    fn new(options: &Options<'_>) -> Result<Self> {
        let folder =
            options.out.parent().filter(|folder| folder.is_dir()).unwrap_or(Path::new("/tmp"));
        let blocks = tempfile::tempfile_in(folder)
            .with_context(|| format!("cannot write to {}", folder.display()))?;
        let packet_options = PacketOptions { direction: true, queue: false };
        Ok(Self {
            filter: options.filter.to_owned(),
            range: options.range,
            programs: HashMap::new(),
            interfaces: Vec::new(),
            encoder: Encoder { format: Format::Pcapng, snaplen: u32::MAX, options: packet_options },
            blocks: BufWriter::new(blocks),
            written: 0,
            index: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// Searches parts of a file. Returns the bytes that were read.
    fn file(&mut self, path: &Path, parts: &[Part]) -> Result<u64> {
        let found = self.index.len();
        let mut read = 0;
        if let Some(Beginning { blocks: start, consumed, .. }) = Beginning::of(path)? {
            read += consumed;
            let size = path.metadata()?.len();
            let mut described = true;
            for part in parts {
                let mut file = open(path)?;
                let first = part.first.max(start.len() as u64);
                let end = part.end.unwrap_or(size).min(size);
                let length = end.saturating_sub(first);
                file.seek(SeekFrom::Start(first))?;
                read += length;
                let stream = Box::new(Cursor::new(start.clone()).chain(file.take(length)));
                // A part may end within a packet that is not wanted; so may a file that is still written.
                described = self.stream(path, stream, true)?;
                if !described {
                    break;
                }
            }
            if described {
                return Ok(read);
            }
            // An interface was described later in the file: all of it has to be read.
            self.index.truncate(found);
        }
        self.stream(path, Box::new(open(path)?), false)?;
        Ok(read + path.metadata()?.len())
    }

    /// Takes what matches from a stream; `cut` says that it may end within a packet. `false` if it has packets of an
    /// interface that it does not describe.
    fn stream(&mut self, path: &Path, stream: Box<dyn Read + Send>, cut: bool) -> Result<bool> {
        let mut reader = BlockReader::from_stream(&path.display().to_string(), stream)?;
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        loop {
            let (block, interfaces) = match reader.next() {
                Ok(Some(next)) => next,
                Ok(None) => return Ok(true),
                Err(FileError::Truncated { .. }) if cut => return Ok(true),
                Err(FileError::Malformed { what, .. })
                    if what.starts_with("a packet of interface") =>
                {
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            };
            let Some(record) = block.record else { continue };
            let time = record.frame.timestamp.unwrap_or_default().0;
            let nanos = i64::try_from(time).unwrap_or(i64::MAX);
            if self.range.after.is_some_and(|after| nanos < after)
                || self.range.before.is_some_and(|before| nanos >= before)
            {
                continue;
            }
            let described = interfaces.get(record.interface as usize);
            let interface = described
                .ok_or_else(|| anyhow!("{}: a packet without an interface", path.display()))?;
            if !program(&mut self.programs, &self.filter, interface.linktype)?
                .filter(record.frame.head())
            {
                continue;
            }
            let number = *numbers
                .entry(record.interface)
                .or_insert_with(|| number(&mut self.interfaces, interface));
            self.buffer.clear();
            self.encoder.encode(&mut self.buffer, &Record { interface: number, ..record });
            self.blocks.write_all(&self.buffer).context("cannot write a temporary file")?;
            self.index.push((time, self.written, self.buffer.len() as u32));
            self.written += self.buffer.len() as u64;
        }
    }

    /// Writes the file. Returns its packets.
    fn finish(mut self, out: &Path) -> Result<u64> {
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
        let mut blocks = self.blocks.into_inner().context("cannot write a temporary file")?;
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

/// The number of an interface in the file that is written.
fn number(interfaces: &mut Vec<InterfaceDescription>, interface: &InterfaceDescription) -> u32 {
    let interface = InterfaceDescription { statistics: None, ..interface.clone() };
    let position = interfaces.iter().position(|one| *one == interface).unwrap_or_else(|| {
        interfaces.push(interface);
        interfaces.len() - 1
    });
    position as u32
}

fn program<'p>(
    programs: &'p mut HashMap<u16, BpfProgram>,
    filter: &str,
    linktype: u16,
) -> Result<&'p BpfProgram> {
    Ok(match programs.entry(linktype) {
        Entry::Occupied(compiled) => compiled.into_mut(),
        Entry::Vacant(vacant) => {
            let dead = Capture::dead(Linktype(i32::from(linktype)))?;
            let compiled = dead.compile(filter, true);
            vacant
                .insert(compiled.with_context(|| format!("libpcap refuses the filter {filter:?}"))?)
        }
    })
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("cannot open {}", path.display()))
}

/// The path of a packet file that a record names.
fn located(file: &str, folder: Option<&Path>) -> PathBuf {
    let path = Path::new(file);
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}
