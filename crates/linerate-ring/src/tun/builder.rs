//! [`Builder`]: the options of a device, and its creation.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use linerate_net::{link, privilege};
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
    /// An existing device was made for several queues.
    several: bool,
    offloads: Offloads,
}

impl Builder {
    pub(super) fn new(name: String) -> Self {
        Self { name, kind: Kind::default(), queues: 1, several: false, offloads: Offloads::ALL }
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
        let first = open(CLONE_DEVICE)?;
        let name = self.create(&first, &self.name, libc::IFF_TUN_EXCL)?;
        let (offloads, header_len) = self.offload(&first, &name)?;
        let shared: Arc<str> = name.as_str().into();
        let mut queues = vec![Queue::new(first, shared.clone(), header_len)];
        for _ in 1..self.queues {
            let file = open(CLONE_DEVICE)?;
            self.create(&file, &name, 0)?;
            queues.push(Queue::new(file, shared.clone(), header_len));
        }
        Ok(Device { name, kind: self.kind, offloads, queues })
    }

    /// A device that exists and has no other program: a persistent TAP device, or a macvtap. Its settings stay, and so
    /// does it when its queues are dropped.
    ///
    /// # Errors
    /// As [`Builder::build`]; [`Error::NoInterface`]; [`Error::Invalid`] for another kind of interface.
    pub fn attach(mut self) -> Result<Device> {
        self.check()?;
        let link = link::by_name(&self.name)?;
        if link.tun_queues > 0 {
            let (name, queues) = (&self.name, link.tun_queues);
            return Err(Error::Invalid(format!(
                "{name} is in use: other programs have {queues} of its queues"
            )));
        }
        let path = match link.kind.as_str() {
            "tun" => CLONE_DEVICE.to_owned(),
            "macvtap" => format!("/dev/tap{}", link.index),
            _ => {
                let name = &self.name;
                return Err(Error::Invalid(format!("{name} is no TAP or macvtap device")));
            }
        };
        let name: Arc<str> = self.name.as_str().into();
        let mut queues = Vec::new();
        let mut offloads = Offloads::NONE;
        for _ in 0..self.queues {
            let file = open(&path)?;
            let header_len;
            self.join(&file, &name, queues.is_empty())?;
            // The folder has one name for macvtaps of one index in several namespaces.
            if path != CLONE_DEVICE && interface_of(&file).is_ok_and(|(found, _)| *found != *name) {
                return Err(Error::Invalid(format!("{path} is another device than {name}")));
            }
            (offloads, header_len) = self.offload(&file, &name)?;
            queues.push(Queue::of_existing(file, name.clone(), header_len));
        }
        Ok(Device { name: self.name, kind: self.kind, offloads, queues })
    }

    /// The device of a descriptor that somebody else opened, a TAP device or a macvtap, with one queue.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another kind of descriptor; [`Error::System`] for the rest.
    pub fn from_fd(mut self, descriptor: OwnedFd) -> Result<Device> {
        let file = File::from(descriptor);
        let (name, flags) = interface_of(&file).unwrap_or_default();
        let needed = libc::IFF_TAP | libc::IFF_VNET_HDR | libc::IFF_NO_PI;
        if flags & needed != needed {
            return Err(Error::Invalid(format!(
                "{} is neither a TAP device with virtio headers (IFF_TAP, IFF_VNET_HDR, IFF_NO_PI) nor a macvtap",
                self.name
            )));
        }
        rustix::io::ioctl_fionbio(&file, true)
            .map_err(|errno| Error::system(format!("use {}", self.name), errno.into()))?;
        self.name = name;
        let (offloads, header_len) = self.offload(&file, &self.name)?;
        let queues = vec![Queue::new(file, self.name.as_str().into(), header_len)];
        Ok(Device { name: self.name, kind: self.kind, offloads, queues })
    }

    /// Becomes a queue of a device that exists. One that was made for several takes none without that flag.
    fn join(&mut self, file: &File, name: &str, first: bool) -> Result<()> {
        let joined = match self.set_interface(file, name, 0) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && first => {
                self.several = true;
                self.set_interface(file, name, 0)
            }
            joined => joined,
        };
        joined.map(drop).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => {
                Error::Invalid(format!("{name} has all its queues with other programs"))
            }
            Some(libc::EINVAL) => Error::Invalid(format!(
                "{name} is no TAP device, or has one queue (`ip tuntap add ... multi_queue` makes \
                 one that has several)"
            )),
            _ => self.refused(name, error),
        })
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
    fn create(&self, file: &File, name: &str, exclusive: libc::c_int) -> Result<String> {
        self.set_interface(file, name, exclusive).map_err(|error| self.refused(name, error))
    }

    fn set_interface(&self, file: &File, name: &str, exclusive: libc::c_int) -> io::Result<String> {
        let kind = match self.kind {
            Kind::Tap => libc::IFF_TAP,
            Kind::Tun => libc::IFF_TUN,
        };
        let several = if self.queues > 1 || self.several { libc::IFF_MULTI_QUEUE } else { 0 };
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
            return Err(io::Error::last_os_error());
        }
        Ok(name_of(&request))
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

pub(super) fn set(file: &File, header_len: usize, offloads: Offloads) -> io::Result<()> {
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

/// The interface of an open file: its name and flags.
fn interface_of(file: &File) -> io::Result<(String, libc::c_int)> {
    // SAFETY: ifreq is plain data, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: this request writes an ifreq.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNGETIFF, &raw mut request) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has written the flags.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    Ok((name_of(&request), flags.into()))
}

fn name_of(request: &libc::ifreq) -> String {
    let bytes = request.ifr_name.iter().take_while(|byte| **byte != 0);
    String::from_utf8_lossy(&bytes.map(|byte| *byte as u8).collect::<Vec<_>>()).into_owned()
}

fn open(path: &str) -> Result<File> {
    let opened =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path);
    opened.map_err(|error| match error.raw_os_error() {
        _ if path != CLONE_DEVICE => Error::system(format!("open {path}"), error),
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
