//! [`Delivery`]: how an XDP program delivers frames to the reader.

use std::fmt;
use std::str::FromStr;

/// How the XDP program delivers the frames that it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// [`Delivery::AfXdp`] where the driver writes into the UMEM itself, or where something was asked
    /// for that only sockets have; else [`Delivery::RingBuffer`].
    #[default]
    Auto,
    /// AF_XDP sockets over a UMEM.
    AfXdp,
    /// A BPF ring buffer: the program copies. On a driver without zero-copy the kernel copies in
    /// either case, and into a ring buffer it does so in the order of memory.
    RingBuffer,
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::AfXdp => "af-xdp",
            Self::RingBuffer => "ringbuf",
        })
    }
}

impl FromStr for Delivery {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "af-xdp" => Ok(Self::AfXdp),
            "ringbuf" => Ok(Self::RingBuffer),
            _ => Err(format!("unknown delivery `{text}`: choose one of auto, af-xdp, ringbuf")),
        }
    }
}
