//! TUN and TAP devices: interfaces whose other end is this program, through `/dev/net/tun`
//! (`Documentation/networking/tuntap.rst`).
//!
//! Each packet has a virtio header, so that the kernel's stack can send and receive super-packets and partial
//! checksums ([`Offloads`]). A [`Queue`] moves one packet with one system call; the kernel copies it, and
//! nothing else does.
//!
//! ```no_run
//! use linerate_ring::tun::{Device, Kind, MAX_PACKET};
//!
//! # fn main() -> linerate_ring::Result<()> {
//! let device = Device::builder("tap%d").kind(Kind::Tap).queues(2).build()?;
//! println!("{} hands down {}", device.name(), device.offloads());
//! let mut buffer = vec![0; MAX_PACKET];
//! for queue in device.queues() {
//!     while let Some((header, len)) = queue.receive(&mut buffer)? {
//!         println!("{len} bytes: {header}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod builder;
mod offloads;
mod queue;

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use crate::{Error, Result};

pub use builder::Builder;
pub use offloads::Offloads;
pub use queue::{MAX_IOVECS, MAX_PACKET, Queue};

/// What the interface carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Ethernet frames.
    #[default]
    Tap,
    /// IPv4 and IPv6 packets, without a link layer.
    Tun,
}

/// An interface of this program. It is removed when the last of its queues is dropped, or the process ends.
#[derive(Debug)]
pub struct Device {
    name: String,
    kind: Kind,
    offloads: Offloads,
    queues: Vec<Queue>,
}

impl Device {
    /// Requests a device. `name` may contain `%d`, which the kernel replaces by the first free number.
    pub fn builder(name: impl Into<String>) -> Builder {
        Builder::new(name.into())
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it carries.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The offloads that the kernel may use in packets for the program: the requested ones that this kernel
    /// has.
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// The queues, at least one. The kernel spreads flows over them.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// The queues, for a thread each. The interface lives as long as one of them does.
    pub fn into_queues(self) -> Vec<Queue> {
        self.queues
    }
}

/// A copy of a descriptor that this process was started with.
///
/// # Errors
/// There is none of this number.
pub fn dup_inherited_fd(number: RawFd) -> Result<OwnedFd> {
    // SAFETY: this call takes any number, and makes a descriptor that nobody else has.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        let action = format!("use descriptor {number}");
        return Err(Error::system(action, std::io::Error::last_os_error()));
    }
    // SAFETY: the copy is new and open, and this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}
