//! [`Resolver`]: the thread that queries the kernel for routes and neighbours, and follows changes of both
//! and of the device's addresses.
//!
//! The kernel resolves: an unknown neighbour is requested with `NTF_USE` (`neigh_add` of
//! `net/core/neighbour.c`), which starts the same ARP or neighbour discovery as a packet would. One that is
//! in use and stale is requested again, so that the kernel confirms it.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_bpf::addresses::{Addresses, MAX_ADDRESSES};
use linerate_net::Connection;
use linerate_net::change::{Change, Changes, RtnlGroup};
use linerate_net::neighbour::{Neighbour, State as Nud};
use linerate_net::privilege::{self, CapabilitySet};
use linerate_net::route::Kind;
use linerate_wire::ethernet::Address;
use rustix::event::{PollFd, PollFlags};

use super::{DestinationCache, Resolution, State};
use crate::{Error, Result};

/// How often the thread checks which destinations are in use.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Checks in a row after which an unused destination is forgotten.
const MAX_IDLE_POLLS: u32 = 60;

/// Unreachable neighbours that are remembered as reported.
const MAX_REPORTED: usize = 1024;

/// What may change the next hop of a destination in the interface's namespace.
const ROUTING: [RtnlGroup; 7] = [
    RtnlGroup::Link,
    RtnlGroup::Neighbour,
    RtnlGroup::Ipv4Route,
    RtnlGroup::Ipv4Rule,
    RtnlGroup::Ipv6Route,
    RtnlGroup::Ipv6Rule,
    RtnlGroup::Nexthop,
];

/// The sockets of the device's namespace; opened by a thread that is in it.
pub(crate) struct DeviceAddresses {
    index: u32,
    connection: Connection,
    changes: Changes,
}

impl DeviceAddresses {
    /// Of the device with this index in the namespace of the calling thread.
    pub(crate) fn open(index: u32) -> Result<Self> {
        let changes = Changes::subscribe(&[RtnlGroup::Ipv4Address, RtnlGroup::Ipv6Address])?;
        Ok(Self { index, connection: Connection::open()?, changes })
    }
}

/// The thread. It keeps CAP_NET_ADMIN, which requests for neighbours need, and no other capability. It ends
/// when this is dropped.
pub(crate) struct Resolver {
    cache: Arc<DestinationCache>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Resolver {
    /// Starts it, in the namespace of interface `index`. It keeps the device's addresses in `maps`, which tell
    /// the BPF programs which frames are for the device.
    pub(crate) fn start(
        index: u32,
        device: DeviceAddresses,
        maps: Vec<Addresses>,
        cache: &Arc<DestinationCache>,
    ) -> Result<Self> {
        let stop: Arc<AtomicBool> = Arc::default();
        let mut worker = Worker {
            index,
            connection: Connection::open()?,
            changes: Changes::subscribe(&ROUTING)?,
            device,
            maps,
            cache: Arc::clone(cache),
            stop: Arc::clone(&stop),
            neighbours: HashMap::new(),
            reported: HashSet::new(),
            polled: Instant::now(),
        };
        worker.read_addresses();
        let thread = std::thread::Builder::new()
            .name("uplink-resolver".to_owned())
            .spawn(move || worker.run())
            .map_err(|error| Error::Thread(format!("cannot be started: {error}")))?;
        Ok(Self { cache: Arc::clone(cache), stop, thread: Some(thread) })
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.cache.wake();
        if let Some(thread) = self.thread.take() {
            // Nobody is left to hear why it ended.
            let _ = thread.join();
        }
    }
}

/// The kernel's state of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NeighbourState {
    Reachable(Address),
    /// Usable, but the kernel would confirm it before it sends.
    Stale(Address),
    Incomplete,
    Failed,
}

impl NeighbourState {
    fn of(entry: &Neighbour) -> Self {
        match (entry.state, entry.valid_address()) {
            (Nud::Stale, Some(mac)) => Self::Stale(mac),
            (_, Some(mac)) => Self::Reachable(mac),
            (Nud::Failed, _) => Self::Failed,
            _ => Self::Incomplete,
        }
    }

    fn resolution(self) -> Resolution {
        match self {
            Self::Reachable(mac) | Self::Stale(mac) => Resolution::Resolved(mac),
            Self::Incomplete => Resolution::Pending,
            Self::Failed => Resolution::Unreachable,
        }
    }
}

/// How a destination is reached.
enum NextHop {
    Address(IpAddr),
    Broadcast,
    None,
}

struct Worker {
    index: u32,
    connection: Connection,
    changes: Changes,
    device: DeviceAddresses,
    maps: Vec<Addresses>,
    cache: Arc<DestinationCache>,
    stop: Arc<AtomicBool>,
    /// The neighbours that destinations are reached through.
    neighbours: HashMap<IpAddr, NeighbourState>,
    reported: HashSet<IpAddr>,
    polled: Instant,
}

