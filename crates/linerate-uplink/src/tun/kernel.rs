//! [`Kernel`]: the thread that asks the kernel for routes and neighbours, and hears of changes of both and
//! of the device's addresses.
//!
//! The kernel resolves: a neighbour that is not known is asked for with `NTF_USE` (`neigh_add` of
//! `net/core/neighbour.c`), which starts the same ARP or neighbour discovery as a packet would. One that is
//! in use and stale is asked for again, so that the kernel goes on watching over it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_bpf::addresses::{Addresses, MAX_ADDRESSES};
use linerate_wire::ethernet::Address;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::{State, Way, Ways};
use crate::netlink::Channel;
use crate::{Error, Result};

/// How often the thread looks which destinations are in use.
const LOOK: Duration = Duration::from_secs(1);

/// Looks in a row after which a destination that nobody used is forgotten.
const FORGET: u32 = 60;

/// Neighbours that are remembered to have been told of as silent.
const TOLD: usize = 1024;

/// What may change the way to a destination in the interface's namespace.
const ROUTING: [u32; 7] = [
    groups::LINK,
    groups::NEIGHBOUR,
    groups::IPV4_ROUTE,
    groups::IPV4_RULE,
    groups::IPV6_ROUTE,
    groups::IPV6_RULE,
    groups::NEXTHOP,
];

/// `RTNLGRP_…` of `linux/rtnetlink.h`.
mod groups {
    pub(super) const LINK: u32 = 1;
    pub(super) const NEIGHBOUR: u32 = 3;
    pub(super) const IPV4_ADDRESS: u32 = 5;
    pub(super) const IPV4_ROUTE: u32 = 7;
    pub(super) const IPV4_RULE: u32 = 8;
    pub(super) const IPV6_ADDRESS: u32 = 9;
    pub(super) const IPV6_ROUTE: u32 = 11;
    pub(super) const IPV6_RULE: u32 = 19;
    pub(super) const NEXTHOP: u32 = 32;
}

/// The sockets of the device's namespace; opened by a thread that is in it.
pub(crate) struct Device {
    index: u32,
    questions: Channel,
    news: Channel,
}

impl Device {
    /// Of the device with this index in the namespace of the calling thread.
    pub(crate) fn open(index: u32) -> Result<Self> {
        let open = || {
            let addresses = [groups::IPV4_ADDRESS, groups::IPV6_ADDRESS];
            Ok(Self { index, questions: Channel::open()?, news: Channel::listen(&addresses)? })
        };
        open().map_err(|source| Error::Link { action: "listen for addresses".to_owned(), source })
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
        let failed = |source| Error::Link { action: "listen for neighbours".to_owned(), source };
        let stop: Arc<AtomicBool> = Arc::default();
        let mut worker = Worker {
            index,
            questions: Channel::open().map_err(failed)?,
            news: Channel::listen(&ROUTING).map_err(failed)?,
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
    fn of(message: &NeighbourMessage) -> Self {
        use NeighbourState::{Delay, Failed, Noarp, Permanent, Probe, Reachable, Stale};
        let mac = message.attributes.iter().find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                <[u8; 6]>::try_from(&bytes[..]).ok().map(Address)
            }
            _ => None,
        });
        match (message.header.state, mac) {
            (Stale, Some(mac)) => Self::Stale(mac),
            (Reachable | Delay | Probe | Permanent | Noarp, Some(mac)) => Self::At(mac),
            (Failed, _) => Self::Failed,
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
    questions: Channel,
    news: Channel,
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
        let kept = CapabilitySet::NET_ADMIN;
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: none };
        if let Err(error) = set_capabilities(None, sets) {
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
        let descriptors = [self.ways.wake.as_fd(), self.news.as_fd(), self.device.news.as_fd()];
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
        let mut anew = false;
        loop {
            match self.news.next() {
                Ok(Some(RouteNetlinkMessage::NewNeighbour(message))) => self.heard(&message, false),
                Ok(Some(RouteNetlinkMessage::DelNeighbour(message))) => self.heard(&message, true),
                Ok(Some(
                    RouteNetlinkMessage::NewLink(link) | RouteNetlinkMessage::DelLink(link),
                )) => {
                    anew |= link.header.index == self.index;
                }
                Ok(Some(_)) => anew = true,
                Ok(None) => break,
                // What was lost, or cannot be read, may have been anything.
                Err(error) => {
                    tracing::debug!(%error, "news of routes and neighbours were lost");
                    anew = true;
                    if error.raw_os_error() != Some(nix::errno::Errno::ENOBUFS as i32)
                        && error.kind() != io::ErrorKind::InvalidData
                    {
                        break;
                    }
                }
            }
        }
        if anew {
            // Packets go on as before until the answer is there.
            self.hops.clear();
            let mut state = self.ways.lock();
            state.ways.retain(|_, entry| entry.used || entry.idle <= 1);
            state.asks = state.ways.keys().copied().collect();
        }
    }

