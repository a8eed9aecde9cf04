//! [`SourceKind`]: packet, xdp, tee, trace or drops.

use std::fmt;
use std::str::FromStr;

/// The kind of a capture source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// AF_PACKET: both directions; the host keeps its traffic.
    Packet,
    /// XDP with AF_XDP sockets or a BPF ring buffer: the fastest; takes the frames away from the host.
    Xdp,
    /// XDP with a BPF ring buffer: incoming frames; the host keeps its traffic.
    Tee,
    /// Tracing programs at the XDP program that an interface has: frames as they came and as they left.
    Trace,
    /// A tracing program where the kernel drops packets.
    Drops,
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Packet => "packet",
            Self::Xdp => "xdp",
            Self::Tee => "tee",
            Self::Trace => "trace",
            Self::Drops => "drops",
        })
    }
}

impl FromStr for SourceKind {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "packet" => Ok(Self::Packet),
            "xdp" => Ok(Self::Xdp),
            "tee" => Ok(Self::Tee),
            "trace" => Ok(Self::Trace),
            "drops" => Ok(Self::Drops),
            _ => Err(format!(
                "unknown source `{text}`: choose one of auto, packet, xdp, tee, trace, drops"
            )),
        }
    }
}
