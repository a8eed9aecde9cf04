//! The link layer of a TUN device. Its packets have no Ethernet header, and the interface's frames do.
//!
//! The host keeps the interface. The kernel's routes through it give the next hop, and its neighbour table
//! gives the hardware address, as for a packet of the host itself. The thread [`Resolver`] queries both and
//! follows changes; it writes to [`DestinationCache`]. The thread of each queue has an [`Encapsulator`] for
//! tx and a [`ReceiveFilter`] for rx. Both remember what they have read from the cache.

mod encapsulation;
mod receive_filter;
mod resolver;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_wire::ethernet::Address;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

pub(crate) use encapsulation::{ETHERNET_HEADER, Encapsulated, Encapsulator};
pub(crate) use receive_filter::ReceiveFilter;
pub(crate) use resolver::{DeviceAddresses, Resolver};

use crate::{Error, Result};

/// Most destinations; packets for others are unreachable until one is forgotten.
const MAX_DESTINATIONS: usize = 4096;

/// Most requests of neighbours that wait for the resolver; they repeat others.
const MAX_HEARD: usize = 64;

/// How long an unreachable destination is not requested again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// What is known of a destination's link-layer address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// Packets go to this hardware address.
    Resolved(Address),
    /// The kernel resolves it.
    Pending,
    /// There is no route through the interface, or nobody answers.
    Unreachable,
}

/// One destination.
struct Entry {
    resolution: Resolution,
    /// The neighbour that it is reached through, once that is known.
    next_hop: Option<IpAddr>,
    /// A packet was sent there since the last check.
    used: bool,
    /// Checks in a row that found it unused.
    idle: u32,
    since: Instant,
}

#[derive(Default)]
struct State {
    destinations: HashMap<IpAddr, Entry>,
    /// Destinations that the kernel has not been asked for yet.
    unresolved: Vec<IpAddr>,
    /// Neighbours that asked for the device with another hardware address than the one that is in use.
    heard: Vec<(IpAddr, Address)>,
    /// The addresses of the device, sorted.
    addresses: Vec<IpAddr>,
    /// Neighbours that did not answer and are to be reported.
    unreachable: Vec<IpAddr>,
    /// The interface's hardware address, which the device shares.
    mac: Address,
}

/// Next hops that the threads of an uplink with a TUN device share. A thread reads it when its own cache does not
/// have a destination: once a second for each.
pub(crate) struct DestinationCache {
    state: Mutex<State>,
    /// Changes so far. Threads clear their own caches when it has changed.
    changes: AtomicU64,
    wake: OwnedFd,
}

impl DestinationCache {
    /// `mac` is the interface's hardware address.
    pub(crate) fn new(mac: Address) -> Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|errno| {
            Error::Link { action: "make an eventfd".to_owned(), source: errno.into() }
        })?;
        let state = Mutex::new(State { mac, ..State::default() });
        Ok(Self { state, changes: AtomicU64::new(0), wake })
    }

    /// The interface has another hardware address.
    pub(crate) fn set_mac(&self, mac: Address) {
        self.lock().mac = mac;
        self.changed();
    }

    /// The link-layer address of `destination`; if it is unknown, the resolver asks the kernel.
    fn find(&self, destination: IpAddr) -> Resolution {
        let mut state = self.lock();
        let known = state.destinations.len();
        if let Some(entry) = state.destinations.get_mut(&destination) {
            entry.used = true;
            if entry.resolution != Resolution::Unreachable || entry.since.elapsed() < RETRY_INTERVAL
            {
                return entry.resolution;
            }
            (entry.resolution, entry.next_hop, entry.since) =
                (Resolution::Pending, None, Instant::now());
        } else if known < MAX_DESTINATIONS {
            let since = Instant::now();
            let entry = Entry {
                resolution: Resolution::Pending,
                next_hop: None,
                used: true,
                idle: 0,
                since,
            };
            state.destinations.insert(destination, entry);
        } else {
            return Resolution::Unreachable;
        }
        state.unresolved.push(destination);
        drop(state);
        self.wake();
        Resolution::Pending
    }

    /// A neighbour asked for the device's hardware address from this one. The kernel has not seen that, and would learn
    /// from it.
    fn heard(&self, neighbour: IpAddr, mac: Address) {
        let mut state = self.lock();
        let is_other = |entry: &Entry| {
            entry.next_hop == Some(neighbour) && entry.resolution != Resolution::Resolved(mac)
        };
        if state.heard.len() < MAX_HEARD && state.destinations.values().any(is_other) {
            state.heard.push((neighbour, mac));
            drop(state);
            self.wake();
        }
    }

    /// Neighbours that did not answer since the last call.
    pub(crate) fn unreachable(&self) -> Vec<IpAddr> {
        std::mem::take(&mut self.lock().unreachable)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn wake(&self) {
        // A counter that is full has woken it already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_asked_for_once_and_its_failure_rests() {
        let cache = DestinationCache::new(Address::BROADCAST).unwrap();
        let there: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(cache.find(there), Resolution::Pending);
        assert_eq!(cache.find(there), Resolution::Pending);
        assert_eq!(std::mem::take(&mut cache.lock().unresolved), [there]);
        let set = |resolution, since| {
            let mut state = cache.lock();
            let entry = state.destinations.get_mut(&there).unwrap();
            (entry.resolution, entry.since) = (resolution, since);
        };
        set(Resolution::Unreachable, Instant::now());
        assert_eq!(cache.find(there), Resolution::Unreachable);
        assert!(cache.lock().unresolved.is_empty());
        set(Resolution::Unreachable, Instant::now().checked_sub(RETRY_INTERVAL).unwrap());
        assert_eq!(cache.find(there), Resolution::Pending, "it is asked for again");
        assert_eq!(cache.lock().unresolved, [there]);
        set(Resolution::Resolved(Address::BROADCAST), Instant::now());
        assert_eq!(cache.find(there), Resolution::Resolved(Address::BROADCAST));
    }

    #[test]
    fn whoever_scans_a_network_fills_a_bounded_table() {
        let cache = DestinationCache::new(Address::BROADCAST).unwrap();
        for number in 0..2 * MAX_DESTINATIONS as u32 {
            cache.find(IpAddr::V4(number.into()));
        }
        let state = cache.lock();
        assert_eq!(
            (state.destinations.len(), state.unresolved.len()),
            (MAX_DESTINATIONS, MAX_DESTINATIONS)
        );
    }
}
