//! The command line of `linerate capture`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use linerate_capture::filter::Side;
use linerate_capture::source::SourceKind;
use linerate_ring::packet::{Allocation, Mode, Traffic};
use linerate_ring::region::Pages;
use linerate_ring::xdp::Through;

use super::values;

/// Arguments of `linerate capture`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Capture on this interface, or the one of this number of -D; may be given several times. `any`
    /// stands for all that are up, through packet sockets and without promiscuous mode. Without -i
    /// the first one that is up and is not the loopback interface.
    #[arg(short, long, value_name = "NAME", conflicts_with = "read")]
    pub(super) interface: Vec<String>,

    /// List the interfaces, what uses them, and which source `auto` would take; then end.
    #[arg(short = 'D', long)]
    pub(super) list_interfaces: bool,

    /// Read from a capture file in place of an interface; `-` is standard input. pcap and pcapng,
    /// also in a gzip, zstd or lz4 stream.
    #[arg(short, long, value_name = "FILE")]
    pub(super) read: Option<PathBuf>,

    /// Write into this file; `-` is standard output. Without it one line a packet is printed.
    #[arg(short, long, value_name = "FILE")]
    pub(super) write: Option<PathBuf>,

    /// Count only, and give every packet back unseen: for measurements.
    #[arg(long, conflicts_with = "write")]
    pub(super) discard: bool,

    /// End after this many packets.
    #[arg(short, long, value_name = "PACKETS",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,

    /// Keep at most this many bytes of each packet; 0 stands for 262144.
    #[arg(short, long, value_name = "BYTES", default_value = "262144")]
    pub(super) snapshot_length: u32,

    /// Bytes of buffer between kernel and program, in KiB, for all readers of an interface together; by
    /// default 64 MiB, or 128 MiB for AF_XDP sockets.
    #[arg(short = 'B', long, value_name = "KIB",
        value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    pub(super) buffer_size: Option<u64>,

    /// Go on in another file when one has this many million bytes; with the suffix k, M or G in
    /// KiB, MiB or GiB.
    #[arg(short = 'C', value_name = "SIZE", value_parser = values::file_size, requires = "write")]
    pub(super) rotate_size: Option<u64>,

    /// Go on in another file after so many seconds; the file's name is a format for strftime(3). Files
    /// that would have the name of the one before are numbered as with -C.
    #[arg(short = 'G', value_name = "SECONDS", requires = "write",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) rotate_seconds: Option<u64>,

    /// Keep this many files: with -C the oldest is written over, with -G alone the capture ends.
    #[arg(short = 'W', value_name = "FILES", requires = "write",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rotate_count: Option<u32>,

    /// With -C or -G: run this program with the name of each finished file.
    #[arg(short = 'z', value_name = "PROGRAM", requires = "write")]
    pub(super) postrotate: Option<std::ffi::OsString>,

    /// End after `duration:SECONDS` (not with -r), `packets:NUMBER` or `filesize:KB`; may be given
    /// several times.
    #[arg(short = 'a', long = "autostop", value_name = "LIMIT", value_parser = values::limit)]
    pub(super) autostop: Vec<values::Limit>,

    /// Do not make the interface receive what is addressed to others.
    #[arg(short = 'p', long)]
    pub(super) no_promiscuous_mode: bool,

    /// Bring each packet into the file at once, in place of every tenth of a second (with -r: of every
    /// MiB).
    #[arg(short = 'U', long)]
    pub(super) packet_buffered: bool,

    /// Take only packets that come in, go out, or both (the default). A file has to say which way
    /// they went (pcapng with `epb_flags`).
    #[arg(short = 'Q', long, value_name = "in|out|inout", value_parser = values::directions())]
    pub(super) direction: Option<Traffic>,

    /// Become this user once the interfaces are open, before any file is made. Without it the
    /// threads only give up their capabilities.
    #[arg(short = 'Z', long, value_name = "USER")]
    pub(super) relinquish_privileges: Option<String>,

    /// Precision of the time stamps in classic pcap files (default: micro, as other programs
    /// write); pcapng files always have nanoseconds.
    #[arg(long, value_name = "UNIT")]
    pub(super) time_stamp_precision: Option<Precision>,

    /// Whose clock stamps the packets.
    #[arg(short = 'j', long, value_name = "TYPE", default_value = "host")]
    pub(super) time_stamp_type: StampType,

    /// Hand over each packet at once, at the price of more wake-ups.
    #[arg(long)]
    pub(super) immediate_mode: bool,

    /// Compress the files; by default as the name ends (.zst, .lz4).
    #[arg(long, value_name = "METHOD")]
    pub(super) compress: Option<Compress>,

    /// Format of the files; by default pcap for names that end in .pcap, else pcapng.
    #[arg(long, value_name = "FORMAT")]
    pub(super) format: Option<FileFormat>,

    /// Take the filter expression from this file.
    #[arg(short = 'F', value_name = "FILE", conflicts_with = "expression")]
    pub(super) filter_file: Option<PathBuf>,

    /// How to get at the packets: `auto`, `packet`, `xdp` or `tee`. `auto` never takes traffic away
    /// from the host, and says what it took and why.
    #[arg(long, value_name = "SOURCE", default_value = "auto", value_parser = values::sources(), conflicts_with = "read")]
    pub(super) source: values::Source,

    /// Let `--source xdp` take the traffic of an interface that the host uses.
    #[arg(long, conflicts_with = "read")]
    pub(super) take_over: bool,

    /// How frames that `--source xdp` takes come out of the kernel: `socket` (AF_XDP), `buffer` (a
    /// BPF ring buffer), or `auto`: sockets where the driver shares frames without a copy or where
    /// --pages, --busy-poll or the card's stamps ask for them, else the buffer, which is faster.
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = values::ways(), conflicts_with = "read")]
    pub(super) xdp_through: Through,

    /// Pages of the buffer of AF_XDP sockets: auto, hugetlb, hugetlb-1g, thp or small.
    #[arg(long, value_name = "PAGES", default_value = "auto", value_parser = values::pages(), conflicts_with = "read")]
    pub(super) pages: Pages,

    /// What the ring of `--source packet` is made of: hugetlb, transhuge, noretry, vzalloc or retry. Takes a
    /// kernel with Linerate's patches.
    #[arg(long, value_name = "MEMORY", default_value = "any", hide_default_value = true,
        value_parser = values::allocations(), conflicts_with = "read")]
    pub(super) ring_allocation: Allocation,

    /// Readers that share each interface, and its buffer.
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::threads, conflicts_with = "read")]
    pub(super) threads: usize,

    /// How readers (--threads) share it: hash, lb, cpu, rollover, rnd or qm.
    #[arg(long, value_name = "MODE", default_value = "hash", requires = "threads", value_parser = values::modes(), conflicts_with = "read")]
    pub(super) fanout: Mode,

    /// Split the super-packets of TSO, USO and GRO into the frames that the wire carries, with all their
    /// checksums: after the filter, and before -s and -c. Only for --source packet, which auto then
    /// takes. (`linerate segment` does it to files.)
    #[arg(long, conflicts_with_all = ["read", "discard"])]
    pub(super) split: bool,

    /// Run the filter in the `kernel` or in `user` space; by default in the kernel if it takes it.
    #[arg(long, value_name = "SIDE", value_parser = values::sides())]
    pub(super) filter_in: Option<Side>,

    /// Poll for so long before sleeping, up to 100000; not for a BPF ring buffer (tee, or xdp without
    /// sockets).
    #[arg(long, value_name = "MICROSECONDS", value_parser = values::microseconds, conflicts_with = "read")]
    pub(super) busy_poll: Option<Duration>,

    /// CPUs for the readers, such as `1` or `0,2-3`.
    #[arg(long, value_name = "LIST", value_parser = values::cpus, conflicts_with = "read")]
    pub(super) cpu: Option<values::Cpus>,

    /// One JSON object on standard output at the end.
    #[arg(long)]
    pub(super) json: bool,

    /// No live line, and nothing said at the start.
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Accepted for habit's sake: addresses and ports are never turned into names.
    #[arg(short = 'n', action = clap::ArgAction::Count, hide = true)]
    pub(super) numeric: u8,

    /// Accepted for habit's sake: each line is written at once anyway.
    #[arg(short = 'l', hide = true)]
    pub(super) line_buffered: bool,

    /// Which packets: an expression as pcap-filter(7) has it.
    #[arg(value_name = "EXPRESSION")]
    pub(super) expression: Vec<String>,
}

