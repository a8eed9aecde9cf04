//! Where timestamps come from: the kernel's clock or the network card's.

use super::socket::Socket;
use crate::{Error, Result, TimestampSource};

/// The clock that really stamped a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampClock {
    /// The kernel's.
    Software,
    /// The network card's.
    Hardware,
}

/// Has the card stamp frames, where that is asked for and it can. Otherwise the kernel does.
pub(super) fn apply(source: TimestampSource, socket: &Socket) -> Result<()> {
    if source != TimestampSource::Hardware {
        return Ok(());
    }
    socket
        .set(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &libc::SOF_TIMESTAMPING_RAW_HARDWARE)
        .map_err(|error| Error::system("ask for hardware timestamps", error))
}
