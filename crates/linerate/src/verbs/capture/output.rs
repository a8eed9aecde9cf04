//! Where the packets of `linerate capture` go.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use linerate_capture::Format;
use linerate_capture::engine::{PerFilePacket, PerPacket, description};
use linerate_capture::open::Opened;
use linerate_capture::print::Printer;
use linerate_capture::read::Reader;
use linerate_capture::write::{
    Compression, Encoder, InterfaceTotals, Options, PacketOptions, Rotation, Section,
};
use linerate_ring::{Frame, Timestamp};

use super::arguments::{Arguments, Compress, FileFormat, Precision};
use super::values::Limit;
use crate::cli::stdio;

/// Buffers of 256 KiB between readers and file: what a disk that hesitates for a quarter of a second
/// needs at 100 MB/s, before the ring has to hold the rest.
const BUFFERS: usize = 96;

/// What becomes of the packets.
pub(super) enum Target<'a> {
    Discard,
    Lines,
    File(&'a Path),
}

pub(super) fn target(arguments: &Arguments) -> Target<'_> {
    match &arguments.write {
        _ if arguments.discard => Target::Discard,
        Some(path) => Target::File(path),
        None => Target::Lines,
    }
}

/// How the file of a live capture is written; `both_directions` says that packets may go either way,
/// and `stop` is set when the capture is to end.
pub(super) fn options(
    arguments: &Arguments,
    path: &Path,
    both_directions: bool,
    start: Option<Timestamp>,
    stop: Arc<AtomicBool>,
) -> Options {
    let format = format(arguments, path);
    Options {
        path: path.to_owned(),
        encoder: Encoder {
            format,
            snaplen: super::snaplen(arguments),
            options: PacketOptions { direction: both_directions, queue: false },
        },
        compression: compression(arguments.compress, path),
        rotation: Rotation {
            size: arguments.rotate_size,
            seconds: arguments.rotate_seconds,
            count: arguments.rotate_count,
        },
        size_limit: arguments.limit(|limit| match limit {
            Limit::FileSize(bytes) => Some(*bytes),
            _ => None,
        }),
        postrotate: arguments.postrotate.clone(),
        section: Section::here(concat!("linerate ", env!("CARGO_PKG_VERSION"))),
        interfaces: Vec::new(),
        buffers: BUFFERS,
        start,
        drop_privileges: true,
        // Order takes a little time, and "at once" has none.
        in_order: !arguments.packet_buffered,
        stop,
        totals: Box::new(Vec::<InterfaceTotals>::new),
    }
}

/// The same for packets that come from a file.
pub(super) fn file_options(
    arguments: &Arguments,
    path: &Path,
    reader: &Reader,
    filter: Option<&str>,
    stop: Arc<AtomicBool>,
) -> Options {
    let mut options = options(arguments, path, true, None, stop);
    let snaplen = super::snaplen(arguments);
    let describe = |interface| description(interface, filter, snaplen);
    options.interfaces = reader.interfaces().iter().map(describe).collect();
    // A pcap header repeats the snap length of the file that it comes from.
    if let (Format::Pcap { .. }, Some(first)) = (options.encoder.format, options.interfaces.first())
    {
        options.encoder.snaplen = first.snaplen;
    }
    options
}

/// Prints a line for each packet of the interfaces, in the order in which readers bring them.
///
/// # Errors
///
/// A link layer that has no lines.
pub(super) fn printer(arguments: &Arguments, opened: &[Opened]) -> Result<PerPacket> {
    let nanoseconds = arguments.time_stamp_precision == Some(Precision::Nano);
    let printer = |one: &Opened| Ok(Printer::new(one.interface.linktype()?, nanoseconds));
    let mut printers = opened.iter().map(printer).collect::<Result<Vec<_>>>()?;
    let mut lines = Lines::default();
    Ok(Box::new(move |frame, interface| lines.print(&mut printers[interface as usize], frame)))
}

/// The same for packets from a file.
pub(super) fn file_printer(arguments: &Arguments) -> PerFilePacket {
    let nanoseconds = arguments.time_stamp_precision == Some(Precision::Nano);
    let mut printers: Vec<(u16, Printer)> = Vec::new();
    let mut lines = Lines::default();
    Box::new(move |frame, linktype| {
        let position = printers.iter().position(|(known, _)| *known == linktype);
        let position = position.unwrap_or_else(|| {
            printers.push((linktype, Printer::new(linktype, nanoseconds)));
            printers.len() - 1
        });
        lines.print(&mut printers[position].1, frame)
    })
}

/// A line could not be written, though somebody would have read it.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Whether printing packets failed.
pub(super) fn failed() -> bool {
    FAILED.load(Relaxed)
}

/// Buffers of one line.
#[derive(Default)]
struct Lines {
    line: String,
    scratch: Vec<u8>,
}

impl Lines {
    /// Prints at once, for whoever watches; false when nobody reads any more or it cannot be written.
    fn print(&mut self, printer: &mut Printer, frame: &Frame<'_>) -> bool {
        self.line.clear();
        let bytes = frame.contiguous(&mut self.scratch);
        printer.print(&mut self.line, frame.timestamp, bytes, frame.wire_len);
        match std::io::stdout().write_all(self.line.as_bytes()) {
            Ok(()) => return true,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) => {
                stdio::eprintln(format_args!("linerate: cannot write to standard output: {error}"));
                FAILED.store(true, Relaxed);
            }
        }
        false
    }
}

/// The time of this moment.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn format(arguments: &Arguments, path: &Path) -> Format {
    let nanoseconds = arguments.time_stamp_precision == Some(Precision::Nano);
    match arguments.format {
        Some(FileFormat::Pcap) => Format::Pcap { nanoseconds },
        Some(FileFormat::Pcapng) => Format::Pcapng,
        None if extension(&uncompressed(path)) == "pcap" => Format::Pcap { nanoseconds },
        None => Format::Pcapng,
    }
}

/// How a file of this name is compressed, unless somebody says it.
pub(in crate::verbs) fn compression(asked: Option<Compress>, path: &Path) -> Compression {
    match asked {
        Some(Compress::Zstd) => Compression::Zstd,
        Some(Compress::Lz4) => Compression::Lz4,
        Some(Compress::None) => Compression::None,
        None => match extension(path) {
            "zst" => Compression::Zstd,
            "lz4" => Compression::Lz4,
            _ => Compression::None,
        },
    }
}

/// What the name ends in, behind the last dot.
pub(in crate::verbs) fn extension(path: &Path) -> &str {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

/// The name without what says how it is compressed.
pub(in crate::verbs) fn uncompressed(path: &Path) -> PathBuf {
    match extension(path) {
        "zst" | "lz4" => path.with_extension(""),
        _ => path.to_owned(),
    }
}