    fn heard(&mut self, message: &NeighbourMessage, deleted: bool) {
        if message.header.ifindex != self.index
            || message.header.flags.contains(NeighbourFlags::Proxy)
        {
            return;
        }
        let Some(address) = address_of(message) else { return };
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
        self.learn(address, Hop::of(message));
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
    fn route(&self, destination: IpAddr) -> io::Result<Route> {
        let mut request = RouteMessage::default();
        (request.header.address_family, request.header.destination_prefix_length) =
            match destination {
                IpAddr::V4(_) => (AddressFamily::Inet, 32),
                IpAddr::V6(_) => (AddressFamily::Inet6, 128),
            };
        request.attributes =
            vec![RouteAttribute::Destination(destination.into()), RouteAttribute::Oif(self.index)];
        let answer = self.questions.ask(RouteNetlinkMessage::GetRoute(request), 0)?;
        let Some(RouteNetlinkMessage::NewRoute(route)) = answer else { return Ok(Route::None) };
        let mut hop = destination;
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(index) if *index != self.index => return Ok(Route::None),
                RouteAttribute::Gateway(RouteAddress::Inet(address))
                | RouteAttribute::Via(RouteVia::Inet(address)) => hop = (*address).into(),
                RouteAttribute::Gateway(RouteAddress::Inet6(address))
                | RouteAttribute::Via(RouteVia::Inet6(address)) => hop = (*address).into(),
                _ => {}
            }
        }
        Ok(match route.header.kind {
            RouteType::Unicast | RouteType::Anycast => Route::Hop(hop),
            RouteType::Broadcast => Route::Everybody,
            _ => Route::None,
        })
    }

    /// What the kernel knows of a neighbour.
    fn neighbour(&self, address: IpAddr) -> Hop {
        let request = RouteNetlinkMessage::GetNeighbour(self.about(address));
        match self.questions.ask(request, 0) {
            Ok(Some(RouteNetlinkMessage::NewNeighbour(message))) => Hop::of(&message),
            _ => Hop::Asked,
        }
    }

    /// Has the kernel look for a neighbour, or look after one.
    fn probe(&mut self, address: IpAddr) {
        let mut request = self.about(address);
        request.header.flags = NeighbourFlags::Use;
        let request = RouteNetlinkMessage::NewNeighbour(request);
        if let Err(error) = self.questions.ask(request, NLM_F_ACK | NLM_F_CREATE) {
            tracing::debug!(%error, %address, "the kernel does not look for a neighbour");
            self.learn(address, Hop::Failed);
        }
    }

    fn about(&self, address: IpAddr) -> NeighbourMessage {
        let mut message = NeighbourMessage::default();
        message.header.ifindex = self.index;
        let (family, address) = match address {
            IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
            IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
        };
        message.header.family = family;
        message.attributes.push(NeighbourAttribute::Destination(address));
        message
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
        loop {
            match self.device.news.next() {
                Ok(Some(_)) => changed = true,
                Ok(None) => break,
                Err(error) => {
                    changed = true;
                    if error.raw_os_error() != Some(nix::errno::Errno::ENOBUFS as i32)
                        && error.kind() != io::ErrorKind::InvalidData
                    {
                        break;
                    }
                }
            }
        }
        if changed {
            self.read_addresses();
        }
    }

    fn read_addresses(&mut self) {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = match self.device.questions.dump(request) {
            Ok(answers) => answers,
            Err(error) => return tracing::warn!(%error, "the device's addresses cannot be read"),
        };
        let mut own: Vec<IpAddr> = answers.iter().filter_map(|one| self.own_address(one)).collect();
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

    fn own_address(&self, message: &RouteNetlinkMessage) -> Option<IpAddr> {
        let RouteNetlinkMessage::NewAddress(message) = message else { return None };
        if message.header.index != self.device.index {
            return None;
        }
        // `IFA_ADDRESS` is the far end's where there is an `IFA_LOCAL`, too.
        let find = |local: bool| {
            message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(address) if local => Some(*address),
                AddressAttribute::Address(address) if !local => Some(*address),
                _ => None,
            })
        };
        find(true).or_else(|| find(false))
    }
}

fn address_of(message: &NeighbourMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => Some((*address).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
            Some((*address).into())
        }
        _ => None,
    })
}
