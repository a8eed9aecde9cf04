//! [`Watch`]: follows the interface of a receiver by the kernel's notifications.

use linerate_net::change::{Change, Changes, RtnlGroup};
use linerate_net::{Connection, Interface};

use crate::{Error, Result};

/// The interface that a receiver is bound to, and a subscription to what may concern it. It stays in the network
/// namespace of the thread that made it.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Readable when something may have changed.
    pub(crate) changes: Changes,
    pub(crate) connection: Connection,
    interface: Interface,
    /// Whether it was up in the last notification. The current state may be newer.
    was_up: bool,
    /// How often it went down.
    pub(crate) times_down: u64,
    /// The interface no longer exists in the namespace.
    pub(crate) gone: bool,
}

impl Watch {
    /// Follows the interface `name`; with `addresses` the addresses and local routes of the host
    /// too.
    pub(crate) fn start(name: &str, addresses: bool) -> Result<Self> {
        let groups = [
            RtnlGroup::Link,
            RtnlGroup::Ipv4Address,
            RtnlGroup::Ipv6Address,
            RtnlGroup::Ipv4Route,
            RtnlGroup::Ipv6Route,
        ];
        // Subscribe before the first check, so that no change is missed.
        let changes = Changes::subscribe(if addresses { &groups } else { &groups[..1] })?;
        let changes = changes.only_local_routes();
        let interface = Interface::open(name)?;
        let was_up = interface.is_up()?;
        let connection = Connection::open()?;
        Ok(Self { changes, connection, interface, was_up, times_down: 0, gone: false })
    }

    /// Whether something may have changed since the last call: one system call where nothing has.
    pub(crate) fn has_changed(&mut self) -> Result<bool> {
        let Self { changes, interface, was_up, times_down, .. } = self;
        let (mut changed, mut lost, before) = (false, false, *times_down);
        changes.receive(|change| match change {
            Change::Link { index, .. } if index != interface.index() => {}
            Change::Link { up, .. } => {
                *times_down += u64::from(*was_up && !up);
                (*was_up, changed) = (up, true);
            }
            Change::Lost => (changed, lost) = (true, true),
            _ => changed = true,
        })?;
        // Where it is gone, `check` finds that out.
        if lost && let Ok(up) = interface.is_up() {
            *times_down += u64::from(*was_up && !up);
            *was_up = up;
        }
        if *times_down > before {
            let down = linerate_ring::Error::InterfaceDown(interface.name().to_owned());
            tracing::warn!("{down}; messages come again when it is up");
        }
        Ok(changed)
    }

    /// Checks that the interface exists. An error on every call after it was removed or moved to another namespace.
    pub(crate) fn check(&mut self) -> Result<()> {
        // Only whether it is there: what it is now may be ahead of the notifications.
        if !self.gone {
            match self.interface.is_up() {
                Err(linerate_net::Error::InterfaceGone(_)) => self.gone = true,
                other => drop(other?),
            }
        }
        match self.gone {
            true => Err(Error::InterfaceGone(self.interface.name().to_owned())),
            false => Ok(()),
        }
    }
}
