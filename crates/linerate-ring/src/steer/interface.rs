//! [`Interface`]: what a source has to know of a network interface, asked of the kernel through
//! `ioctl`, which answers for the network namespace of the caller (sysfs may not).

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::{Error, Result};

/// A network interface of this namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Its name.
    pub(crate) name: String,
    /// Its index.
    pub(crate) index: u32,
}

impl Interface {
    pub(crate) fn named(name: &str) -> Result<Self> {
        let missing = || Error::NoInterface(name.to_owned());
        let c_name = CString::new(name).map_err(|_| missing())?;
        // SAFETY: a C string.
        match unsafe { libc::if_nametoindex(c_name.as_ptr()) } {
            0 => Err(missing()),
            index => Ok(Self { name: name.to_owned(), index }),
        }
    }

    /// Whether an interface of this index is still there.
    pub(crate) fn exists(&self) -> bool {
        let mut name = [0; libc::IF_NAMESIZE];
        // SAFETY: a buffer of the size that the call wants.
        unsafe { !libc::if_indextoname(self.index, name.as_mut_ptr()).is_null() }
    }

    /// The largest packet, without the link-layer header.
    pub(crate) fn mtu(&self) -> Result<u32> {
        let mut request = self.request();
        self.ask(libc::SIOCGIFMTU as _, &mut request)?;
        // SAFETY: the kernel filled this member.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
    }

    /// Whether it is administratively up.
    pub(crate) fn is_up(&self) -> Result<bool> {
        let mut request = self.request();
        self.ask(libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: the kernel filled this member.
        Ok(unsafe { request.ifr_ifru.ifru_flags } as i32 & libc::IFF_UP != 0)
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
        const SIOCETHTOOL: u64 = 0x8946;
        let mut channels = Channels { command: ETHTOOL_GCHANNELS, ..Default::default() };
        let mut request = self.request();
        request.ifr_ifru.ifru_data = (&raw mut channels).cast();
        match self.ask(SIOCETHTOOL as _, &mut request) {
            Ok(()) => (channels.rx + channels.combined).max(1),
            Err(_) => 1,
        }
    }

    fn request(&self) -> libc::ifreq {
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
        let failed = || Error::last_os(format!("ask about interface {}", self.name));
        // SAFETY: no memory involved.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(failed());
        }
        // SAFETY: a descriptor just made for us alone.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: `request` is a whole `ifreq`, and what it points to outlives the call.
        if unsafe { libc::ioctl(fd.as_raw_fd(), what, request) } < 0 {
            return Err(match io::Error::last_os_error().raw_os_error() {
                Some(libc::ENODEV) => Error::InterfaceGone(self.name.clone()),
                _ => failed(),
            });
        }
        Ok(())
    }
}
