//! [`Backend`]: how messages are received; [`SendBackend`]: how they are sent.

use std::fmt;
use std::str::FromStr;

/// How a receiver gets its messages from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// `recvmmsg` with headers prepared once.
    Recvmmsg,
    /// `recvmmsg` of super-datagrams that the kernel coalesced (UDP GRO), split in place.
    Gro,
    /// io_uring: one multishot request, whose header the kernel keeps, and a ring of buffers.
    Uring,
    /// XDP: datagrams to the receiver's addresses and port bypass the stack, everything else goes to it.
    Xdp,
    /// `recvmmsg` with headers that a patched kernel has read once (`remember_mmsghdr`).
    Remember,
}

impl Backend {
    /// All backends.
    pub const ALL: [Self; 5] = [Self::Recvmmsg, Self::Gro, Self::Uring, Self::Xdp, Self::Remember];

    /// Its name, as options and reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Recvmmsg => "recvmmsg",
            Self::Gro => "gro",
            Self::Uring => "uring",
            Self::Xdp => "xdp",
            Self::Remember => "remember",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|backend| backend.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown backend `{text}`: choose one of {names}")
        })
    }
}

/// How a [`Transmitter`](crate::Transmitter) sends its messages, whatever backend receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SendBackend {
    /// `sendmmsg`, with super-datagrams that the kernel segments (UDP GSO).
    #[default]
    Sendmmsg,
    /// The same messages as requests of io_uring, a batch in one call.
    Uring,
    /// The transmit ring of an AF_XDP socket, for a receiver with the backend `xdp`: answers to messages that bypassed
    /// the stack go back to the Ethernet address that they came from
    /// ([`Transmit::next_hop`](crate::Transmit::next_hop)). They bypass routes, firewall, qdisc and captures. All other
    /// messages take `sendmmsg`, as do super-datagrams where the driver has no zero-copy;
    /// [`SendStatistics::ring`](crate::SendStatistics::ring) counts.
    Xdp,
}

impl SendBackend {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sendmmsg, Self::Uring, Self::Xdp];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sendmmsg => "sendmmsg",
            Self::Uring => "uring",
            Self::Xdp => "xdp",
        }
    }
}

impl fmt::Display for SendBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SendBackend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|backend| backend.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown backend `{text}`: choose one of {names}")
        })
    }
}
