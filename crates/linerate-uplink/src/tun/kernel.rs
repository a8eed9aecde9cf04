//! [`Kernel`]: the thread that asks the kernel for routes and neighbours, and hears of changes of both and
//! of the device's addresses.
//!
//! The kernel resolves: a neighbour that is not known is asked for with `NTF_USE` (`neigh_add` of
//! `net/core/neighbour.c`), which starts the same ARP or neighbour discovery as a packet would. One that is
//! in use and stale is asked for again, so that the kernel goes on watching over it.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_bpf::addresses::{Addresses, MAX_ADDRESSES};
use linerate_net::Connection;
use linerate_net::change::{Change, Changes, Group};
use linerate_net::neighbour::{Neighbour, State as Nud};
use linerate_net::privilege::{self, CapabilitySet};
use linerate_net::route::Kind;
use linerate_wire::ethernet::Address;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{State, Way, Ways};
use crate::{Error, Result};

/// How often the thread looks which destinations are in use.
const LOOK: Duration = Duration::from_secs(1);

/// Looks in a row after which a destination that nobody used is forgotten.
const FORGET: u32 = 60;

/// Neighbours that are remembered to have been told of as silent.
const TOLD: usize = 1024;

/// What may change the way to a destination in the interface's namespace.
const ROUTING: [Group; 7] = [
    Group::Link,
    Group::Neighbour,
    Group::Ipv4Route,
    Group::Ipv4Rule,
    Group::Ipv6Route,
    Group::Ipv6Rule,
    Group::Nexthop,
];

/// The sockets of the device's namespace; opened by a thread that is in it.
pub(crate) struct Device {
    index: u32,
    connection: Connection,
    changes: Changes,
}

impl Device {
    /// Of the device with this index in the namespace of the calling thread.
    pub(crate) fn open(index: u32) -> Result<Self> {
        let changes = Changes::subscribe(&[Group::Ipv4Address, Group::Ipv6Address])?;
        Ok(Self { index, connection: Connection::open()?, changes })
    }
}

/// The thread. It keeps CAP_NET_ADMIN, without which nobody may ask for a neighbour, and nothing else. Ends
/// when this is dropped.
pub(crate) struct Kernel {
    ways: Arc<Ways>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Kernel {
    /// Starts it, in the namespace of interface `index`. Frames for the device's addresses, those that there
    /// are and those that come, are named to the programs that have `maps`.
    pub(crate) fn start(
        index: u32,
        device: Device,
        maps: Vec<Addresses>,
        ways: &Arc<Ways>,
    ) -> Result<Self> {
        let stop: Arc<AtomicBool> = Arc::default();
        let mut worker = Worker {
            index,
            connection: Connection::open()?,
            changes: Changes::subscribe(&ROUTING)?,
            device,
            maps,
            ways: Arc::clone(ways),
            stop: Arc::clone(&stop),
            hops: HashMap::new(),
            told: HashSet::new(),
            looked: Instant::now(),
        };
        worker.read_addresses();
        let thread = std::thread::Builder::new()
            .name("uplink-ways".to_owned())
            .spawn(move || worker.run())
            .map_err(|error| Error::Thread(format!("cannot be started: {error}")))?;
        Ok(Self { ways: Arc::clone(ways), stop, thread: Some(thread) })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.ways.wake();
        if let Some(thread) = self.thread.take() {
            // Nobody is left to hear why it ended.
            let _ = thread.join();
        }
    }
}

/// What the kernel says of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hop {
    At(Address),
    /// As before, but the kernel would ask again before it sends.
    Stale(Address),
    Asked,
    Failed,
}

impl Hop {
    fn of(entry: &Neighbour) -> Self {
        match (entry.state, entry.valid_address()) {
            (Nud::Stale, Some(mac)) => Self::Stale(mac),
            (_, Some(mac)) => Self::At(mac),
            (Nud::Failed, _) => Self::Failed,
            _ => Self::Asked,
        }
    }

    fn way(self) -> Way {
        match self {
            Self::At(mac) | Self::Stale(mac) => Way::To(mac),
            Self::Asked => Way::Waiting,
            Self::Failed => Way::Nowhere,
        }
    }
}

