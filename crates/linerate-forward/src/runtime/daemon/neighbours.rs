//! [`NeighbourConfirmer`]: has the kernel confirm the neighbours that sessions send to.
//!
//! Some time after the address of a neighbour was confirmed, the kernel confirms it again if packets use the entry;
//! otherwise the entry becomes stale (net/core/neighbour.c). Packets of the fast path do not use it. So a next hop that
//! changes its address and says nothing would be noticed only when a session is revalidated. Here stale entries of next
//! hops in use are used once, as a packet would (`NTF_USE`). The kernel does the rest; what it finds is a change.

use std::io;
use std::time::{Duration, Instant};

use linerate_net::Connection;
use linerate_net::neighbour::State;

use crate::maps::Maps;
use crate::runtime::upper_devices;
use crate::table::Table;
use crate::table::clock::Clock;
use crate::{Error, Result};

/// Sessions that have forwarded within this time use their next hop; the ager knows it to some seconds.
const IN_USE_WINDOW: Duration = Duration::from_secs(10);
/// A pass over the table is followed by a pause of so many times its duration.
const PAUSE_FACTOR: u32 = 50;

/// What asks the kernel, and when it does so next.
#[derive(Debug)]
pub(super) struct NeighbourConfirmer {
    connection: Connection,
    due: Instant,
}

impl NeighbourConfirmer {
    /// In the network namespace of the calling thread.
    pub(super) fn open() -> Result<Self> {
        let connection = Connection::open()
            .map_err(|error| Error::system("ask for neighbours", error.into()))?;
        Ok(Self { connection, due: Instant::now() })
    }

    /// Has stale next hops confirmed, if that is due.
    pub(super) fn tick(&mut self, table: &Table, maps: &Maps, clock: &Clock) {
        let start = Instant::now();
        if start < self.due {
            return;
        }
        let confirmed = self.confirm(table, maps, clock);
        self.due = Instant::now() + PAUSE_FACTOR * start.elapsed();
        if let Err(error) = confirmed {
            tracing::warn!(%error, "stale neighbours are not confirmed for a minute");
            self.due += Duration::from_secs(60);
        }
    }

    fn confirm(&self, table: &Table, maps: &Maps, clock: &Clock) -> Result<()> {
        let failed =
            |error: linerate_net::Error| Error::system("confirm stale neighbours", error.into());
        let mut stale = self.connection.neighbours().map_err(failed)?;
        stale.retain(|entry| entry.state == State::Stale && !entry.external);
        if stale.is_empty() {
            return Ok(());
        }
        let used = table.next_hops(clock, IN_USE_WINDOW);
        let uppers = upper_devices::pairs_in(maps)?;
        for entry in stale {
            // An entry of a bridge or VLAN device is used by packets that leave by a port below.
            let ports = uppers.iter().filter(|(upper, _)| *upper == entry.index);
            let mut ports = ports.map(|(_, port)| *port).chain([entry.index]);
            let is_used = entry
                .address
                .is_some_and(|address| ports.any(|port| used.contains(&(port, address.0))));
            if let (Some(destination), true) = (entry.destination, is_used) {
                match self.connection.confirm_neighbour(entry.index, destination) {
                    // The entry has gone meanwhile, or its interface has, or is down.
                    Err(linerate_net::Error::System { source, .. }) if is_gone(&source) => {}
                    confirmed => confirmed.map_err(failed)?,
                }
            }
        }
        Ok(())
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV | libc::ENETDOWN))
}
