//! [`Fanout`]: several rings that share the frames of one interface.

use super::socket::Socket;
use crate::{Error, Result};

/// How a group decides which of its rings gets a frame (`packet(7)`, `PACKET_FANOUT`).
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// By a symmetric hash of addresses and ports: both directions of a flow stay together.
    Hash,
    /// In turns.
    LoadBalance,
    /// By the CPU that received the frame.
    Cpu,
    /// The first ring until it is full, then the next.
    Rollover,
    /// At random.
    Random,
    /// By the receive queue of the network card.
    QueueMapping,
}

linerate_net::named!(
    Mode, "fanout mode": Hash = "hash", LoadBalance = "lb", Cpu = "cpu", Rollover = "rollover", Random = "rnd",
    QueueMapping = "qm"
);

impl Mode {
    const fn number(self) -> libc::c_uint {
        match self {
            Self::Hash => libc::PACKET_FANOUT_HASH,
            Self::LoadBalance => libc::PACKET_FANOUT_LB,
            Self::Cpu => libc::PACKET_FANOUT_CPU,
            Self::Rollover => libc::PACKET_FANOUT_ROLLOVER,
            Self::Random => libc::PACKET_FANOUT_RND,
            Self::QueueMapping => libc::PACKET_FANOUT_QM,
        }
    }
}

/// A group of rings to join or create.
#[derive(Clone, Debug)]
pub struct Fanout {
    mode: Mode,
    group: Option<u16>,
}

impl Fanout {
    /// A new group, its number chosen by the kernel so that no other group has it.
    pub fn new(mode: Mode) -> Self {
        Self { mode, group: None }
    }

    /// Joins the group of this number in this network namespace, or creates it. All members request the same
    /// mode and flags, on the same interface.
    pub fn group(mut self, number: u16) -> Self {
        self.group = Some(number);
        self
    }

    /// Makes the socket, which is bound and up, a member. Returns the number of the group.
    pub(super) fn join(&self, socket: &Socket, incoming_only: bool, name: &str) -> Result<u16> {
        let action = || match self.group {
            Some(group) => format!("join fanout group {group} ({}) on {name}", self.mode),
            None => format!("begin a fanout group ({}) on {name}", self.mode),
        };
        let mut flags = 0;
        if self.group.is_none() {
            flags |= libc::PACKET_FANOUT_FLAG_UNIQUEID;
        }
        if incoming_only {
            // Spares the work of steering frames that the filter rejects. Kernels before 6.2
            // ignore it.
            flags |= libc::PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
        }
        let group = u32::from(self.group.unwrap_or(0)) | (self.mode.number() | flags) << 16;
        socket.set(libc::SOL_PACKET, libc::PACKET_FANOUT, &group).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => Error::Invalid(format!(
                "cannot {}: the group has another mode, other flags or another interface, or the \
                 kernel does not know the mode",
                action()
            )),
            Some(libc::ENOSPC) => Error::Invalid(format!("cannot {}: the group is full", action())),
            _ => Error::system(action(), error),
        })?;
        let joined = socket
            .get(libc::SOL_PACKET, libc::PACKET_FANOUT, 0u32)
            .map_err(|error| Error::system("ask for the number of the fanout group", error))?;
        Ok(joined as u16)
    }
}
