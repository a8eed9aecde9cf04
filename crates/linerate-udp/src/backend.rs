//! [`Backend`]: the ways in which messages get here, and [`probe`]: which of them this machine has.

use std::fmt;
use std::str::FromStr;

use crate::{socket, uring, xdp};

/// A way to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// `recvmmsg` with headers prepared once.
    Recvmmsg,
    /// `recvmmsg` of super-datagrams that the kernel joined (UDP GRO), split where they lie.
    Gro,
    /// io_uring: one multishot request, whose header the kernel keeps, and a ring of buffers.
    Uring,
    /// XDP: datagrams to the wanted addresses and port past the stack, everything else to it.
    Xdp,
    /// `recvmmsg` with headers that a patched kernel has read once (`remember_mmsghdr`).
    Remember,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Recvmmsg, Self::Gro, Self::Uring, Self::Xdp, Self::Remember];

    /// How it is written.
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
            format!("unknown back end `{text}`: choose one of recvmmsg, gro, uring, xdp, remember")
        })
    }
}

/// Why a back end cannot be had; `None` where it can.
pub type Obstacle = Option<String>;

/// What stands in the way of `backend` on this machine, found by trying and not by version. For `xdp`
/// it is asked of `interface`, without which there is none. Nothing is attached and no traffic touched.
pub fn probe(backend: Backend, interface: Option<&str>) -> Obstacle {
    match backend {
        Backend::Recvmmsg => None,
        Backend::Gro => socket::probe_gro(),
        Backend::Uring => uring::probe(),
        Backend::Xdp => match interface {
            Some(interface) => xdp::probe(interface),
            None => Some(xdp::NO_INTERFACE.to_owned()),
        },
        Backend::Remember => socket::remember::probe(),
    }
}
