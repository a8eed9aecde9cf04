//! The command line of `linerate capture`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use linerate_capture::engine::Sample;
use linerate_capture::filter::{FilterLocation, TagReading};
use linerate_capture::source::SourceKind;
use linerate_flow::outputs::Destination;
use linerate_flow::schema::{Group, Groups};
use linerate_pcapfile::{Compression, KeepFree, UserGroup};
use linerate_process::Selection;
use linerate_ring::packet::{DirectionFilter, Mode};
use linerate_ring::region::Pages;
use linerate_ring::trace::Points;
use linerate_ring::{Delivery, TimestampSource};

use super::values;
use crate::cli::metrics::{Metrics, Web};
use crate::cli::progress::Stats;

// The groups of options in `--help` and in the man page.
const INTERFACES: &str = "Interfaces";
const SOURCES: &str = "Sources";
const PACKETS: &str = "Selection of packets";
const OUTPUT: &str = "Output files";
const PROCESSES: &str = "Processes";
const FLOWS: &str = "Flow records";
const PRINTING: &str = "Printed packets";

/// Arguments of `linerate capture`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Capture on this interface, or the one with this number in -D; may be given several times. `any`
    /// stands for all that are up, through packet sockets and without promiscuous mode; a pcap file then has the
    /// link type LINUX_SLL2. Without -i the first one that is up and is not the loopback interface.
    #[arg(help_heading = INTERFACES, short, long, value_name = "NAME", conflicts_with = "read")]
    pub(super) interface: Vec<String>,

    /// Capture in this network namespace: a name of `ip netns`, or the number of a process that is in it. May be given
    /// several times: then the interfaces of each are called NAMESPACE/NAME, and -i takes these names, too. -i NAME
    /// means the interface of that name in each of them.
    #[arg(help_heading = INTERFACES, long, value_name = "NAME|PID", conflicts_with = "read")]
    pub(super) netns: Vec<String>,

    /// List the interfaces and the source that `auto` would select; then exit.
    #[arg(help_heading = INTERFACES, short = 'D', long)]
    pub(super) list_interfaces: bool,

    /// List the link types that the interfaces have for -y; then exit.
    #[arg(help_heading = INTERFACES, short = 'L', long, conflicts_with = "read")]
    pub(super) list_data_link_types: bool,

    /// Capture with this link type; -L lists them. `LINUX_SLL` and `LINUX_SLL2` with -i any give pcapng files one
    /// link type, too.
    #[arg(help_heading = INTERFACES, short = 'y', long, value_name = "TYPE", conflicts_with = "read", value_parser = values::link_type)]
    pub(super) linktype: Option<u16>,

    /// Read from a capture file instead of an interface; `-` is standard input. pcap and pcapng, also
    /// compressed by gzip, zstd or lz4.
    #[arg(help_heading = INTERFACES, short, long, value_name = "FILE")]
    pub(super) read: Option<PathBuf>,

    /// Write into this file; `-` is standard output. Without it, print one line per packet, or what -e, -v, -A, -X,
    /// -x and -t ask for.
    #[arg(help_heading = OUTPUT, short, long, value_name = "FILE")]
    pub(in crate::verbs) write: Option<PathBuf>,

    /// Write flow records to Parquet files in this folder (`date=/hour=/sensor=`), or send them to an IPFIX collector:
    /// `ipfix://HOST[:PORT]` (UDP), `ipfix+tcp://…` or `ipfix+tls://…`. Append `?uniflow` for a collector without
    /// support of biflows (RFC 5103), and `?domain=N` for an Observation Domain other than 1. May be given several
    /// times. Without -w no packet is written or printed. Metering the same packets again adds their records again.
    #[arg(help_heading = FLOWS, long, value_name = "FOLDER|URL")]
    pub(super) flows: Vec<Destination>,

    /// Also store these fields, which cost time and space: `mac`, `tos`, `flowlabel`, `community-id`, `payload` (octets
    /// behind the transport header), `history` (TCP flags in their order), `handshake` (times of the TCP handshake);
    /// `all` of these; or `process` (implies --process-info). docs/flow-fields.md lists the fields of each.
    #[arg(help_heading = FLOWS, long, value_name = "FIELD,...", requires = "flows")]
    pub(super) flow_fields: Option<Groups>,

    /// Name of this capture in the paths below the folder of --flows (default: the host's name).
    #[arg(help_heading = FLOWS, long, value_name = "NAME", requires = "flows")]
    pub(super) sensor: Option<String>,

    /// A flow that continues gets a record after this time.
    #[arg(help_heading = FLOWS, long, value_name = "TIME", requires = "flows", default_value = "1m", value_parser = values::flow_time)]
    pub(super) active_timeout: Duration,

    /// A flow ends when no packet came for this time.
    #[arg(help_heading = FLOWS, long, value_name = "TIME", requires = "flows", default_value = "1m", value_parser = values::flow_time)]
    pub(super) idle_timeout: Duration,

    /// Maximum number of flows in the table (at least 1), of 156 bytes each, allocated at the start. A full table exports
    /// flows early, and counts them.
    #[arg(help_heading = FLOWS, long, value_name = "FLOWS", requires = "flows", default_value = "262144",
        value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub(super) max_flows: u32,

    /// Complete the Parquet files of --flows after this time. A crash loses no records in complete files.
    #[arg(help_heading = FLOWS, long, value_name = "TIME", requires = "flows", default_value = "1m", value_parser = values::flow_time)]
    pub(super) flow_file_time: Duration,

    /// Delete the Parquet files of --flows, of this --sensor, whose hour ended longer ago than this, such as `12h` or
    /// `90d`. Those of earlier captures are deleted, too.
    #[arg(help_heading = FLOWS, long, value_name = "AGE", requires = "flows", conflicts_with = "read", value_parser = values::age)]
    pub(super) flows_keep: Option<Duration>,

    /// Keep a part (`10%`) or size (`20G`) of the file system of --flows free: the Parquet files of the oldest hours, of
    /// this --sensor, are deleted first.
    #[arg(help_heading = FLOWS, long, value_name = "SHARE", requires = "flows")]
    pub(super) flows_keep_free: Option<KeepFree>,

    /// Only count packets: for measurements.
    #[arg(help_heading = PACKETS, long, conflicts_with = "write")]
    pub(super) discard: bool,

    /// Exit after this many packets.
    #[arg(help_heading = PACKETS, short, long, value_name = "PACKETS",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) count: Option<u64>,

    /// Keep at most this many bytes of each packet, such as `96` or `64k`; 0 stands for 262144, which is the most.
    #[arg(help_heading = PACKETS, short, long, value_name = "BYTES", default_value = "262144", value_parser = values::snapshot_length)]
    pub(super) snapshot_length: u32,

    /// Buffer between kernel and program, for all readers of an interface together: in KiB as in tcpdump, or with
    /// the suffix k, M or G in KiB, MiB or GiB; by default 64 MiB, or 128 MiB for AF_XDP sockets.
    #[arg(help_heading = SOURCES, short = 'B', long, value_name = "KIB", value_parser = crate::cli::values::capture_buffer)]
    pub(super) buffer_size: Option<u64>,

    /// Rotate to a new file when one has this many million bytes; with the suffix k, M or G in
    /// KiB, MiB or GiB.
    #[arg(help_heading = OUTPUT, short = 'C', value_name = "SIZE", value_parser = values::file_size, requires = "write")]
    pub(super) rotate_size: Option<u64>,

    /// Rotate to a new file after this many seconds; the file's name is a format for strftime(3). Files
    /// that would have the name of the previous one are numbered as with -C.
    #[arg(help_heading = OUTPUT, short = 'G', value_name = "SECONDS", requires = "write",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) rotate_seconds: Option<u64>,

    /// Keep this many files: with -C the oldest is overwritten, with -G alone the capture ends.
    #[arg(help_heading = OUTPUT, short = 'W', value_name = "FILES", requires = "write",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rotate_count: Option<u32>,

    /// Rotate by dumpcap's rules: a new file after `filesize:KB`, `duration:SECONDS` or `packets:NUMBER`, or at each
    /// multiple of `interval:SECONDS`, or at the signal of `signal:HUP`, `USR1` or `USR2`; with `files:NUMBER` the oldest is deleted when there are more. May be given several
    /// times. The names get a number and the time, with `nametimenum:2` the time first. `printname:FILE` gets the name of
    /// each finished file.
    #[arg(help_heading = OUTPUT, short = 'b', long, value_name = "LIMIT", requires = "write", value_parser = values::ring_limit,
        conflicts_with_all = ["rotate_size", "rotate_seconds", "rotate_count"])]
    pub(super) ring_buffer: Vec<values::RingLimit>,

    /// Delete finished files that are older than this, such as `12h` or `7d`: of this capture, and of earlier ones with the
    /// same `-w`.
    #[arg(help_heading = OUTPUT, long, value_name = "AGE", requires = "write", value_parser = values::age)]
    pub(super) keep: Option<Duration>,

    /// Keep a part (`10%`) or size (`20G`) of the file system free: the oldest finished files of this capture, and of
    /// earlier ones with the same `-w`, are deleted first.
    #[arg(help_heading = OUTPUT, long, value_name = "SHARE", requires = "write")]
    pub(super) keep_free: Option<KeepFree>,

    /// With -C, -G or -b: remove files without a packet.
    #[arg(help_heading = OUTPUT, long, requires = "write")]
    pub(super) skip_empty: bool,

    /// With -C, -G or -b: run this program with the name of each finished file.
    #[arg(help_heading = OUTPUT, short = 'z', value_name = "PROGRAM", requires = "write")]
    pub(super) postrotate: Option<std::ffi::OsString>,

    /// End after `duration:SECONDS` (not with -r), `packets:NUMBER`, `filesize:KB` or `files:NUMBER`; may be given
    /// several times.
    #[arg(help_heading = PACKETS, short = 'a', long = "autostop", value_name = "LIMIT", value_parser = values::limit)]
    pub(super) autostop: Vec<values::Limit>,

    /// Do not put the interface into promiscuous mode.
    #[arg(help_heading = INTERFACES, short = 'p', long)]
    pub(super) no_promiscuous_mode: bool,

    /// Write each packet to the file at once, instead of every tenth of a second (with -r: every MiB).
    #[arg(help_heading = OUTPUT, short = 'U', long)]
    pub(super) packet_buffered: bool,

    /// Capture only incoming packets, only outgoing ones, or both (the default). A file must have the
    /// direction of each packet (pcapng with `epb_flags`).
    #[arg(help_heading = INTERFACES, short = 'Q', long, value_name = "in|out|inout", value_parser = values::directions())]
    pub(super) direction: Option<DirectionFilter>,

    /// Change to this user once the interfaces are open, before any file is created. Without it the
    /// threads only drop their capabilities.
    #[arg(help_heading = OUTPUT, short = 'Z', long, value_name = "USER")]
    pub(super) relinquish_privileges: Option<String>,

    /// Let this group read the files of -w and --flows (mode 0640). Without it only their owner can (0600).
    #[arg(help_heading = OUTPUT, long, value_name = "NAME")]
    pub(super) group: Option<UserGroup>,

    /// Precision of the timestamps in classic pcap files (default: micro, as other programs
    /// write); pcapng files always have nanoseconds.
    #[arg(help_heading = OUTPUT, long, value_name = "UNIT")]
    pub(super) time_stamp_precision: Option<Precision>,

    /// Where timestamps come from: `host` (the kernel, packet by packet), `host_lowprec` (the host's clock, once for
    /// each batch of an xdp or tee source, which is cheaper; packet sockets stamp each packet), or `adapter` (the
    /// network card where it has timestamps, else the kernel; packet sockets and AF_XDP sockets).
    #[arg(help_heading = SOURCES, short = 'j', long, value_name = "TYPE", default_value = "host",
        value_parser = values::timestamp_sources())]
    pub(super) time_stamp_type: TimestampSource,

    /// Deliver each packet at once, at the cost of more wake-ups.
    #[arg(help_heading = SOURCES, long)]
    pub(super) immediate_mode: bool,

    /// Compress the files (default: by the file name's extension, .zst or .lz4).
    #[arg(help_heading = OUTPUT, long, value_name = "METHOD", value_parser = values::compressions())]
    pub(super) compress: Option<Compression>,

    /// Format of the files (default: pcap for names that end in .pcap, else pcapng).
    #[arg(help_heading = OUTPUT, long, value_name = "FORMAT")]
    pub(super) format: Option<FileFormat>,

    /// Read the filter expression from this file.
    #[arg(help_heading = PACKETS, short = 'F', value_name = "FILE", conflicts_with = "expression")]
    pub(super) filter_file: Option<PathBuf>,

    /// Source of the packets: `auto`, `packet`, `xdp`, `tee`, `trace` or `drops`. `auto` leaves every packet to the
    /// host (`packet` or `tee`), and prints what it selected, with -v also why. `trace` shows the frames of the XDP
    /// program that the interface has, `drops` the packets that the kernel drops.
    #[arg(help_heading = SOURCES, long, value_name = "SOURCE", default_value = "auto", value_parser = values::sources(), conflicts_with = "read")]
    pub(super) source: values::Source,

    /// Where `--source trace` captures frames: at the `entry` of the XDP program, as they came; at its `exit`, as
    /// they left, with the verdict; or at `both`, with two records of each frame.
    #[arg(help_heading = SOURCES, long, value_name = "POINT", default_value = "both", value_parser = values::points(), conflicts_with = "read")]
    pub(super) trace_at: Points,

    /// Copy at most this many packets a second with `--source drops`; the others are counted.
    #[arg(help_heading = SOURCES, long, value_name = "PACKETS", conflicts_with = "read",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rate_limit: Option<u32>,

    /// Let `auto` take the frames from the host: `xdp`, where that works. Nothing on the host sees frames that the
    /// filter accepts.
    #[arg(help_heading = SOURCES, long, conflicts_with = "read")]
    pub(super) take_over: bool,

    /// How `--source xdp` delivers frames: `af-xdp` (AF_XDP sockets), `ringbuf` (a BPF ring buffer), or `auto`:
    /// sockets if the driver has zero-copy or if --pages, --busy-poll or hardware timestamps need them, else the
    /// ring buffer, which is faster.
    #[arg(help_heading = SOURCES, long, value_name = "DELIVERY", default_value = "auto", value_parser = values::deliveries(), conflicts_with = "read")]
    pub(super) xdp_delivery: Delivery,

    /// Pages of the buffer of AF_XDP sockets: auto, hugetlb, hugetlb-1g, thp or small.
    #[arg(help_heading = SOURCES, long, value_name = "PAGES", default_value = "auto", value_parser = values::pages(), conflicts_with = "read")]
    pub(super) pages: Pages,

    /// Readers that share each interface, and its buffer. `auto` takes one for each receive queue, and at most one
    /// for each CPU. With `tee` and `xdp` each reads queues of its own, on the CPUs of their interrupts.
    #[arg(help_heading = SOURCES, long, value_name = "N|auto", default_value = "1", value_parser = values::readers, conflicts_with = "read")]
    pub(super) threads: usize,

    /// Write a file for each reader, with the number of the reader in its name (`all-0.pcapng`), instead of one in
    /// the order of time. -C, -G, -W and -a filesize count for each of them.
    #[arg(help_heading = OUTPUT, long, requires = "write", conflicts_with = "read")]
    pub(super) per_thread_files: bool,

    /// How readers (--threads) of packet sockets share it: hash, lb, cpu, rollover, rnd or qm.
    #[arg(help_heading = SOURCES, long, value_name = "MODE", default_value = "hash", requires = "threads", value_parser = values::modes(), conflicts_with = "read")]
    pub(super) fanout: Mode,

    /// Split the super-packets of TSO, USO and GRO into the frames that the wire carries, with all their
    /// checksums: after the filter, and before -s and -c. Only for --source packet, which auto then
    /// selects. (`linerate segment` does it to files.)
    #[arg(help_heading = PACKETS, long, conflicts_with_all = ["read", "discard"])]
    pub(super) split: bool,

    /// Capture one of N flows: all packets of it, in both directions. Those of the others are counted.
    #[arg(help_heading = PACKETS, long, value_name = "1/N")]
    pub(super) sample: Option<Sample>,

    /// Capture only the first bytes of each flow, such as `1MiB`, both directions together. Later packets are
    /// counted, and --flows meters them.
    #[arg(help_heading = PACKETS, long, value_name = "BYTES", value_parser = values::cutoff)]
    pub(super) cutoff: Option<u64>,

    /// Find the processes that send and receive each packet, with their container, pod and unit. They are in the comment
    /// of the packet in a pcapng file, in the printed line, and in flow records (--flows). Packets of no known process are counted.
    #[arg(help_heading = PROCESSES, long)]
    pub(super) process_info: bool,

    /// Capture only packets of the process with this number, as the host numbers processes; may be given several times.
    /// Includes --process-info, as do --process, --container and --unit. If several of these are given, a process has to
    /// match each of them. Packets of no known process are not captured.
    #[arg(help_heading = PROCESSES, long, value_name = "PID")]
    pub(super) pid: Vec<u32>,

    /// Capture only packets of processes with this name (the first 15 characters count, as the kernel keeps no more); may
    /// be given several times.
    #[arg(help_heading = PROCESSES, long, value_name = "NAME")]
    pub(super) process: Vec<String>,

    /// Capture only packets of processes in the container with this name, id, or beginning of an id; may be given several
    /// times. Names are those of Docker, containerd, CRI-O and Podman, if their files can be read.
    #[arg(help_heading = PROCESSES, long, value_name = "CONTAINER")]
    pub(super) container: Vec<String>,

    /// Capture only packets of processes in this service or scope of systemd (`nginx` stands for `nginx.service`); may be
    /// given several times.
    #[arg(help_heading = PROCESSES, long, value_name = "UNIT")]
    pub(super) unit: Vec<String>,

    /// Run the filter in the `kernel` or in `user` space (default: in the kernel if it accepts the program).
    #[arg(help_heading = PACKETS, long, value_name = "SIDE", value_parser = values::filter_locations())]
    pub(super) filter_in: Option<FilterLocation>,

    /// How the filter sees VLAN tags: `live`, as tcpdump on an interface, where `udp` accepts datagrams with
    /// and without a tag; or `file`, as tcpdump -r, where the tag is a part of the frame and `udp` accepts only
    /// those without (default: `live` for an interface, `file` for a file).
    #[arg(help_heading = PACKETS, long, value_name = "READING", value_parser = values::tag_readings())]
    pub(super) filter_vlan: Option<TagReading>,

    /// Busy-poll this long before sleeping, up to 100000; not for a BPF ring buffer (tee, or xdp without
    /// sockets).
    #[arg(help_heading = SOURCES, long, value_name = "MICROSECONDS", value_parser = values::microseconds, conflicts_with = "read")]
    pub(super) busy_poll: Option<Duration>,

    /// CPUs for the readers, such as `1` or `0,2-3`.
    #[arg(help_heading = SOURCES, long, value_name = "LIST", value_parser = values::cpus, conflicts_with = "read")]
    pub(super) cpu: Option<values::Cpus>,

    /// Wait for interfaces that do not exist yet. Without -i, wait until one is up.
    #[arg(help_heading = INTERFACES, long, conflicts_with = "read")]
    pub(super) wait: bool,

    /// Check the options, those of --config, and the syntax of the filter; open nothing. Print the command line that
    /// they come to.
    #[arg(long, conflicts_with_all = ["read", "list_interfaces", "list_data_link_types"])]
    pub(crate) check: bool,

    /// Read options from this file (TOML), whose keys are the long options; options on the command line win.
    #[arg(long, value_name = "FILE", conflicts_with = "read")]
    pub(super) config: Option<PathBuf>,

    #[command(flatten)]
    pub(super) stats: Stats,

    #[command(flatten)]
    pub(super) metrics: Metrics,

    #[command(flatten)]
    pub(super) web: Web,

    /// One JSON object on standard output at the end; without -w, packets are then printed on standard error.
    #[arg(long)]
    pub(super) json: bool,

    /// No live line and no messages at the start.
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Accepted for compatibility: addresses and ports are never resolved to names.
    #[arg(short = 'n', action = clap::ArgAction::Count, hide = true)]
    pub(super) numeric: u8,

    /// Accepted for compatibility: each line is written at once.
    #[arg(short = 'l', hide = true)]
    pub(super) line_buffered: bool,

    /// Print warnings at the start and the counts at the end, as tcpdump does.
    #[arg(skip = true)]
    pub(in crate::verbs) final_report: bool,

    /// With -w, also print one line per packet; with `-w -` on standard error.
    #[arg(help_heading = PRINTING, long, requires = "write",
        conflicts_with_all = ["read", "link_header", "ascii", "hex_ascii", "hex", "time_format"])]
    pub(super) print: bool,

    /// Without -w, print packets by the tcpdump that is installed, with their link-layer headers. So do -v, -A,
    /// -X, -x and -t, which mean what they mean to tcpdump.
    #[arg(help_heading = PRINTING, short = 'e')]
    pub(super) link_header: bool,

    /// Print packets in ASCII.
    #[arg(help_heading = PRINTING, short = 'A', action = clap::ArgAction::Count)]
    pub(super) ascii: u8,

    /// Print packets in hexadecimal and ASCII; twice with the link-layer header.
    #[arg(help_heading = PRINTING, short = 'X', action = clap::ArgAction::Count)]
    pub(super) hex_ascii: u8,

    /// Print packets in hexadecimal; twice with the link-layer header.
    #[arg(help_heading = PRINTING, short = 'x', action = clap::ArgAction::Count)]
    pub(super) hex: u8,

    /// Print no time (-t), seconds since 1970 (-tt), the time since the previous packet (-ttt), the date (-tttt),
    /// or the time since the first packet (-ttttt).
    #[arg(help_heading = PRINTING, short = 't', action = clap::ArgAction::Count)]
    pub(super) time_format: u8,

    /// -v of the command, which stands before or behind the verb: the reasons for source, delivery, pages and filter.
    #[arg(skip)]
    pub(super) verbose: u8,

    /// Filter expression, as in pcap-filter(7). `host in @FILE` and `net in @FILE` look addresses up in a file with one on
    /// each line.
    #[arg(value_name = "EXPRESSION")]
    pub(super) expression: Vec<String>,
}

