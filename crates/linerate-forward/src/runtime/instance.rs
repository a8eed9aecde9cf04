//! [`Instance`]: a pinned instance, opened for reading or for ending sessions. Works with and without a
//! daemon.

use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use linerate_net::lock::{MAX_WAIT, lock_within};

use crate::maps::Maps;
use crate::runtime::instance_reader::InstanceReader;
use crate::runtime::pins::{Pins, instance_name};
use crate::snapshot::{Snapshot, State};
use crate::table::Table;
use crate::table::accounting::{self, Connection};
use crate::table::clock::Clock;
use crate::table::control::Control;
use crate::table::deny::DenyList;
use crate::table::session::{Filter, Rates, Session};
use crate::{Error, Result};

/// An instance, by its pinned maps.
#[derive(Debug)]
pub struct Instance {
    pins: Pins,
    maps: Maps,
    control: Arc<Control>,
    table: Table,
    clock: Clock,
}

impl Instance {
    /// Opens the instance of this name, or that of the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::Pin`] if there is none, or one of another version; [`Error::Privilege`].
    pub fn open(name: Option<&str>) -> Result<Self> {
        let name = name.map_or_else(instance_name, |name| Ok(name.to_owned()))?;
        let pins = Pins::of(&name);
        let maps = pins.maps()?;
        let control = Arc::new(Control::open(&maps)?);
        let table = Table::open(&maps)?;
        Ok(Self { pins, maps, control, table, clock: Clock::from_boot_time() })
    }

    /// Its deny list, locked. Others wait until it is dropped, ten seconds at most.
    pub fn deny_list(&self) -> Result<LockedDenyList> {
        LockedDenyList::open(&self.pins, &self.maps, &self.control, self.clock, MAX_WAIT)
    }

    /// Its state and counters.
    ///
    /// # Errors
    /// [`Error::System`] when a map cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let reader = self.instance_reader();
        let denied = DenyList::open(&self.maps, Arc::clone(&self.control), self.clock)?.count()?;
        // The lock ends with the daemon, but its last heartbeat is valid for a while longer.
        let daemon = self.pins.daemon();
        let process = daemon.and_then(|(process, _)| process);
        let mut snapshot = reader.snapshot(process, self.table.count(), denied)?;
        snapshot.state = match (snapshot.state, daemon) {
            (_, Some((_, false))) => State::Starting,
            (State::FailOpen, _) => State::FailOpen,
            (_, None) => State::Unattended,
            (_, Some(_)) => State::Running,
        };
        Ok(snapshot)
    }

    /// Computes rates from consecutive readings of its sessions.
    #[must_use]
    pub fn rates(&self) -> Rates {
        Rates::of_slots(self.table.slots())
    }

    /// Passes on every session once, with its rate since the last reading if `rates` is given.
    ///
    /// # Errors
    /// As [`Instance::snapshot`].
    pub fn sessions(
        &self,
        mut rates: Option<&mut Rates>,
        mut take: impl FnMut(Session),
    ) -> Result<()> {
        let mut decoder = self.instance_reader().decoder()?;
        if let Some(rates) = rates.as_deref_mut() {
            rates.start();
        }
        for mut session in self.table.sessions(&mut decoder) {
            session.rate = rates.as_deref_mut().and_then(|rates| rates.rate(&session));
            take(session);
        }
        Ok(())
    }

    /// The connections with the most bytes, up to `limit`.
    pub fn connections(&self, limit: usize) -> Vec<Connection> {
        accounting::largest(&self.table, &self.clock, limit)
    }

    /// Ends the sessions that `filter` selects; their next packets go to the kernel. Returns how many ended.
    ///
    /// # Errors
    /// As [`Instance::snapshot`].
    pub fn flush(&self, filter: &Filter) -> Result<u64> {
        let mut decoder = self.instance_reader().decoder()?;
        let mut session = |slot| self.table.session(slot, &mut decoder);
        Ok(self.table.end(|slot| session(slot).is_some_and(|session| filter.accepts(&session))))
    }

    fn instance_reader(&self) -> InstanceReader<'_> {
        let Self { pins, maps, control, table, clock } = self;
        InstanceReader { name: pins.instance(), maps, control, table, clock: *clock }
    }
}

/// A locked deny list: a daemon and any number of commands may want to change it.
#[derive(Debug)]
pub struct LockedDenyList {
    list: DenyList,
    _lock: File,
}

impl LockedDenyList {
    pub(crate) fn open(
        pins: &Pins,
        maps: &Maps,
        control: &Arc<Control>,
        clock: Clock,
        max_wait: Duration,
    ) -> Result<Self> {
        let directory = pins.directory().join("maps");
        let failed = |error| Error::system(format!("lock {}", directory.display()), error);
        let lock = File::open(&directory).map_err(failed)?;
        lock_within(&lock, max_wait).map_err(failed)?;
        Ok(Self { list: DenyList::open(maps, Arc::clone(control), clock)?, _lock: lock })
    }
}

impl Deref for LockedDenyList {
    type Target = DenyList;

    fn deref(&self) -> &DenyList {
        &self.list
    }
}

impl DerefMut for LockedDenyList {
    fn deref_mut(&mut self) -> &mut DenyList {
        &mut self.list
    }
}
