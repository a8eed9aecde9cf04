//! What a TUN device lacks of Ethernet. Its packets have no link layer, and the interface's frames do.
//!
//! The interface stays the host's: the kernel's routes through it say the next hop, its neighbour table the
//! hardware address, as for a packet of the host itself. [`Kernel`] is the thread that asks for both and
//! hears of changes; [`Ways`] is what it knows. Each queue's thread has its [`Heads`] on the way down, which
//! remember what they found in [`Ways`], and its [`Admission`] on the way up.

mod admission;
mod heads;
mod kernel;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_wire::ethernet::Address;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

pub(crate) use admission::Admission;
pub(crate) use heads::{Headed, Heads, LINK};
pub(crate) use kernel::{Device, Kernel};

use crate::{Error, Result};

/// Destinations that are remembered; packets for more wait for one to be forgotten.
const DESTINATIONS: usize = 4096;

/// For how long a destination that cannot be reached is not asked for again.
const REST: Duration = Duration::from_secs(1);

/// Where packets for a destination go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To this hardware address.
    To(Address),
    /// The kernel is looking for it.
    Waiting,
    /// There is no route through the interface, or nobody answers.
    Nowhere,
}

/// One destination.
struct Entry {
    way: Way,
    /// The neighbour that it is reached through, once that is known.
    hop: Option<IpAddr>,
    /// Somebody sent there since the last look.
    used: bool,
    /// Looks in a row that found it unused.
    idle: u32,
    since: Instant,
}

#[derive(Default)]
struct State {
    ways: HashMap<IpAddr, Entry>,
    /// Destinations that nobody has asked the kernel for yet.
    asks: Vec<IpAddr>,
    /// The addresses of the device, sorted.
    own: Vec<IpAddr>,
    /// Neighbours that did not answer, to be told of.
    silent: Vec<IpAddr>,
    /// The interface's hardware address, which the device shares.
    mac: Address,
}

/// What the threads of an uplink with a TUN device know together. Touched when a thread's own memory does
/// not have a destination: once a second for each.
pub(crate) struct Ways {
    state: Mutex<State>,
    /// Changes so far: whoever remembers something forgets it when this has moved.
    changes: AtomicU64,
    wake: OwnedFd,
}

impl Ways {
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

    /// The way to `destination`; has the kernel asked where it is not known.
    fn find(&self, destination: IpAddr) -> Way {
        let mut state = self.lock();
        let known = state.ways.len();
        if let Some(entry) = state.ways.get_mut(&destination) {
            entry.used = true;
            if entry.way != Way::Nowhere || entry.since.elapsed() < REST {
                return entry.way;
            }
            (entry.way, entry.hop, entry.since) = (Way::Waiting, None, Instant::now());
        } else if known < DESTINATIONS {
            let since = Instant::now();
            let entry = Entry { way: Way::Waiting, hop: None, used: true, idle: 0, since };
            state.ways.insert(destination, entry);
        } else {
            return Way::Nowhere;
        }
        state.asks.push(destination);
        drop(state);
        self.wake();
        Way::Waiting
    }

    /// Neighbours that did not answer since the last call.
    pub(crate) fn silent(&self) -> Vec<IpAddr> {
        std::mem::take(&mut self.lock().silent)
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
        let ways = Ways::new(Address::BROADCAST).unwrap();
        let there: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(ways.find(there), Way::Waiting);
        assert_eq!(ways.find(there), Way::Waiting);
        assert_eq!(std::mem::take(&mut ways.lock().asks), [there]);
        let set = |way, since| {
            let mut state = ways.lock();
            let entry = state.ways.get_mut(&there).unwrap();
            (entry.way, entry.since) = (way, since);
        };
        set(Way::Nowhere, Instant::now());
        assert_eq!(ways.find(there), Way::Nowhere);
        assert!(ways.lock().asks.is_empty());
        set(Way::Nowhere, Instant::now().checked_sub(REST).unwrap());
        assert_eq!(ways.find(there), Way::Waiting, "it is asked for again");
        assert_eq!(ways.lock().asks, [there]);
        set(Way::To(Address::BROADCAST), Instant::now());
        assert_eq!(ways.find(there), Way::To(Address::BROADCAST));
    }

    #[test]
    fn whoever_scans_a_network_fills_a_bounded_table() {
        let ways = Ways::new(Address::BROADCAST).unwrap();
        for number in 0..2 * DESTINATIONS as u32 {
            ways.find(IpAddr::V4(number.into()));
        }
        let state = ways.lock();
        assert_eq!((state.ways.len(), state.asks.len()), (DESTINATIONS, DESTINATIONS));
    }
}
