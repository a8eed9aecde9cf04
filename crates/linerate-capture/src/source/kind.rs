//! [`SourceKind`]: packet, xdp, tee, trace or drops.

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

linerate_net::named!(
    SourceKind, "source" or "auto":
    Packet = "packet", Xdp = "xdp", Tee = "tee", Trace = "trace", Drops = "drops"
);