const AFTER_HELP: &str = "\
Signals: SIGINT and SIGTERM end the capture with everything captured in the file (a second one, a second \
later, ends at once); SIGUSR1 prints the \
counts; SIGUSR2 brings what was captured into the file now.\n\
\n\
Examples:\n  \
linerate capture -i eth0 -w web.pcapng tcp port 443\n  \
linerate capture -i eth0 -w - | tshark -r -\n  \
linerate capture -i eth1 --source xdp -w all.pcapng.zst -C 500M -W 20\n  \
linerate capture -r all.pcapng.zst00 -w dns.pcap udp port 53\n\
\n\
Exit status: 0 when the capture ended as asked, 1 when something ended it before or a packet could \
not be written, 2 for a wrong command line.";

/// Precision of time stamps in classic pcap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Precision {
    /// Microseconds.
    Micro,
    /// Nanoseconds.
    Nano,
}

/// Whose clock stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum StampType {
    /// The kernel's, packet by packet.
    Host,
    /// The kernel's, once for all packets that an xdp or tee source hands over at a time: cheaper
    /// there. Packet sockets stamp each packet all the same.
    #[value(name = "host_lowprec")]
    HostLowPrecision,
    /// The network card's where it has one, else the kernel's; packet sockets and AF_XDP sockets.
    Adapter,
}

/// Compression of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::verbs) enum Compress {
    /// Zstandard.
    Zstd,
    /// LZ4.
    Lz4,
    /// None, whatever the name says.
    None,
}

/// Format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::verbs) enum FileFormat {
    /// pcapng, with interfaces, filters and counts in the file.
    Pcapng,
    /// Classic pcap.
    Pcap,
}

impl Arguments {
    /// The source that was asked for by name.
    pub(super) fn source_kind(&self) -> Option<SourceKind> {
        self.source.0
    }

    /// The smallest of the limits of one kind.
    pub(super) fn limit<T: Ord>(&self, of: impl Fn(&values::Limit) -> Option<T>) -> Option<T> {
        self.autostop.iter().filter_map(of).min()
    }
}
