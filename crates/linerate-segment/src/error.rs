use linerate_wire::ethernet::EtherType;
use linerate_wire::ip::Protocol;

/// The result of preparing or writing segments.
pub type Result<T> = core::result::Result<T, Error>;

/// Why a super-packet is not split. Where that is so, nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A header is incomplete or breaks a rule of its protocol.
    #[error("cannot split: {0}; send or drop the packet as it is")]
    Header(#[from] linerate_wire::Error),
    /// A length field does not agree with the bytes that are there.
    #[error(
        "cannot split: the {what} claims {claimed} bytes where there are {have}; was the packet cut by a snapshot length?"
    )]
    Length {
        /// The header whose length field it is.
        what: &'static str,
        /// What it claims, in bytes.
        claimed: usize,
        /// What is there, in bytes.
        have: usize,
    },
    /// The frame carries neither IPv4 nor IPv6.
    #[error("cannot split: the frame carries {0}, not IP; send it as it is")]
    NotIp(EtherType),
    /// More VLAN tags than two.
    #[error("cannot split: more than two VLAN tags")]
    TooManyTags,
    /// The packet is a fragment already.
    #[error("cannot split: the packet is an IP fragment; reassemble it first or send it as it is")]
    Fragment,
    /// A packet that cannot have an IP length: fragments of over 65,535 bytes, or a jumbogram (RFC 2675) with more
    /// hop-by-hop options than its length.
    #[error(
        "cannot split: a packet over 65535 bytes that is not TCP, or with hop-by-hop options; keep gso_max_size of the \
         sender at 65536 or less"
    )]
    Jumbo,
    /// A protocol that cannot be split, or an IPv6 extension header after which nothing can be split.
    #[error("cannot split {0}: only TCP and UDP are segmented; ask for fragments instead")]
    Protocol(Protocol),
    /// The packet carries the other transport protocol.
    #[error("asked to split {wanted}, but the packet carries {found}")]
    OtherProtocol {
        /// What [`Split`](crate::segment::Split) asks for.
        wanted: Protocol,
        /// What the packet carries.
        found: Protocol,
    },
    /// A tunnel in a tunnel: the kernel segments inside one.
    #[error("cannot split: a {0} inside of another tunnel; split before the second encapsulation")]
    NestedTunnel(&'static str),
    /// A tunnel header with something that a segment cannot repeat.
    #[error("cannot split behind {tunnel}: {why}; split before the encapsulation")]
    Tunnel {
        /// The tunnel protocol.
        tunnel: &'static str,
        /// What is in the way.
        why: &'static str,
    },
    /// A source route or a routing header whose final destination is not known, without which there
    /// is no checksum.
    #[error("cannot split: {0} hides the final destination, which the checksum needs")]
    Route(&'static str),
    /// TCP with SYN and more than one segment of payload. A SYN takes a sequence number itself.
    #[error("cannot split a TCP segment with SYN; let the sender keep SYN data under the MSS")]
    Syn,
    /// The packet must be fragmented and may not be.
    #[error(
        "a packet of {len} bytes must not be fragmented (DF is set) and the MTU is {mtu}; report \"fragmentation needed\" to the sender"
    )]
    DontFragment {
        /// Length of the IP packet in bytes.
        len: usize,
        /// The MTU in bytes.
        mtu: u16,
    },
    /// A fixed IPv4 identification was asked for, but without DF a router may fragment segments, and
    /// their fragments would mix (RFC 6864).
    #[error("a fixed IP ID needs the DF flag, which this packet does not have; let it increment")]
    FixedId,
    /// The MSS, datagram size or MTU is 0.
    #[error("cannot split into pieces of 0 bytes")]
    ZeroSize,
    /// The MTU leaves no room for payload.
    #[error(
        "an MTU of {mtu} is too small for this packet: its headers and the least payload need {need}"
    )]
    MtuTooSmall {
        /// The MTU in bytes.
        mtu: u16,
        /// The smallest that would do.
        need: usize,
    },
    /// Headers longer than [`MAX_HEADER_LEN`](crate::segment::MAX_HEADER_LEN).
    #[error(
        "cannot split: {len} bytes of headers, and {} are the most",
        crate::segment::MAX_HEADER_LEN
    )]
    HeadersTooLong {
        /// Bytes of headers in front of the payload.
        len: usize,
    },
    /// More segments than the options allow.
    #[error(
        "the packet makes {count} segments and the policy allows {max}; raise max_segments or have the sender make smaller bursts"
    )]
    TooManySegments {
        /// Segments that the packet makes.
        count: usize,
        /// The limit.
        max: u32,
    },
    /// A longer packet than the options allow.
    #[error(
        "a burst of {len} bytes, and the policy allows {max}; raise max_burst or have the sender make smaller bursts"
    )]
    BurstTooLong {
        /// Length of the IP packet in bytes.
        len: usize,
        /// The limit in bytes.
        max: u32,
    },
    /// The caller's buffer does not hold the next segment. It can be asked for again.
    #[error(
        "the next segment has {need} bytes and the buffer {have}; give Segments::max_len() bytes"
    )]
    BufferTooSmall {
        /// Length of the next segment in bytes.
        need: usize,
        /// Length of the buffer in bytes.
        have: usize,
    },
}
