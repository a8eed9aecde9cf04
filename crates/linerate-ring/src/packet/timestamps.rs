//! Where timestamps come from: the kernel's clock or the network card's.

use std::io;

use linerate_net::{HardwareTimestamps, Interface};

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
    /// As [`TimestampSource::Hardware`], and makes the card stamp every frame. That is a setting of the
    /// interface, which is restored when the ring is dropped; a killed process leaves it.
    HardwareSwitchedOn,
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
    /// Configures the socket, and the card if requested.
    pub(super) fn apply(self, socket: &Socket, interface: &Interface) -> Result<Option<Restore>> {
        if self == Self::Software {
            return Ok(None);
        }
        let restore = match self {
            Self::HardwareSwitchedOn => Some(switch_on(interface)?),
            _ => None,
        };
        let source = libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        socket
            .set(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &source)
            .map_err(|error| Error::system("ask for hardware time stamps", error))?;
        Ok(restore)
    }
}

/// Restores the card's setting on drop.
#[derive(Debug)]
pub(super) struct Restore {
    interface: Interface,
    before: HardwareTimestamps,
}

impl Drop for Restore {
    fn drop(&mut self) {
        if let Err(error) = self.interface.set_hardware_timestamps(self.before) {
            let name = self.interface.name();
            tracing::warn!(interface = name, %error, "cannot put back the time stamps");
        }
    }
}

fn switch_on(interface: &Interface) -> Result<Restore> {
    let action = || format!("switch on hardware time stamps of interface {}", interface.name());
    let failed = |error: io::Error| match error.raw_os_error() {
        Some(libc::EPERM) => Error::Privilege { action: action(), capability: "CAP_NET_ADMIN" },
        Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::ERANGE) => Error::Invalid(format!(
            "cannot {}: its driver has none for received frames (`ethtool -T {}` shows what it has)",
            action(),
            interface.name()
        )),
        _ => Error::system(action(), error),
    };
    let before = interface.hardware_timestamps().map_err(failed)?;
    interface.set_hardware_timestamps(before.with_filter_all()).map_err(failed)?;
    Ok(Restore { interface: interface.clone(), before })
}
