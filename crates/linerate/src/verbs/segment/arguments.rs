//! The command line of `linerate segment`.

use std::path::PathBuf;

use clap::builder::TypedValueParser;
use clap::{Args, ValueEnum};
use linerate_pcapfile::Compression;
use linerate_segment::segment::{Checksums, IpId};
use linerate_wire::udp_tunnel::{GTP_PORT, GUE_PORT};
use linerate_wire::{geneve, vxlan};

use crate::cli::values::named;
use crate::verbs::capture::{FileFormat, values::compressions};

/// Arguments of `linerate segment`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// The capture file to read: pcap or pcapng, also in a gzip, zstd or lz4 stream; `-` is standard
    /// input.
    #[arg(value_name = "IN")]
    pub(super) input: PathBuf,

    /// Write into this file; `-` is standard output.
    #[arg(short, long, value_name = "OUT")]
    pub(super) write: PathBuf,

    /// Longest IP packet that the wire carried, in bytes, IP header included. What is longer is split.
    #[arg(long, value_name = "BYTES", default_value = "1500",
        value_parser = clap::value_parser!(u16).range(68..), conflicts_with = "coalesce")]
    pub(super) mtu: u16,

    /// Payload of a TCP segment in bytes; without it, what the MTU leaves room for after the headers of each
    /// packet. All TCP with more is split, also if it fits the MTU.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1..),
        conflicts_with = "coalesce")]
    pub(super) mss: Option<u16>,

    /// Payload of a UDP datagram in bytes, where UDP super-packets (USO, UDP GRO) are to be split. All UDP
    /// with more is; a filter expression selects the flow.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(1..),
        conflicts_with = "coalesce")]
    pub(super) uso: Option<u16>,

    /// UDP destination port of VXLAN, 0 for none. Linux has 8472 unless a device names another one, as do flannel, k3s and
    /// Cilium.
    #[arg(long, value_name = "PORT", default_value_t = vxlan::PORT)]
    pub(super) vxlan_port: u16,

    /// UDP destination port of Geneve, 0 for none.
    #[arg(long, value_name = "PORT", default_value_t = geneve::PORT)]
    pub(super) geneve_port: u16,

    /// UDP destination port of GTP-U, 0 for none. It is split, not joined.
    #[arg(long, value_name = "PORT", default_value_t = GTP_PORT, conflicts_with = "coalesce")]
    pub(super) gtp_port: u16,

    /// UDP destination port of GUE, and of IP directly in UDP (FOU), 0 for none. It is split, not joined.
    #[arg(long, value_name = "PORT", default_value_t = GUE_PORT, conflicts_with = "coalesce")]
    pub(super) gue_port: u16,

    /// Make IP fragments of what is over the MTU and neither TCP nor, with --uso, UDP.
    #[arg(long, conflicts_with = "coalesce")]
    pub(super) fragment: bool,

    /// The other way around: join the segments of each TCP connection, or the datagrams of each UDP flow
    /// that have one length, as a host with GRO does.
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true,
        default_missing_value = "tcp")]
    pub(super) coalesce: Option<Joined>,

    /// How long after its first frame a super-packet may still grow, in microseconds of the file's time.
    #[arg(long, value_name = "MICROSECONDS", default_value = "1000", requires = "coalesce",
        value_parser = clap::value_parser!(u64).range(..=60_000_000))]
    pub(super) hold: u64,

    /// Checksums of what is split or joined: computed (`full`), those of the pseudo header (`partial`, as
    /// a sender leaves them to its card), or 0 (`none`).
    #[arg(long, value_name = "KIND", default_value = "full", value_parser = checksums())]
    pub(super) checksums: Checksums,

    /// Fill in checksums that a sender left to its card also in packets that stay whole. Wrong ones stay
    /// wrong. With --coalesce this comes before joining.
    #[arg(long)]
    pub(super) fix_checksums: bool,

    /// The IPv4 identification of segments: one more with each (`increment`, as senders do), or the same
    /// in all (`fixed`, only with DF).
    #[arg(long, value_name = "POLICY", default_value = "increment", conflicts_with = "coalesce",
        value_parser = ip_ids())]
    pub(super) ip_id: IpId,

    /// Leave IP packets longer than this whole.
    #[arg(long, value_name = "BYTES", conflicts_with = "coalesce",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_burst: Option<u32>,

    /// Format of the output; default: from the file name extension (.pcap, .pcapng), otherwise that of the
    /// input.
    #[arg(long, value_name = "FORMAT")]
    pub(super) format: Option<FileFormat>,

    /// Compress the output; default: from the file name extension (.zst, .lz4).
    #[arg(long, value_name = "METHOD", value_parser = compressions())]
    pub(super) compress: Option<Compression>,

    /// One JSON object on standard output at the end.
    #[arg(long)]
    pub(super) json: bool,

    /// No progress and no summary.
    #[arg(short, long)]
    pub(super) quiet: bool,

    /// Which packets are split or joined: a pcap-filter(7) expression. All others are passed on unchanged.
    #[arg(value_name = "EXPRESSION")]
    pub(super) expression: Vec<String>,
}

const AFTER_HELP: &str = "\
A host with TSO or GRO shows a capture packets of up to 64 KiB that no wire carried. This splits them into \
the frames that were on the wire. Everything else is copied unchanged: timestamps, comments and other \
packet options, interfaces, names, and packets that fit, byte for byte. What could not be split is \
counted by reason and copied, too. Joined frames stand where the first of them stood and have its time.\n\
\n\
Signals: SIGINT and SIGTERM end it with everything read so far in the file; SIGUSR1 prints the counts.\n\
\n\
Examples:\n  \
linerate segment tso.pcapng -w wire.pcapng\n  \
linerate segment tso.pcap -w jumbo.pcap --mtu 9000 --fix-checksums\n  \
linerate segment quic.pcapng -w wire.pcapng --uso 1252 udp port 443\n  \
linerate segment wire.pcapng.zst -w host.pcapng --coalesce\n  \
tcpdump -i eth0 -w - | linerate segment - -w - | tshark -r -\n\
\n\
Exit status: 0 when the end of the input was reached or a signal asked for the end, 1 when something \
ended it before or a packet could not be written, 2 for a wrong command line.";

/// What is joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Joined {
    /// TCP segments.
    Tcp,
    /// UDP datagrams.
    Udp,
    /// Both.
    All,
}

fn checksums() -> impl TypedValueParser<Value = Checksums> {
    named([("full", Checksums::Full), ("partial", Checksums::Partial), ("none", Checksums::None)])
}

fn ip_ids() -> impl TypedValueParser<Value = IpId> {
    named([("increment", IpId::Increment), ("fixed", IpId::Fixed)])
}