const AFTER_HELP: &str = "\
Signals: SIGINT and SIGTERM end the capture and write everything captured to the file (a second one, a \
second later, ends at once); SIGUSR1 prints the counts; SIGUSR2 writes everything captured to the file \
now; that of `-b signal:` only starts another file.\n\
\n\
Examples:\n  \
linerate capture -i eth0 -w web.pcapng tcp port 443\n  \
linerate capture -i eth0 -w - | tshark -r -\n  \
linerate capture -i eth1 --source xdp -w all.pcapng.zst -C 500M -W 20\n  \
linerate capture -i eth1 --source trace -w fast-path.pcapng\n  \
linerate capture --source drops -w drops.pcapng udp\n  \
linerate capture -r all.pcapng.zst00 -w dns.pcap udp port 53\n\
\n\
Exit status: 0 when the capture ended as requested, 1 when an error ended it or a packet could not be \
written, 2 for a wrong command line.";

/// Precision of timestamps in classic pcap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Precision {
    /// Microseconds.
    Micro,
    /// Nanoseconds.
    Nano,
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
    /// The processes whose packets are captured.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            pids: self.pid.clone(),
            names: self.process.clone(),
            containers: self.container.clone(),
            units: self.unit.clone(),
        }
    }

    /// Whether processes are looked for.
    pub(super) fn finds_processes(&self) -> bool {
        let is_field = self.flow_fields.is_some_and(|groups| groups.contains(Group::Process));
        self.process_info || is_field || !self.selection().is_empty()
    }

    /// The source that was given by name.
    pub(super) fn source_kind(&self) -> Option<SourceKind> {
        self.source.0
    }

    /// The signal that starts another file.
    pub(super) fn rotation_signal(&self) -> Option<i32> {
        self.ring_buffer.iter().find_map(|limit| match limit {
            values::RingLimit::Signal(number) => Some(*number),
            _ => None,
        })
    }

    /// Whether the user consents that the host does not get frames.
    pub(crate) fn takes_frames(&self) -> bool {
        self.take_over || self.source_kind() == Some(SourceKind::Xdp)
    }

    /// The smallest of the limits of one kind.
    pub(super) fn limit<T: Ord>(&self, of: impl Fn(&values::Limit) -> Option<T>) -> Option<T> {
        self.autostop.iter().filter_map(of).min()
    }
}
