//! Where time stamps come from: the kernel's clock or the network card's.

use std::io;

use super::socket::Socket;
use crate::interface::Interface;
use crate::{Error, Result};

/// Which time stamps to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stamps {
    /// The kernel's clock, when the frame reached the kernel. UTC.
    #[default]
    Software,
    /// The network card's where it stamps already, the kernel's else. The card's clock is UTC only
    /// if somebody keeps it so (`phc2sys`).
    Hardware,
    /// As [`Stamps::Hardware`], and tells the card to stamp every frame. That is a setting of the
    /// interface, which is put back when the ring is dropped; a process that is killed leaves it.
    HardwareSwitchedOn,
}

/// The clock that really stamped a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// The kernel's.
    Software,
    /// The network card's.
    Hardware,
}

impl Stamps {
    /// Tells the socket, and the card where that was asked for.
    pub(super) fn apply(
        self,
        socket: &Socket,
        interface: Option<&Interface>,
    ) -> Result<Option<Restore>> {
        if self == Self::Software {
            return Ok(None);
        }
        let restore = match (self, interface) {
            (Self::HardwareSwitchedOn, Some(interface)) => Some(switch_on(interface)?),
            (Self::HardwareSwitchedOn, None) => {
                return Err(Error::Invalid(
                    "hardware time stamps are switched on for one interface, not for all of them"
                        .to_owned(),
                ));
            }
            _ => None,
        };
        let source = libc::SOF_TIMESTAMPING_RAW_HARDWARE;
        socket
            .set(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, &source)
            .map_err(|error| Error::system("ask for hardware time stamps", error))?;
        Ok(restore)
    }
}

/// Puts the card's setting back on drop.
#[derive(Debug)]
pub(super) struct Restore {
    interface: Interface,
    before: Config,
}

impl Drop for Restore {
    fn drop(&mut self) {
        if let Err(error) = configure(&self.interface, libc::SIOCSHWTSTAMP, self.before) {
            let name = &self.interface.name;
            tracing::warn!(interface = name, %error, "cannot put back the time stamps");
        }
    }
}

/// `struct hwtstamp_config` of `linux/net_tstamp.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Config {
    flags: libc::c_int,
    tx_type: libc::c_int,
    rx_filter: libc::c_int,
}

fn switch_on(interface: &Interface) -> Result<Restore> {
    let action = || format!("switch on hardware time stamps of interface {}", interface.name);
    let failed = |error: io::Error| match error.raw_os_error() {
        Some(libc::EPERM) => Error::Privilege { action: action(), capability: "CAP_NET_ADMIN" },
        Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::ERANGE) => Error::Invalid(format!(
            "cannot {}: its driver has none for received frames (`ethtool -T {}` shows what it has)",
            action(),
            interface.name
        )),
        _ => Error::system(action(), error),
    };
    let get = libc::SIOCGHWTSTAMP;
    let before = configure(interface, get, Config::default()).map_err(failed)?;
    let rx_filter = libc::HWTSTAMP_FILTER_ALL as libc::c_int;
    configure(interface, libc::SIOCSHWTSTAMP, Config { rx_filter, ..before }).map_err(failed)?;
    Ok(Restore { interface: interface.clone(), before })
}

fn configure(interface: &Interface, what: libc::Ioctl, mut config: Config) -> io::Result<Config> {
    let mut request = interface.request();
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut config).cast();
    // SAFETY: both requests read and write a hwtstamp_config where `ifr_data` points, in the call.
    unsafe { interface.call(what, &mut request) }?;
    Ok(config)
}
