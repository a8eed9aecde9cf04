//! Status codes.

use linerate_segment::Error;

/// The status of a call. The numbers are stable; new ones may be added.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum linerate_status {
    /// Done.
    Ok = 0,
    /// There is no further segment.
    End = 1,
    /// A required pointer is NULL, or a number is not in its enumeration.
    Argument = 2,
    /// The output of a coalescer called the coalescer that called it.
    Busy = 3,
    /// The buffer does not hold the next segment, which can be asked for again.
    Buffer = 4,
    /// A header is incomplete or breaks a rule of its protocol.
    Header = 5,
    /// A length field does not agree with the bytes that are there.
    Length = 6,
    /// Not a packet that can be split so: not IP, another protocol, a fragment, a jumbogram, too
    /// many tags, tunnels or headers.
    Unsupported = 7,
    /// TCP with SYN and more than one segment of payload.
    Syn = 8,
    /// The packet must be fragmented and may not be (DF).
    DontFragment = 9,
    /// A fixed IPv4 identification without the DF flag.
    FixedId = 10,
    /// The segment size is 0, or the MTU leaves no room for payload.
    Size = 11,
    /// More bytes or segments than the policy allows.
    Limit = 12,
}

impl From<&Error> for linerate_status {
    fn from(error: &Error) -> Self {
        match error {
            Error::Header(_) => Self::Header,
            Error::Length { .. } => Self::Length,
            Error::Syn => Self::Syn,
            Error::DontFragment { .. } => Self::DontFragment,
            Error::FixedId => Self::FixedId,
            Error::ZeroSize | Error::MtuTooSmall { .. } => Self::Size,
            Error::TooManySegments { .. } | Error::BurstTooLong { .. } => Self::Limit,
            Error::BufferTooSmall { .. } => Self::Buffer,
            _ => Self::Unsupported,
        }
    }
}
