//! A virtual machine that connects by vhost-user: QEMU, Cloud Hypervisor, or another program with that protocol. The
//! guest's memory is mapped, and the workers read and write the rings of its virtio-net device themselves.
//!
//! ```text
//!   VMM --socket--> frontend (a thread): memory, rings, features --> VhostUser (shared)
//!   guest --tx ring--> Queue::receive, Queue::send --rx ring--> guest        (the worker of each queue pair)
//! ```

mod features;
mod frontend;
pub mod ring;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use linerate_ring::Error as RingError;
use linerate_ring::tun::Offloads;
use linerate_wire::checksum::Engine;
use linerate_wire::virtio::Header;
use rustix::event::{PollFlags, epoll};
use virtio_queue::QueueT;
use vm_memory::GuestMemoryMmap;

use crate::device::complete;
use crate::statistics::Drops;
use crate::{Error, Result};

pub(crate) use features::Features;
pub(crate) use frontend::serve;
use ring::{Received, Ring, Sent};

/// Packets that wait for buffers of the guest. No further frames are received meanwhile, so that it is a batch at most.
const MAX_BACKLOG: usize = 1024;

/// The device: what its threads share.
pub(crate) struct VhostUser {
    /// The path of the socket.
    pub(crate) name: String,
    /// What the guest may choose from.
    offered: Features,
    pairs: Vec<Mutex<Pair>>,
    /// What becomes readable when the guest notifies, of each pair.
    epolls: Vec<OwnedFd>,
}

/// A queue pair. The lock of it is free but while the VMM changes something: the worker takes it for each packet, which
/// replaces the system call of other devices.
#[derive(Default)]
struct Pair {
    memory: GuestMemoryMmap,
    features: Features,
    /// To the guest.
    rx: Vring,
    /// From the guest.
    tx: Vring,
}

/// A ring with its eventfds.
#[derive(Default)]
struct Vring {
    ring: Ring,
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    enabled: bool,
}

impl Vring {
    fn is_live(&self) -> bool {
        self.enabled && self.ring.queue.ready()
    }

    /// Tells the guest of what was returned to it.
    fn notify(&mut self, memory: &GuestMemoryMmap) -> std::result::Result<(), virtio_queue::Error> {
        if self.ring.queue.ready()
            && self.ring.needs_notification(memory)?
            && let Some(call) = &self.call
        {
            // A full counter has told it already.
            let _ = rustix::io::write(call, &1_u64.to_ne_bytes());
        }
        Ok(())
    }
}

impl VhostUser {
    /// A device with so many queue pairs.
    pub(crate) fn new(name: String, pairs: u32, offloads: Offloads) -> io::Result<Arc<Self>> {
        let epolls = (0..pairs).map(|_| epoll::create(epoll::CreateFlags::CLOEXEC));
        Ok(Arc::new(Self {
            name,
            offered: Features::offered(offloads),
            pairs: (0..pairs).map(|_| Mutex::default()).collect(),
            epolls: epolls.collect::<rustix::io::Result<_>>()?,
        }))
    }

    /// The worker's side of each pair.
    pub(crate) fn queues(self: &Arc<Self>) -> impl Iterator<Item = Queue> {
        (0..self.pairs.len()).map(|index| Queue {
            device: Arc::clone(self),
            index,
            target: Cell::new(index),
            backlog: RefCell::default(),
            frame: RefCell::default(),
            engine: Engine::detect(),
        })
    }

