//! Where timestamps come from: the kernel's clock or the network card's.

use super::socket::Socket;
use crate::{Error, Result};

/// Which time stamps to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimestampSource {
    /// The kernel's clock, when the frame reached the kernel. UTC.
    #[default]
    Software,
    /// The network card's if it stamps already, otherwise the kernel's. The card's clock is UTC only if
    /// something keeps it so (`phc2sys`).
    Hardware,
}

/// The clock that really stamped a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampClock {
    /// The kernel's.
    Software,
    /// The network card's.
    Hardware,
}

impl TimestampSource {
    /// Configures the socket.
    pub(super) fn apply(self, socket: &Socket) -> Result<()> {
        if self == Self::Software {
            return Ok(());
        }
        let source = libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        socket
            .set(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &source)
            .map_err(|error| Error::system("ask for hardware time stamps", error))
    }
}