impl Worker {
    fn run(&mut self) {
        if let Err(error) = privilege::keep_only(CapabilitySet::NET_ADMIN) {
            tracing::debug!(%error, "cannot drop the capabilities of a thread");
        }
        while !self.stop.load(Relaxed) {
            self.wait();
            self.receive_changes();
            self.receive_address_changes();
            let unresolved = std::mem::take(&mut self.cache.lock().unresolved);
            unresolved.into_iter().for_each(|destination| self.resolve(destination));
            let heard = std::mem::take(&mut self.cache.lock().heard);
            heard.into_iter().for_each(|(neighbour, mac)| self.learn(neighbour, mac));
            if self.polled.elapsed() >= POLL_INTERVAL {
                self.polled = Instant::now();
                self.age();
            }
        }
    }

    fn wait(&self) {
        let descriptors =
            [self.cache.wake.as_fd(), self.changes.as_fd(), self.device.changes.as_fd()];
        let mut fds = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        if linerate_ring::poll(&mut fds, POLL_INTERVAL).is_err() {
            // Cannot happen with these descriptors; the sleep keeps it from spinning.
            std::thread::sleep(POLL_INTERVAL);
        }
        // Empties the counter; it may be empty.
        let _ = rustix::io::read(&self.cache.wake, &mut [0; 8]);
    }

    /// Processes changes of neighbours and routes.
    fn receive_changes(&mut self) {
        let (mut anew, mut neighbours) = (false, Vec::new());
        let own = self.index;
        let received = self.changes.receive(|change| match change {
            Change::Neighbour(entry) => neighbours.push((entry, false)),
            Change::NeighbourDeleted(entry) => neighbours.push((entry, true)),
            Change::Link { index, .. } => anew |= index == own,
            // Any change may have been lost.
            Change::Other | Change::Lost => anew = true,
        });
        if let Err(error) = received {
            tracing::debug!(%error, "changes of routes and neighbours cannot be read");
            anew = true;
        }
        neighbours.iter().for_each(|(entry, deleted)| self.update(entry, *deleted));
        if anew {
            // Packets go on as before until the answer is there.
            self.neighbours.clear();
            let mut state = self.cache.lock();
            state.destinations.retain(|_, entry| entry.used || entry.idle <= 1);
            state.unresolved = state.destinations.keys().copied().collect();
        }
    }

    fn update(&mut self, entry: &Neighbour, deleted: bool) {
        if entry.index != self.index || entry.proxy {
            return;
        }
        let Some(address) = entry.destination else { return };
        if !self.neighbours.contains_key(&address) {
            return;
        }
        if deleted {
            // Garbage-collected, not failed: the next packet causes a new resolution.
            self.neighbours.remove(&address);
            let mut state = self.cache.lock();
            state.destinations.retain(|_, entry| entry.next_hop != Some(address));
            self.cache.changed();
            return;
        }
        self.set_state(address, NeighbourState::of(entry));
    }

    /// Stores the state of a neighbour, for all destinations that are reached through it.
    fn set_state(&mut self, address: IpAddr, neighbour: NeighbourState) {
        let before = self.neighbours.insert(address, neighbour);
        let resolution = neighbour.resolution();
        if before.map(NeighbourState::resolution) == Some(resolution) {
            return;
        }
        let mut state = self.cache.lock();
        for entry in state.destinations.values_mut().filter(|entry| entry.next_hop == Some(address))
        {
            (entry.resolution, entry.since) = (resolution, Instant::now());
        }
        self.cache.changed();
        match neighbour {
            NeighbourState::Failed
                if self.reported.len() < MAX_REPORTED && self.reported.insert(address) =>
            {
                state.unreachable.push(address);
            }
            NeighbourState::Reachable(_) | NeighbourState::Stale(_) => {
                self.reported.remove(&address);
            }
            _ => {}
        }
    }

    /// Finds the next hop of a destination and its address, or makes the kernel resolve it.
    fn resolve(&mut self, destination: IpAddr) {
        let settle = |state: &mut State, resolution, next_hop| {
            // It may have been removed in the meantime.
            if let Some(entry) = state.destinations.get_mut(&destination) {
                (entry.resolution, entry.next_hop, entry.since) =
                    (resolution, next_hop, Instant::now());
            }
        };
        let address = match self.route(destination) {
            Ok(NextHop::Address(address)) => address,
            Ok(NextHop::Broadcast) => {
                settle(&mut self.cache.lock(), Resolution::Resolved(Address::BROADCAST), None);
                return self.cache.changed();
            }
            answer => {
                if let Err(error) = answer {
                    tracing::debug!(%error, %destination, "no route");
                }
                settle(&mut self.cache.lock(), Resolution::Unreachable, None);
                return self.cache.changed();
            }
        };
        let known = match self.neighbours.get(&address) {
            Some(
                neighbour @ (NeighbourState::Reachable(_)
                | NeighbourState::Stale(_)
                | NeighbourState::Incomplete),
            ) => *neighbour,
            _ => self.neighbour(address),
        };
        // Whatever failed before is tried again.
        let neighbour =
            if known == NeighbourState::Failed { NeighbourState::Incomplete } else { known };
        self.neighbours.insert(address, neighbour);
        settle(&mut self.cache.lock(), neighbour.resolution(), Some(address));
        if !matches!(neighbour, NeighbourState::Reachable(_)) {
            self.probe(address);
        }
        self.cache.changed();
    }

