//! [`Interface`]: an open interface that can be queried repeatedly, without the kernel's RTNL lock.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::Context;
use crate::ioctl;
use crate::netlink::attr_str;
use crate::{Error, Result, ethtool, link};

/// A network interface, by its index. Queries go to the network namespace that the thread was in when it was
/// opened, even if the thread has moved. A [`link::Link`] is a snapshot of an interface.
#[derive(Clone, Debug)]
pub struct Interface {
    name: String,
    index: u32,
    socket: Arc<OwnedFd>,
}

impl Interface {
    /// Opens it in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::NoInterface`], [`Error::System`].
    pub fn open(name: &str) -> Result<Self> {
        let socket = socket(|| format!("ask about interface {name}"))?;
        let is_plain = link::is_name(name);
        let found = if is_plain { name_to_index(&socket, name).ok() } else { None };
        let index = match found {
            Some(index) => index,
            None => link::by_name(name)?.index,
        };
        Ok(Self { name: name.to_owned(), index, socket: Arc::new(socket) })
    }

    /// Opens the one with this index. No query takes the kernel's RTNL lock, which others may hold for seconds.
    ///
    /// # Errors
    /// [`Error::InterfaceGone`], [`Error::System`].
    pub fn by_index(index: u32) -> Result<Self> {
        let socket = socket(|| format!("ask about interface {index}"))?;
        let mut found = Self { name: format!("#{index}"), index, socket: Arc::new(socket) };
        found.name = attr_str(&found.current_name().map_err(|source| found.failed(source))?);
        Ok(found)
    }

    /// The name that it was opened by; it may have been renamed since.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index, which it keeps.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Whether it is still in the namespace.
    pub fn exists(&self) -> bool {
        self.current_name().is_ok()
    }

    /// Whether it is administratively up.
    ///
    /// # Errors
    /// [`Error::InterfaceGone`], [`Error::System`].
    pub fn is_up(&self) -> Result<bool> {
        // The kernel takes a name here. The interface may have been renamed, and after a removal another one
        // may have its name.
        let flags = self.current_name().and_then(|name| ioctl::flags(&self.socket, &name));
        Ok(flags.map_err(|source| self.failed(source))? & libc::IFF_UP as u32 != 0)
    }

    /// The number of its link layer (`ARPHRD_` of `linux/if_arp.h`).
    ///
    /// # Errors
    /// [`Error::InterfaceGone`], [`Error::System`].
    pub fn link_layer(&self) -> Result<u16> {
        let number = self.current_name().and_then(|name| ioctl::link_layer(&self.socket, &name));
        number.map_err(|source| self.failed(source))
    }

    /// Everything that the kernel reports about it now.
    ///
    /// # Errors
    /// [`Error::InterfaceGone`], [`Error::System`]. The calling thread has to be in its namespace.
    pub fn link(&self) -> Result<link::Link> {
        link::by_index(self.index)?.ok_or_else(|| Error::InterfaceGone(self.name.clone()))
    }

    /// Receive queues in use; 1 if the driver does not report them.
    ///
    /// # Errors
    /// [`Error::System`]. The calling thread has to be in its namespace.
    pub fn rx_queues(&self) -> Result<u32> {
        let channels = ethtool::channels(self.index)?.unwrap_or_default();
        Ok((channels.rx_count + channels.combined_count).max(1))
    }

    /// The name of its driver (`ethtool -i`), if reported.
    pub fn driver(&self) -> Option<String> {
        let driver = self.current_name().and_then(|name| ioctl::driver(&self.socket, &name));
        driver.ok().filter(|driver| !driver.is_empty())
    }

    fn current_name(&self) -> io::Result<Vec<u8>> {
        ioctl::name(&self.socket, self.index)
    }

    fn failed(&self, source: io::Error) -> Error {
        match source.raw_os_error() {
            Some(libc::ENODEV | libc::ENXIO) => Error::InterfaceGone(self.name.clone()),
            _ => Error::new(format!("ask about interface {}", self.name), source),
        }
    }
}

/// A socket for queries, whichever.
fn socket(action: impl Fn() -> String) -> Result<OwnedFd> {
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).context(action)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_asked() {
        let loopback = Interface::open("lo").unwrap();
        assert_eq!((loopback.index(), loopback.name()), (1, "lo"));
        assert!(loopback.exists());
        assert_eq!(loopback.is_up().unwrap(), loopback.link().unwrap().is_up());
        assert_eq!(loopback.rx_queues().unwrap(), 1);
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        for name in ["", "none", "a-name-that-is-too-long", "nul\0"] {
            assert!(
                matches!(Interface::open(name), Err(Error::NoInterface(said)) if said.name == name)
            );
        }
        assert!(
            Interface { index: i32::MAX as u32, ..Interface::open("lo").unwrap() }
                .is_up()
                .is_err_and(|error| matches!(error, Error::InterfaceGone(_)))
        );
    }
}
