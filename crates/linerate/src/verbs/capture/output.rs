//! Where the packets of `linerate capture` go.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Result;
use linerate_capture::engine::description;
use linerate_capture::host;
use linerate_capture::print::Printer;
use linerate_capture::sink::Sink;
use linerate_capture::sink::file::{FileSink, FileSinkOptions, Naming, Retention, Rotation};
use linerate_pcapfile::{
    Compression, Encoder, Error as FileError, Format, PacketOptions, Reader, Record, refuse_foreign,
};
use linerate_ring::{Timestamp, TraceEvent};
use rustix::fs::{Access, access};

use super::arguments::{Arguments, FileFormat, Precision};
use super::decoder::{self, Decoder};
use super::values::{Limit, RingLimit};
use crate::cli::stdio;

/// Buffers of 256 KiB between readers and file: enough for a disk that stalls for a quarter of a second at
/// 100 MB/s, before the ring has to hold the rest.
const BUFFERS: usize = 96;

/// The sink that the arguments ask for, and what prints its packets; `start` starts the writers of a file of
/// this name.
///
/// # Errors
/// Those of `start`.
pub(super) fn sink(
    arguments: &Arguments,
    start: impl FnOnce(&Path) -> Result<Vec<FileSink>>,
) -> Result<(Sink, Option<Decoder>)> {
    match &arguments.write {
        _ if arguments.discard => Ok((Sink::Discard, None)),
        None if !arguments.flows.is_empty() => Ok((Sink::Discard, None)),
        Some(path) if arguments.print => Ok((lines(arguments).and_files(start(path)?), None)),
        Some(path) => Ok((Sink::File(start(path)?), None)),
        None => match decoder::options(arguments).as_slice() {
            [] => Ok((lines(arguments), None)),
            options => {
                let mut decoder = Decoder::start(arguments, options)?;
                let file = start(&decoder.path())?;
                decoder.opened();
                Ok((Sink::File(file), Some(decoder)))
            }
        },
    }
}

/// Whether tcpdump prints the packets.
pub(super) fn is_decoded(arguments: &Arguments) -> bool {
    let lines = arguments.write.is_none() && !arguments.discard && arguments.flows.is_empty();
    lines && !decoder::options(arguments).is_empty()
}

/// How the file of a live capture is written; `both_directions` says that packets may have either
/// direction, and `stop` is set when the capture is to end.
pub(super) fn options(
    arguments: &Arguments,
    path: &Path,
    both_directions: bool,
    start: Option<Timestamp>,
    stop: Arc<AtomicBool>,
) -> FileSinkOptions {
    let format = format(arguments, path);
    FileSinkOptions {
        path: path.to_owned(),
        input: arguments.read.clone(),
        encoder: Encoder {
            format,
            snaplen: super::snaplen(arguments),
            options: PacketOptions { direction: both_directions, queue: false },
        },
        compression: match arguments.write {
            Some(_) => compression(arguments.compress, path),
            // The pipe to tcpdump, which prints.
            None => Compression::None,
        },
        group: arguments.group,
        rotation: rotation(arguments),
        retention: Retention { keep: arguments.keep, keep_free: arguments.keep_free },
        size_limit: arguments.limit(|limit| match limit {
            Limit::FileSize(bytes) => Some(*bytes),
            _ => None,
        }),
        postrotate: arguments.postrotate.clone(),
        print_names: arguments.ring_buffer.iter().find_map(|limit| match limit {
            RingLimit::PrintName(path) => Some(path.clone()),
            _ => None,
        }),
        file_limit: arguments.limit(|limit| match limit {
            Limit::Files(number) => Some(*number),
            _ => None,
        }),
        section: Some(host::section_header(concat!("linerate ", env!("CARGO_PKG_VERSION")))),
        interfaces: Vec::new(),
        buffers: BUFFERS,
        start,
        drop_privileges: true,
        // Putting packets in order takes a little time, which -U does not allow.
        in_order: !arguments.packet_buffered,
        stop,
        statistics: Box::new(Vec::new),
    }
}

/// When another file starts.
pub(super) fn rotation(arguments: &Arguments) -> Rotation {
    let mut rotation = Rotation {
        size: arguments.rotate_size,
        seconds: arguments.rotate_seconds,
        count: arguments.rotate_count,
        skip_empty: arguments.skip_empty,
        ..Rotation::default()
    };
    for limit in &arguments.ring_buffer {
        rotation.naming = Naming::Dumpcap;
        match *limit {
            RingLimit::FileSize(bytes) => rotation.size = Some(bytes),
            RingLimit::Interval(seconds) => {
                (rotation.seconds, rotation.aligned) = (Some(seconds), true);
            }
            RingLimit::TimeFirst(first) => rotation.time_first = first,
            RingLimit::PrintName(_) => {}
            RingLimit::Signal(_) => rotation.on_request = true,
            RingLimit::Duration(seconds) => rotation.seconds = Some(seconds),
            RingLimit::Packets(packets) => rotation.packets = Some(packets),
            RingLimit::Files(files) => rotation.count = Some(files),
        }
    }
    rotation
}