/// How a destination is reached.
enum Route {
    Hop(IpAddr),
    Everybody,
    None,
}

struct Worker {
    index: u32,
    connection: Connection,
    changes: Changes,
    device: Device,
    maps: Vec<Addresses>,
    ways: Arc<Ways>,
    stop: Arc<AtomicBool>,
    /// The neighbours that destinations are reached through.
    hops: HashMap<IpAddr, Hop>,
    told: HashSet<IpAddr>,
    looked: Instant,
}

impl Worker {
    fn run(&mut self) {
        if let Err(error) = privilege::keep_only(CapabilitySet::NET_ADMIN) {
            tracing::debug!(%error, "a thread keeps the capabilities that it has");
        }
        while !self.stop.load(Relaxed) {
            self.wait();
            self.hear_routing();
            self.hear_addresses();
            let asks = std::mem::take(&mut self.ways.lock().asks);
            asks.into_iter().for_each(|destination| self.resolve(destination));
            if self.looked.elapsed() >= LOOK {
                self.looked = Instant::now();
                self.look();
            }
        }
    }

    fn wait(&self) {
        let descriptors =
            [self.ways.wake.as_fd(), self.changes.as_fd(), self.device.changes.as_fd()];
        let mut fds = descriptors.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let timeout = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO);
        if poll(&mut fds, timeout).is_err_and(|errno| errno != nix::Error::EINTR) {
            // No descriptors of ours can be wrong; not to spin all the same.
            std::thread::sleep(LOOK);
        }
        // Empties the counter; that it was empty is no matter.
        let _ = rustix::io::read(&self.ways.wake, &mut [0; 8]);
    }

    /// Takes in what changed about neighbours and routes.
    fn hear_routing(&mut self) {
        let (mut anew, mut neighbours) = (false, Vec::new());
        let own = self.index;
        let received = self.changes.receive(|change| match change {
            Change::Neighbour(entry) => neighbours.push((entry, false)),
            Change::NeighbourDeleted(entry) => neighbours.push((entry, true)),
            Change::Link(index) => anew |= index == own,
            // What was lost may have been anything.
            Change::Other | Change::Lost => anew = true,
        });
        if let Err(error) = received {
            tracing::debug!(%error, "changes of routes and neighbours cannot be read");
            anew = true;
        }
        neighbours.iter().for_each(|(entry, deleted)| self.heard(entry, *deleted));
        if anew {
            // Packets go on as before until the answer is there.
            self.hops.clear();
            let mut state = self.ways.lock();
            state.ways.retain(|_, entry| entry.used || entry.idle <= 1);
            state.asks = state.ways.keys().copied().collect();
        }
    }

    fn heard(&mut self, entry: &Neighbour, deleted: bool) {
        if entry.index != self.index || entry.proxy {
            return;
        }
        let Some(address) = entry.destination else { return };
        if !self.hops.contains_key(&address) {
            return;
        }
        if deleted {
            // Forgotten, not gone: whoever sends there asks again.
            self.hops.remove(&address);
            let mut state = self.ways.lock();
            state.ways.retain(|_, entry| entry.hop != Some(address));
            self.ways.changed();
            return;
        }
        self.learn(address, Hop::of(entry));
    }

    /// Notes what a neighbour is now, for all destinations behind it.
    fn learn(&mut self, address: IpAddr, hop: Hop) {
        let before = self.hops.insert(address, hop);
        if before.map(Hop::way) == Some(hop.way()) {
            return;
        }
        let mut state = self.ways.lock();
        for entry in state.ways.values_mut().filter(|entry| entry.hop == Some(address)) {
            (entry.way, entry.since) = (hop.way(), Instant::now());
        }
        self.ways.changed();
        match hop {
            Hop::Failed if self.told.len() < TOLD && self.told.insert(address) => {
                state.silent.push(address);
            }
            Hop::At(_) | Hop::Stale(_) => {
                self.told.remove(&address);
            }
            _ => {}
        }
    }

    /// Finds the way to a destination, or begins to.
    fn resolve(&mut self, destination: IpAddr) {
        let settle = |state: &mut State, way, hop| {
            // It may have been forgotten meanwhile.
            if let Some(entry) = state.ways.get_mut(&destination) {
                (entry.way, entry.hop, entry.since) = (way, hop, Instant::now());
            }
        };
        let address = match self.route(destination) {
            Ok(Route::Hop(address)) => address,
            Ok(Route::Everybody) => {
                settle(&mut self.ways.lock(), Way::To(Address::BROADCAST), None);
                return self.ways.changed();
            }
            answer => {
                if let Err(error) = answer {
                    tracing::debug!(%error, %destination, "no route");
                }
                settle(&mut self.ways.lock(), Way::Nowhere, None);
                return self.ways.changed();
            }
        };
        let known = match self.hops.get(&address) {
            Some(hop @ (Hop::At(_) | Hop::Stale(_) | Hop::Asked)) => *hop,
            _ => self.neighbour(address),
        };
        // Whatever failed before is tried again.
        let hop = if known == Hop::Failed { Hop::Asked } else { known };
        self.hops.insert(address, hop);
        settle(&mut self.ways.lock(), hop.way(), Some(address));
        if !matches!(hop, Hop::At(_)) {
            self.probe(address);
        }
        self.ways.changed();
    }

    /// Where the kernel would send a packet of its own that has to leave through the interface.
    fn route(&self, destination: IpAddr) -> linerate_net::Result<Route> {
        let route = self.connection.route_to(destination, Some(self.index))?;
        if route.interfaces.iter().any(|index| *index != self.index) {
            return Ok(Route::None);
        }
        Ok(match route.kind {
            Kind::Unicast | Kind::Anycast => Route::Hop(route.gateway.unwrap_or(destination)),
            Kind::Broadcast => Route::Everybody,
            _ => Route::None,
        })
    }

    /// What the kernel knows of a neighbour.
    fn neighbour(&self, address: IpAddr) -> Hop {
        match self.connection.neighbour(self.index, address) {
            Ok(Some(entry)) => Hop::of(&entry),
            _ => Hop::Asked,
        }
    }

    /// Has the kernel look for a neighbour, or look after one.
    fn probe(&mut self, address: IpAddr) {
        if let Err(error) = self.connection.probe_neighbour(self.index, address) {
            tracing::debug!(%error, %address, "the kernel does not look for a neighbour");
            self.learn(address, Hop::Failed);
        }
    }

    /// Has the kernel look after the neighbours in use, and forgets destinations that are not.
    fn look(&mut self) {
        let mut state = self.ways.lock();
        let mut used = HashSet::new();
        state.ways.retain(|_, entry| {
            entry.idle = if entry.used { 0 } else { entry.idle + 1 };
            if std::mem::take(&mut entry.used) {
                used.extend(entry.hop);
            }
            entry.idle < FORGET
        });
        let needed: HashSet<_> = state.ways.values().filter_map(|entry| entry.hop).collect();
        drop(state);
        self.hops.retain(|address, _| needed.contains(address));
        for address in used {
            if matches!(self.hops.get(&address), Some(Hop::Stale(_))) {
                self.probe(address);
            }
        }
    }

    /// Takes in changes of the device's addresses.
    fn hear_addresses(&mut self) {
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
            Err(error) => return tracing::warn!(%error, "the device's addresses cannot be read"),
        };
        let index = self.device.index;
        let mut own: Vec<IpAddr> =
            all.iter().filter(|one| one.index == index).map(|one| one.address).collect();
        own.sort();
        own.dedup();
        if own.len() > MAX_ADDRESSES {
            tracing::warn!(
                "the device has more than {MAX_ADDRESSES} addresses; the rest are not heard"
            );
            own.truncate(MAX_ADDRESSES);
        }
        let mut state = self.ways.lock();
        for map in &self.maps {
            let gone = state.own.iter().filter(|one| !own.contains(one));
            let result = gone
                .map(|one| map.remove(*one))
                .chain(
                    own.iter().filter(|one| !state.own.contains(one)).map(|one| map.insert(*one)),
                )
                .collect::<linerate_bpf::Result<()>>();
            if let Err(error) = result {
                tracing::warn!("{error}");
            }
        }
        state.own = own;
        self.ways.changed();
    }
}
