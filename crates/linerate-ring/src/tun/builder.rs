//! [`Builder`]: the options of a device, and its creation.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use linerate_net::privilege;
use linerate_wire::virtio;

use super::{Device, Kind, Offloads, Queue};
use crate::{Error, Result};

/// The kernel's interface for creating devices.
const CLONE_DEVICE: &str = "/dev/net/tun";

/// The options of a device; made by [`Device::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    name: String,
    kind: Kind,
    queues: u32,
    offloads: Offloads,
}

impl Builder {
    pub(super) fn new(name: String) -> Self {
        Self { name, kind: Kind::default(), queues: 1, offloads: Offloads::ALL }
    }

    /// What the interface carries (default: Ethernet).
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Queues, 1 (the default) to 256.
    pub fn queues(mut self, queues: u32) -> Self {
        self.queues = queues;
        self
    }

    /// What the kernel may leave to the program (default: everything). Offloads that this kernel lacks are
    /// done by the kernel itself: [`Device::offloads`] has the rest.
    pub fn offloads(mut self, offloads: Offloads) -> Self {
        self.offloads = offloads;
        self
    }

    /// The device, in the network namespace of the calling thread. It is down: addresses, MTU and
    /// state are set as for any interface.
    ///
    /// # Errors
    /// [`Error::Privilege`] without CAP_NET_ADMIN; [`Error::Invalid`] for a name that is invalid or in use,
    /// too many queues, or a machine without `/dev/net/tun`; [`Error::System`] for the rest.
    pub fn build(self) -> Result<Device> {
        self.check()?;
        let first = open()?;
        let name = self.attach(&first, &self.name, libc::IFF_TUN_EXCL)?;
        let (offloads, header_len) = self.offload(&first, &name)?;
        let shared: Arc<str> = name.as_str().into();
        let mut queues = vec![Queue::new(first, shared.clone(), header_len)];
        for _ in 1..self.queues {
            let file = open()?;
            self.attach(&file, &name, 0)?;
            queues.push(Queue::new(file, shared.clone(), header_len));
        }
        Ok(Device { name, kind: self.kind, offloads, queues })
    }

    fn check(&self) -> Result<()> {
        let name = &self.name;
        let plain =
            !name.contains(|c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace());
        if !(1..libc::IFNAMSIZ).contains(&name.len()) || !plain || name == "." || name == ".." {
            return Err(Error::Invalid(format!(
                "{name:?} is not a valid interface name: it has 1 to 15 bytes without space, slash or \
                 colon"
            )));
        }
        if !(1..=256).contains(&self.queues) {
            return Err(Error::Invalid(format!(
                "interface {name} can have 1 to 256 queues, not {}",
                self.queues
            )));
        }
        Ok(())
    }

    /// Creates the device, or one more queue of it, from an open file; returns the interface's name.
    fn attach(&self, file: &File, name: &str, exclusive: libc::c_int) -> Result<String> {
        let kind = match self.kind {
            Kind::Tap => libc::IFF_TAP,
            Kind::Tun => libc::IFF_TUN,
        };
        let several = if self.queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        let flags = kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR | several | exclusive;
        // SAFETY: ifreq is plain data, for which zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: this request reads an ifreq and writes the name into it.
        let answer = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if answer != 0 {
            return Err(self.refused(name, io::Error::last_os_error()));
        }
        let bytes = request.ifr_name.iter().take_while(|byte| **byte != 0);
        Ok(String::from_utf8_lossy(&bytes.map(|byte| *byte as u8).collect::<Vec<_>>()).into_owned())
    }

    fn refused(&self, name: &str, error: io::Error) -> Error {
        let action = format!("make the device {name}");
        match error.raw_os_error() {
            Some(libc::EPERM) if privilege::lacks("CAP_NET_ADMIN") => {
                Error::Privilege { action, capability: "CAP_NET_ADMIN" }
            }
            Some(libc::EBUSY | libc::EEXIST | libc::EINVAL) => Error::Invalid(format!(
                "cannot {action}: the name is taken; choose another (\"{}%d\" finds a free one), or \
                 remove it with `ip link delete {name}`",
                match self.kind {
                    Kind::Tap => "tap",
                    Kind::Tun => "tun",
                }
            )),
            Some(libc::E2BIG) => Error::Invalid(format!(
                "cannot {action} with {} queues: this kernel has fewer",
                self.queues
            )),
            _ => Error::system(action, error),
        }
    }

    /// Enables as many of the requested offloads as the kernel has, and drops the newest first; returns them,
    /// and the length of the header that goes with them.
    fn offload(&self, file: &File, name: &str) -> Result<(Offloads, usize)> {
        let mut wanted = self.offloads;
        for younger in [Offloads::UDP_TUNNEL, Offloads::USO, Offloads::NONE] {
            let tunnel = wanted.contains(Offloads::UDP_TUNNEL);
            let header_len = if tunnel { virtio::TUNNEL_HEADER_LEN } else { virtio::HEADER_LEN };
            match set(file, header_len, wanted) {
                Ok(()) => return Ok((wanted, header_len)),
                Err(error) if error.raw_os_error() != Some(libc::EINVAL) => {
                    return Err(Error::system(format!("set the offloads of {name}"), error));
                }
                Err(_) => wanted = wanted.without(younger),
            }
        }
        Err(Error::Invalid(format!("the kernel has not the offloads {} for {name}", self.offloads)))
    }
}

fn set(file: &File, header_len: usize, offloads: Offloads) -> io::Result<()> {
    let header_len = header_len as libc::c_int;
    // SAFETY: this request reads a C integer.
    let sized =
        unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header_len) };
    if sized != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: this request takes its argument by value.
    let answer = unsafe {
        libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads.0))
    };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn open() -> Result<File> {
    let opened =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(CLONE_DEVICE);
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => Error::Invalid(format!(
            "there is no {CLONE_DEVICE}: load the driver with `modprobe tun`, or, in a container \
             whose kernel has it, `mkdir -p /dev/net && mknod {CLONE_DEVICE} c 10 200`"
        )),
        Some(libc::ENODEV | libc::ENXIO) => Error::Invalid(format!(
            "{CLONE_DEVICE} has no driver behind it: load it with `modprobe tun` (CONFIG_TUN)"
        )),
        Some(libc::EPERM | libc::EACCES) if privilege::lacks("CAP_NET_ADMIN") => {
            Error::Privilege { action: format!("open {CLONE_DEVICE}"), capability: "CAP_NET_ADMIN" }
        }
        _ => Error::system(format!("open {CLONE_DEVICE}"), error),
    })
}
