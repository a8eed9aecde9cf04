//! [`Watch`]: follows the interface of a receiver by the kernel's notifications.

use std::os::fd::{AsFd, BorrowedFd};

use linerate_net::change::{Change, Changes, Group};
use linerate_net::{Connection, Interface};

use crate::Result;

/// The interface that a receiver is bound to, and a subscription to what may concern it. It stays in the network
/// namespace of the thread that made it.
#[derive(Debug)]
pub(crate) struct Watch {
    changes: Changes,
    connection: Connection,
    interface: Interface,
    was_up: bool,
    gone: bool,
}

impl Watch {
    /// Follows the interface `name`; with `addresses` the addresses and local routes of the host
    /// too.
    pub(crate) fn start(name: &str, addresses: bool) -> Result<Self> {
        let groups = [
            Group::Link,
            Group::Ipv4Address,
            Group::Ipv6Address,
            Group::Ipv4Route,
            Group::Ipv6Route,
        ];
        // Subscribe before the first check, so that no change is missed.
        let changes = Changes::subscribe(if addresses { &groups } else { &groups[..1] })?;
        let changes = changes.only_local_routes();
        let interface = Interface::open(name)?;
        let was_up = interface.is_up()?;
        Ok(Self { changes, connection: Connection::open()?, interface, was_up, gone: false })
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether something may have changed since the last call: one system call where nothing has.
    pub(crate) fn has_changed(&mut self) -> Result<bool> {
        let index = self.interface.index();
        let mut changed = false;
        self.changes.receive(|change| {
            changed |= !matches!(change, Change::Link(other) if other != index);
        })?;
        Ok(changed)
    }

    /// Checks that the interface exists and is up. An error once each time that it goes down, and on every call after
    /// it was removed or moved to another namespace.
    pub(crate) fn check(&mut self) -> Result<()> {
        let gone = || linerate_net::Error::InterfaceGone(self.interface.name().to_owned());
        let up = if self.gone { Err(gone()) } else { self.interface.is_up() };
        let up = up.inspect_err(|error| {
            self.gone |= matches!(error, linerate_net::Error::InterfaceGone(_));
        })?;
        let went_down = self.was_up && !up;
        self.was_up = up;
        match went_down {
            true => {
                Err(linerate_ring::Error::InterfaceDown(self.interface.name().to_owned()).into())
            }
            false => Ok(()),
        }
    }

    /// The interface no longer exists in the namespace.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }
}
