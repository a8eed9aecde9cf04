//! [`Through`]: the way from an XDP program to the reader.

use std::fmt;
use std::str::FromStr;

/// The way from the XDP program to the reader, where the frames are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Through {
    /// [`Through::Socket`] where the driver writes into the UMEM itself, or where something was asked
    /// for that only sockets have; else [`Through::Buffer`].
    #[default]
    Auto,
    /// AF_XDP sockets over a UMEM.
    Socket,
    /// A BPF ring buffer: the program copies. On a driver without zero-copy the kernel copies in
    /// either case, and into a ring buffer it does so in the order of memory.
    Buffer,
}

impl Through {
    /// What it comes to on `interface`, and why: sockets where `only` says what was asked for that nothing
    /// else has. Asks the driver where nobody asked for either.
    pub fn decided(self, interface: &str, only: Option<&'static str>) -> (Self, &'static str) {
        match (self, only) {
            (Self::Auto, Some(why)) => (Self::Socket, why),
            (Self::Auto, None) if super::probe(interface).zero_copy => {
                (Self::Socket, "the driver shares frames without a copy")
            }
            (Self::Auto, None) => (Self::Buffer, "the driver has no zero-copy AF_XDP"),
            (asked, _) => (asked, "asked for"),
        }
    }
}

impl fmt::Display for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Socket => "af-xdp",
            Self::Buffer => "ringbuf",
        })
    }
}

impl FromStr for Through {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "af-xdp" => Ok(Self::Socket),
            "ringbuf" => Ok(Self::Buffer),
            _ => Err(format!("unknown delivery `{text}`: choose one of auto, af-xdp, ringbuf")),
        }
    }
}
