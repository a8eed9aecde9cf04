//! [`Interface`]: what a source has to know of a network interface, asked of the kernel through
//! `ioctl`, which answers for the network namespace of the caller (sysfs may not).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use crate::{Error, Result};

/// Asks the driver (`linux/sockios.h`).
const SIOCETHTOOL: u64 = 0x8946;

/// Whether the driver of `interface` takes VLAN tags out of the frames that it receives, so that no
/// XDP program sees them (`rx-vlan-offload` in `ethtool -k`); false where it does not say.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::System`].
pub fn strips_vlan_tags(interface: &str) -> Result<bool> {
    Interface::named(interface).map(|interface| interface.strips_vlan_tags())
}

/// The name of the driver of `interface`, as `ethtool -i` gives it; none where it does not say.
///
/// # Errors
/// [`Error::NoInterface`].
pub fn driver(interface: &str) -> Result<Option<String>> {
    Interface::named(interface).map(|interface| interface.driver())
}

/// Bytes of the largest network-layer packet of `interface`.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::System`].
pub fn mtu(interface: &str) -> Result<u32> {
    Interface::named(interface)?.mtu()
}

/// A network interface of the namespace that the thread was in when it was looked up; questions go
/// to that namespace, wherever the thread is by then.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    /// Its name.
    pub(crate) name: String,
    /// Its index.
    pub(crate) index: u32,
    control: Arc<OwnedFd>,
}

impl Interface {
    pub(crate) fn named(name: &str) -> Result<Self> {
        if name.is_empty() || name.len() >= libc::IF_NAMESIZE || name.contains('\0') {
            return Err(Error::NoInterface(name.to_owned()));
        }
        // SAFETY: no memory involved.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(Error::last_os(format!("ask about interface {name}")));
        }
        // SAFETY: a descriptor just made for us alone.
        let control = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut interface = Self { name: name.to_owned(), index: 0, control };
        let mut request = interface.request();
        interface.ask(libc::SIOCGIFINDEX as _, &mut request).map_err(|error| match error {
            Error::InterfaceGone(name) => Error::NoInterface(name),
            other => other,
        })?;
        // SAFETY: the kernel filled this member.
        interface.index = unsafe { request.ifr_ifru.ifru_ifindex } as u32;
        Ok(interface)
    }

    /// Whether an interface of this index is still there.
    pub(crate) fn exists(&self) -> bool {
        let mut request = self.request();
        request.ifr_ifru.ifru_ifindex = self.index as i32;
        self.ask(libc::SIOCGIFNAME as _, &mut request).is_ok()
    }

    /// Whether it is administratively up. The question goes to its index: it may have been renamed,
    /// and after a removal another interface may have its name.
    pub(crate) fn is_up(&self) -> Result<bool> {
        let mut request = self.request();
        request.ifr_ifru.ifru_ifindex = self.index as i32;
        self.ask(libc::SIOCGIFNAME as _, &mut request)?;
        self.ask(libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: the kernel filled this member.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Ok(i32::from(flags) & libc::IFF_UP != 0)
    }

    /// The number of receive queues in use; 1 where the driver does not say.
    pub(crate) fn receive_queues(&self) -> u32 {
        /// `struct ethtool_channels` of `linux/ethtool.h`.
        #[repr(C)]
        #[derive(Default)]
        struct Channels {
            command: u32,
            maximum: [u32; 4],
            rx: u32,
            tx: u32,
            other: u32,
            combined: u32,
        }
        const ETHTOOL_GCHANNELS: u32 = 0x3c;
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Default::default() };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut channels).cast();
        match self.ask(SIOCETHTOOL as _, &mut request) {
            Ok(()) => (channels.rx + channels.combined).max(1),
            Err(_) => 1,
        }
    }

    /// Whether the driver takes VLAN tags out of the frames that it receives (`rx-vlan-offload` in
    /// `ethtool -k`); false where it does not say.
    fn strips_vlan_tags(&self) -> bool {
        /// `struct ethtool_value` of `linux/ethtool.h`.
        #[repr(C)]
        struct Value {
            command: u32,
            data: u32,
        }
        const ETHTOOL_GFLAGS: u32 = 0x25;
        const ETH_FLAG_RXVLAN: u32 = 1 << 8;
        let mut flags = Value { command: ETHTOOL_GFLAGS, data: 0 };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut flags).cast();
        self.ask(SIOCETHTOOL as _, &mut request).is_ok() && flags.data & ETH_FLAG_RXVLAN != 0
    }

    fn driver(&self) -> Option<String> {
        /// `struct ethtool_drvinfo` of `linux/ethtool.h`: the command, the driver in 32 bytes, the rest.
        #[repr(C)]
        struct Info {
            command: u32,
            driver: [u8; 32],
            rest: [u8; 160],
        }
        const ETHTOOL_GDRVINFO: u32 = 3;
        let mut info = Info { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut info).cast();
        self.ask(SIOCETHTOOL as _, &mut request).ok()?;
        let name = info.driver.split(|byte| *byte == 0).next()?;
        String::from_utf8(name.to_vec()).ok().filter(|name| !name.is_empty())
    }

    /// Type of the link layer, one of the kernel's `ARPHRD_` numbers.
    pub(crate) fn hardware_type(&self) -> Result<u16> {
        let mut request = self.request();
        self.ask(libc::SIOCGIFHWADDR as _, &mut request)?;
        // SAFETY: the kernel filled this member.
        Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
    }

    /// Largest network-layer packet in bytes.
    pub(crate) fn mtu(&self) -> Result<u32> {
        let mut request = self.request();
        self.ask(libc::SIOCGIFMTU as _, &mut request)?;
        // SAFETY: the kernel filled this member.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
    }

    /// A request about this interface, nothing but its name filled in.
    pub(crate) fn request(&self) -> libc::ifreq {
        // SAFETY: all zeroes is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        let bytes = self.name.as_bytes();
        for (to, from) in request.ifr_name.iter_mut().zip(bytes.iter().take(libc::IF_NAMESIZE - 1))
        {
            *to = *from as libc::c_char;
        }
        request
    }

    fn ask(&self, what: libc::Ioctl, request: &mut libc::ifreq) -> Result<()> {
        // SAFETY: callers point to nothing, or to what outlives the call.
        unsafe { self.call(what, request) }.map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => Error::InterfaceGone(self.name.clone()),
            _ => Error::system(format!("ask about interface {}", self.name), error),
        })
    }

    /// The bare call.
    ///
    /// # Safety
    /// What `request` points to must be what the kernel reads or writes there for `what`.
    pub(crate) unsafe fn call(
        &self,
        what: libc::Ioctl,
        request: &mut libc::ifreq,
    ) -> io::Result<()> {
        // SAFETY: `request` is a whole `ifreq`; the caller vouches for what it points to.
        match unsafe { libc::ioctl(self.control.as_raw_fd(), what, request) } {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