    fn lock(&self, index: usize) -> MutexGuard<'_, Pair> {
        self.pairs[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pair {
    /// Does something with a ring. One whose indices make no sense is stopped until the VMM starts it again.
    fn with<T>(
        &mut self,
        name: &str,
        is_rx: bool,
        work: impl FnOnce(
            &mut Vring,
            &GuestMemoryMmap,
            Features,
        ) -> std::result::Result<T, virtio_queue::Error>,
    ) -> Option<T> {
        let vring = if is_rx { &mut self.rx } else { &mut self.tx };
        if !vring.is_live() {
            return None;
        }
        work(vring, &self.memory, self.features)
            .inspect_err(|error| {
                vring.ring.queue.set_ready(false);
                tracing::warn!(
                    "the virtual machine at {name} has a ring that makes no sense ({error}); it is stopped until \
                     the driver in the machine is started again"
                );
            })
            .ok()
    }
}

/// A queue pair, for its worker.
pub(crate) struct Queue {
    device: Arc<VhostUser>,
    index: usize,
    /// The pair whose buffers were last written to.
    target: Cell<usize>,
    backlog: RefCell<VecDeque<(Header, Box<[u8]>)>>,
    /// A frame whose checksum is completed.
    frame: RefCell<Vec<u8>>,
    engine: Engine,
}

impl Queue {
    pub(crate) fn name(&self) -> &str {
        &self.device.name
    }

    pub(crate) fn device(&self) -> &Arc<VhostUser> {
        &self.device
    }

    /// The next packet of the guest.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Received {
        let mut pair = self.device.lock(self.index);
        let received = pair.with(&self.device.name, false, |vring, memory, features| {
            vring.ring.disarm(memory)?;
            vring.ring.receive(memory, features.header_len(), buffer)
        });
        received.unwrap_or(Received::Empty)
    }

    /// Gives the guest a packet, at the latest when it has buffers.
    pub(crate) fn send(&self, header: &Header, packet: &[IoSlice<'_>]) -> Result<bool> {
        let mut backlog = self.backlog.borrow_mut();
        let sent = if backlog.is_empty() { self.write(header, packet)? } else { Sent::Full };
        if sent == Sent::Done {
            return Ok(true);
        }
        if backlog.len() >= MAX_BACKLOG {
            return Ok(false);
        }
        // An allocation and a copy, while the guest is slower than the interface.
        let mut whole = Vec::with_capacity(packet.iter().map(|piece| piece.len()).sum());
        packet.iter().for_each(|piece| whole.extend_from_slice(piece));
        backlog.push_back((*header, whole.into()));
        Ok(true)
    }

    /// Sends what waited, and notifies the guest.
    pub(crate) fn flush(&self, drops: &mut Drops) {
        let mut backlog = self.backlog.borrow_mut();
        while let Some((header, packet)) = backlog.front() {
            match self.write(header, &[IoSlice::new(packet)]) {
                Ok(Sent::Full) => break,
                Ok(_) => {}
                Err(Error::Ring(RingError::InterfaceDown(_))) => drops.device_down += 1,
                Err(error) => {
                    tracing::debug!(%error, "a packet that the device refuses");
                    drops.device_refused += 1;
                }
            }
            backlog.pop_front();
        }
        let name = &self.device.name;
        self.device.lock(self.index).with(name, false, |vring, memory, _| vring.notify(memory));
        let mut target = self.device.lock(self.target.get());
        target.with(name, true, |vring, memory, _| vring.notify(memory));
    }

    /// Whether packets wait for buffers of the guest.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.borrow().is_empty()
    }

    /// Writes into the buffers of the pair, or of another one if the guest does not use this: it has as many as it has
    /// CPUs.
    fn write(&self, header: &Header, packet: &[IoSlice<'_>]) -> Result<Sent> {
        let mut live = self.device.lock(self.index);
        let mut target = self.index;
        while !live.rx.is_live() && target > 0 {
            target -= 1;
            drop(live);
            live = self.device.lock(target);
        }
        if target != self.target.replace(target) {
            tracing::debug!("queue {} sends to queue pair {target}", self.index);
        }
        let features = live.features;
        let mut frame = self.frame.borrow_mut();
        let mut whole = [IoSlice::new(&[])];
        let (header, packet) = match header.partial_checksum() {
            Some(_) if !features.takes_checksums() => {
                frame.clear();
                packet.iter().for_each(|piece| frame.extend_from_slice(piece));
                complete(self.engine, header, &mut frame);
                whole[0] = IoSlice::new(&frame);
                (Header::default(), &whole[..])
            }
            None if !features.takes_checksums() => (Header::default(), packet),
            _ => (*header, packet),
        };
        let sent = live.with(&self.device.name, true, |vring, memory, features| {
            vring.ring.disarm(memory)?;
            let mergeable = features.has_mergeable_buffers();
            vring.ring.send(memory, features.header_len(), mergeable, &header, packet)
        });
        match sent {
            Some(sent @ (Sent::Done | Sent::Full)) => Ok(sent),
            None => Err(RingError::InterfaceDown(self.device.name.clone()).into()),
            Some(refused) => Err(Error::Invalid(format!(
                "the buffers of the virtual machine at {} do not hold a packet: {refused:?}",
                self.device.name
            ))),
        }
    }

    /// Whether the guest takes any super-packets.
    pub(crate) fn takes_super_packets(&self) -> bool {
        self.features().takes_super_packets()
    }

    /// Whether the guest takes this super-packet.
    pub(crate) fn accepts(&self, header: &Header) -> bool {
        self.features().accepts(header)
    }

    fn features(&self) -> Features {
        self.device.lock(self.index).features
    }

    /// Lets the guest notify: of packets if `wants_input`, and of buffers if packets wait for them. `None` when there are
    /// some already.
    pub(crate) fn arm(&self, wants_input: bool) -> Option<PollFlags> {
        // Edge-triggered: this alone makes it unreadable, the eventfds keep what they have.
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; 4];
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let _ = epoll::wait(&self.device.epolls[self.index], &mut events[..], Some(&none));
        let name = &self.device.name;
        let has_backlog = self.has_backlog();
        let mut any = false;
        if wants_input {
            let mut pair = self.device.lock(self.index);
            any |=
                pair.with(name, false, |vring, memory, _| vring.ring.arm(memory)).unwrap_or(false);
        }
        if has_backlog {
            let mut pair = self.device.lock(self.target.get());
            any |= pair
                .with(name, true, |vring, memory, _| vring.ring.arm_full(memory))
                .unwrap_or(true);
        }
        (!any).then_some(PollFlags::IN)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.epolls[self.index].as_fd()
    }
}