/// Checks that the first file can be created, before anything is opened or read.
///
/// # Errors
/// As [`FileSink::start`].
pub(super) fn check(arguments: &Arguments) -> Result<()> {
    let Some(path) = arguments.write.as_deref().filter(|path| *path != Path::new("-")) else {
        return Ok(());
    };
    if extension(path) == "gz" && compression(arguments.compress, path) == Compression::None {
        stdio::warn(format_args!(
            "{} will not be compressed: Linerate writes .zst and .lz4; -z gzip compresses files that \
             are complete",
            path.display()
        ));
    }
    let rotation = rotation(arguments);
    // Otherwise the first file has another name.
    let is_name = rotation.naming == Naming::Tcpdump
        && rotation.count.is_none()
        && !arguments.per_thread_files;
    // -G fills in the folder, too.
    if rotation.seconds.is_some() && rotation.naming == Naming::Tcpdump {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let there = is_name && path.exists();
    let refusal = match std::fs::metadata(if there { path } else { folder }) {
        Err(error) => Some(error),
        Ok(found) if there && found.is_dir() => Some(ErrorKind::IsADirectory.into()),
        Ok(found) if !there && !found.is_dir() => Some(ErrorKind::NotADirectory.into()),
        // Another user writes.
        Ok(_) if arguments.relinquish_privileges.is_some() => None,
        Ok(_) => {
            let denied = access(if there { path } else { folder }, Access::WRITE_OK).err();
            denied.map(Into::into).or_else(|| refuse_foreign(path).err().filter(|_| there))
        }
    };
    match refusal {
        Some(source) => Err(FileError::Create { path: path.to_owned(), source }.into()),
        None => Ok(()),
    }
}

/// Whether the blocks of a file of this format are copied as they are: from pcapng to pcapng, or from pcap to pcap.
pub(super) fn copies_blocks(arguments: &Arguments, path: &Path, from: Format) -> bool {
    let to = format(arguments, path);
    !arguments.discard && (from == Format::Pcapng) == (to == Format::Pcapng)
}

/// The same for blocks of a file that are copied.
pub(super) fn copy_options(
    arguments: &Arguments,
    path: &Path,
    stop: Arc<AtomicBool>,
) -> FileSinkOptions {
    let options = options(arguments, path, true, None, stop);
    FileSinkOptions { section: None, in_order: false, ..options }
}

/// The same for packets that come from a file.
pub(super) fn file_options(
    arguments: &Arguments,
    path: &Path,
    reader: &Reader,
    filter: Option<&str>,
    snaplen: u32,
    stop: Arc<AtomicBool>,
) -> FileSinkOptions {
    let mut options = options(arguments, path, true, None, stop);
    options.encoder.snaplen = snaplen;
    options.in_order = false;
    let describe = |interface| description(interface, filter, snaplen);
    let described = match options.encoder.format {
        // The header has the first one's link type.
        Format::Pcap { .. } => &reader.interfaces()[..reader.interfaces().len().min(1)],
        Format::Pcapng => reader.interfaces(),
    };
    options.interfaces = described.iter().map(describe).collect();
    // A pcap header repeats the snap length of the file that it comes from.
    if let (Format::Pcap { .. }, Some(first)) = (options.encoder.format, options.interfaces.first())
    {
        options.encoder.snaplen = first.snaplen;
    }
    options
}

/// Prints a line for each packet, in the order in which readers deliver them.
fn lines(arguments: &Arguments) -> Sink {
    let nanoseconds = arguments.time_stamp_precision == Some(Precision::Nano);
    let mut printers: Vec<(u16, Printer)> = Vec::new();
    let is_stdout = arguments.write.as_deref() == Some(Path::new("-"));
    let mut lines = Lines { to_stderr: arguments.json || is_stdout, ..Lines::default() };
    Sink::call(move |record, linktype| {
        let known = printers.iter().position(|(one, _)| *one == linktype);
        let index = known.unwrap_or_else(|| {
            printers.push((linktype, Printer::new(linktype, nanoseconds)));
            printers.len() - 1
        });
        lines.print(&mut printers[index].1, record)
    })
}

/// Writing a line failed, other than by a closed pipe.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Whether printing packets failed.
pub(super) fn failed() -> bool {
    FAILED.load(Relaxed)
}

/// Buffers of one line.
#[derive(Default)]
struct Lines {
    /// The JSON object or the file is alone on standard output.
    to_stderr: bool,
    /// Nobody reads any more, or a line could not be written.
    has_ended: bool,
    line: String,
    scratch: Vec<u8>,
}

impl Lines {
    /// Prints at once; false when nobody reads any more or the line cannot be written.
    fn print(&mut self, printer: &mut Printer, record: &Record<'_>) -> bool {
        if self.has_ended {
            return false;
        }
        let frame = &record.frame;
        self.line.clear();
        let bytes = frame.contiguous(&mut self.scratch);
        printer.print(&mut self.line, frame.timestamp, bytes, frame.wire_len);
        if let Some(event) = &frame.trace {
            add_event(&mut self.line, event, record.comment);
        }
        add_processes(&mut self.line, record.comment);
        let written = match self.to_stderr {
            true => std::io::stderr().write_all(self.line.as_bytes()),
            false => std::io::stdout().write_all(self.line.as_bytes()),
        };
        match written {
            Ok(()) => return true,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            Err(error) => {
                stdio::warn(format_args!("cannot write the lines of packets: {error}"));
                FAILED.store(true, Relaxed);
            }
        }
        self.has_ended = true;
        false
    }
}

/// Adds to a line who sends and receives the packet.
fn add_processes(line: &mut String, comment: Option<&str>) {
    for end in comment.into_iter().flat_map(str::lines) {
        let is_process = end.starts_with("sender: ") || end.starts_with("receiver: ");
        if is_process && let Some((process, _)) = end.split_once(", ") {
            line.truncate(line.trim_end().len());
            let _ = writeln!(line, " [{process}]");
        }
    }
}

/// Adds to a line what happened to the packet.
fn add_event(line: &mut String, event: &TraceEvent, comment: Option<&str>) {
    let ended = line.ends_with('\n');
    line.truncate(line.trim_end().len());
    let _ = match event {
        TraceEvent::XdpEntry { .. } => write!(line, " [entry]"),
        TraceEvent::XdpExit { verdict, .. } => match XDP_VERDICTS.get(*verdict as usize) {
            Some(name) => write!(line, " [exit: {name}]"),
            None => write!(line, " [exit: {verdict}]"),
        },
        TraceEvent::Drop { .. } => {
            write!(line, " [{}]", comment.and_then(|text| text.lines().next()).unwrap_or("dropped"))
        }
    };
    if ended {
        line.push('\n');
    }
}

/// What an XDP program can return (`enum xdp_action` of `linux/bpf.h`).
const XDP_VERDICTS: [&str; 5] = ["XDP_ABORTED", "XDP_DROP", "XDP_PASS", "XDP_TX", "XDP_REDIRECT"];

/// Whether packets go to a classic pcap file.
pub(super) fn is_pcap(arguments: &Arguments) -> bool {
    let path = arguments.write.as_deref();
    let is_pcap = |path| matches!(format(arguments, path), Format::Pcap { .. });
    path.map_or_else(|| is_decoded(arguments), is_pcap)
}

pub(super) fn format(arguments: &Arguments, path: &Path) -> Format {
    let nanoseconds = arguments.time_stamp_precision == Some(Precision::Nano);
    match arguments.format {
        // For tcpdump, which has one link type.
        _ if arguments.write.is_none() => Format::Pcap { nanoseconds: true },
        Some(FileFormat::Pcap) => Format::Pcap { nanoseconds },
        Some(FileFormat::Pcapng) => Format::Pcapng,
        None if extension(&uncompressed(path)) == "pcap" => Format::Pcap { nanoseconds },
        None => Format::Pcapng,
    }
}

/// How a file of this name is compressed, where the user does not say it.
pub(in crate::verbs) fn compression(asked: Option<Compression>, path: &Path) -> Compression {
    asked.unwrap_or_else(|| match extension(path) {
        "zst" => Compression::Zstd,
        "lz4" => Compression::Lz4,
        _ => Compression::None,
    })
}

/// The extension of the name, behind the last dot.
pub(in crate::verbs) fn extension(path: &Path) -> &str {
    path.extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

/// The name without the extension of its compression.
pub(in crate::verbs) fn uncompressed(path: &Path) -> PathBuf {
    match extension(path) {
        "zst" | "lz4" => path.with_extension(""),
        _ => path.to_owned(),
    }
}