    /// Where the kernel would send its own packet through the interface.
    fn route(&self, destination: IpAddr) -> linerate_net::Result<NextHop> {
        let route = self.connection.route_to(destination, Some(self.index))?;
        if route.interfaces.iter().any(|index| *index != self.index) {
            return Ok(NextHop::None);
        }
        Ok(match route.kind {
            Kind::Unicast | Kind::Anycast => NextHop::Address(route.gateway.unwrap_or(destination)),
            Kind::Broadcast => NextHop::Broadcast,
            _ => NextHop::None,
        })
    }

    /// The kernel's entry of a neighbour.
    fn neighbour(&self, address: IpAddr) -> NeighbourState {
        match self.connection.neighbour(self.index, address) {
            Ok(Some(entry)) => NeighbourState::of(&entry),
            _ => NeighbourState::Incomplete,
        }
    }

    /// Requests resolution or confirmation of a neighbour.
    fn probe(&mut self, address: IpAddr) {
        if let Err(error) = self.connection.request_neighbour(self.index, address) {
            tracing::debug!(%error, %address, "neighbour resolution request failed");
            self.set_state(address, NeighbourState::Failed);
        }
    }

    /// Tells the kernel of another hardware address of a neighbour; the change of its table comes back as any other.
    fn learn(&self, address: IpAddr, mac: Address) {
        let Ok(Some(entry)) = self.connection.neighbour(self.index, address) else { return };
        let is_fixed = matches!(entry.state, Nud::Permanent | Nud::Noarp) || entry.external;
        if is_fixed || mac.is_multicast() || entry.valid_address() == Some(mac) {
            return;
        }
        if let Err(error) = self.connection.update_neighbour(self.index, address, mac) {
            tracing::debug!(%error, %address, "the kernel does not take a neighbour's new address");
        }
    }

    /// Requests confirmation of the neighbours in use, and drops unused destinations.
    fn age(&mut self) {
        let mut state = self.cache.lock();
        let mut used = HashSet::new();
        state.destinations.retain(|_, entry| {
            entry.idle = if entry.used { 0 } else { entry.idle + 1 };
            if std::mem::take(&mut entry.used) {
                used.extend(entry.next_hop);
            }
            entry.idle < MAX_IDLE_POLLS
        });
        let needed: HashSet<_> =
            state.destinations.values().filter_map(|entry| entry.next_hop).collect();
        drop(state);
        self.neighbours.retain(|address, _| needed.contains(address));
        for address in used {
            if matches!(self.neighbours.get(&address), Some(NeighbourState::Stale(_))) {
                self.probe(address);
            }
        }
    }

    /// Processes changes of the device's addresses.
    fn receive_address_changes(&mut self) {
        let mut changed = false;
        let received = self.device.changes.receive(|_| changed = true);
        changed |= received.is_err();
        if changed {
            self.read_addresses();
        }
    }

    fn read_addresses(&mut self) {
        let all = match self.device.connection.addresses() {
            Ok(all) => all,
            Err(error) => return tracing::warn!(%error, "cannot read the addresses of the device"),
        };
        let index = self.device.index;
        let mut own: Vec<IpAddr> =
            all.iter().filter(|one| one.index == index).map(|one| one.address).collect();
        own.sort();
        own.dedup();
        if own.len() > MAX_ADDRESSES {
            tracing::warn!(
                "the device has more than {MAX_ADDRESSES} addresses; the rest are ignored"
            );
            own.truncate(MAX_ADDRESSES);
        }
        let mut state = self.cache.lock();
        for map in &self.maps {
            let gone = state.addresses.iter().filter(|one| !own.contains(one));
            let result = gone
                .map(|one| map.remove(*one))
                .chain(
                    own.iter()
                        .filter(|one| !state.addresses.contains(one))
                        .map(|one| map.insert(*one)),
                )
                .collect::<linerate_bpf::Result<()>>();
            if let Err(error) = result {
                tracing::warn!("{error}");
            }
        }
        state.addresses = own;
        self.cache.changed();
    }
}
