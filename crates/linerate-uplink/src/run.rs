//! [`Running`]: the threads, and their reports.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linerate_net::Connection;
use linerate_net::link::Link;
use linerate_net::text;
use linerate_ring::packet::Promiscuous;
use linerate_wire::ethernet::Address;

use crate::device::DeviceQueue;
use crate::listener::Listener;
use crate::neighbour::{Encapsulator, ReceiveFilter};
use crate::open::{Config, NamedNamespace, Neighbours, Ports, Programs, Uplink};
use crate::port::FramePort;
use crate::rx::Receiver;
use crate::statistics::Statistics;
use crate::tx::Transmitter;
use crate::vhost_user::{self, VhostUser};
use crate::worker::Worker;
use crate::{Error, Result};

/// How often the interface is polled at.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// What was opened, and the statistics.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// What was opened.
    #[serde(flatten)]
    pub config: Config,
    /// Seconds since the start.
    pub seconds: f64,
    /// Over all queues.
    #[serde(flatten)]
    pub statistics: Statistics,
}

/// How it ended.
#[derive(Debug)]
pub struct Outcome {
    /// The last statistics.
    pub report: Report,
    /// Why it ended without a request.
    pub failure: Option<Error>,
}

/// Events of the interface, or of neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It went down.
    Down(String),
    /// It came up again.
    Up(String),
    /// Its hardware address is another one now, after which a TUN device goes. A TAP device keeps its own.
    Mac(String, Address),
    /// Its MTU is smaller than the device's now.
    Mtu(String, u32),
    /// Neighbours that a TUN device sends to do not answer.
    Unreachable(String, Vec<IpAddr>),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down(name) => {
                write!(f, "interface {name} is down; the uplink goes on when it comes up")
            }
            Self::Up(name) => write!(f, "interface {name} is up again"),
            Self::Mac(name, mac) => {
                write!(f, "interface {name} has the hardware address {mac} now")
            }
            Self::Mtu(name, mtu) => write!(
                f,
                "interface {name} has an MTU of {mtu} bytes now: what is longer gets lost; start the \
                 uplink again, or give the device the same"
            ),
            Self::Unreachable(name, neighbours) => {
                let list: Vec<_> = neighbours.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "nobody answers for {} on {name}: packets for and through there are lost",
                    text::list(&list)
                )
            }
        }
    }
}

/// A running uplink.
pub struct Running {
    threads: Vec<JoinHandle<Result<()>>>,
    shared: Vec<Arc<Mutex<Statistics>>>,
    stop: Arc<AtomicBool>,
    programs: Programs,
    _promiscuous: Option<Promiscuous>,
    neighbours: Option<Neighbours>,
    interface: (Connection, Link),
    tap: Option<(Connection, Link)>,
    namespace: Option<NamedNamespace>,
    config: Config,
    start: Instant,
    polled: Instant,
    failure: Option<Error>,
}

impl Uplink {
    /// Starts the threads, which have the privileges of the calling one: it may have dropped them.
    ///
    /// # Errors
    /// [`Error::Thread`] when the system has no more threads.
    pub fn start(self) -> Result<Running> {
        let Self {
            programs,
            ports,
            taps,
            vhost_user,
            offloads,
            promiscuous,
            neighbours,
            interface,
            tap,
            namespace,
            config,
            options,
            kernel,
        } = self;
        let mut running = Running {
            threads: Vec::new(),
            shared: Vec::new(),
            stop: Arc::default(),
            programs,
            _promiscuous: promiscuous,
            neighbours,
            interface,
            tap,
            namespace,
            config,
            start: Instant::now(),
            polled: Instant::now(),
            failure: None,
        };
        let (policy, mtu, local) =
            (options.policy, running.interface.1.mtu, running.interface.1.is_veth());
        let mut cpus = options.cpus.iter().copied().cycle();
        let device = taps.iter().find_map(|tap| match tap {
            DeviceQueue::VhostUser(queue) => Some(Arc::clone(queue.device())),
            _ => None,
        });
        let mut taps = taps.into_iter();
        let cache = running.neighbours.as_ref().map(|neighbours| Arc::clone(&neighbours.cache));
        let mut parts = |longest| {
            let tap = taps.next().expect("a queue of the device for each port");
            let (encapsulator, filter) = cache
                .clone()
                .map(|cache| (Encapsulator::new(Arc::clone(&cache)), ReceiveFilter::new(cache)))
                .unzip();
            let receiver = Receiver::new(policy, offloads, local, filter);
            let kernel = Some(Arc::clone(&kernel));
            let transmitter = Transmitter::new(policy, mtu, longest, encapsulator, kernel);
            (tap, receiver, transmitter, cpus.next())
        };
        if let (Some(listener), Some(device)) = (vhost_user, device) {
            running.spawn_frontend(listener, device)?;
        }
        match ports {
            Ports::Xdp(ports) => ports.into_iter().try_for_each(|port| {
                let (tap, receiver, transmitter, cpu) = parts(port.longest());
                running.spawn(tap, port, receiver, transmitter, cpu)
            })?,
            Ports::Packet(ports) => ports.into_iter().try_for_each(|port| {
                let (tap, receiver, transmitter, cpu) = parts(port.longest());
                running.spawn(tap, port, receiver, transmitter, cpu)
            })?,
        }
        Ok(running)
    }
}

impl Running {
    fn spawn<P: FramePort + 'static>(
        &mut self,
        tap: DeviceQueue,
        port: P,
        receiver: Receiver,
        transmitter: Transmitter,
        cpu: Option<usize>,
    ) -> Result<()> {
        let shared: Arc<Mutex<Statistics>> = Arc::default();
        let stop = Arc::clone(&self.stop);
        let worker =
            Worker { tap, port, receiver, transmitter, stop, shared: Arc::clone(&shared), cpu };
        let name = format!("uplink-{}", self.shared.len());
        self.shared.push(shared);
        self.spawn_thread(name, move || worker.run())
    }

    /// Serves the virtual machines that connect.
    fn spawn_frontend(&mut self, listener: Listener, device: Arc<VhostUser>) -> Result<()> {
        let stop = Arc::clone(&self.stop);
        self.spawn_thread("uplink-vhost".to_owned(), move || {
            vhost_user::serve(&listener, &device, &stop).map_err(|source| {
                let action = format!("wait for a virtual machine at {}", device.name);
                Error::Link { action, source }
            })
        })
    }

    fn spawn_thread(
        &mut self,
        name: String,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let stop = Arc::clone(&self.stop);
        let work = move || {
            let result = work();
            // All or none: half of an uplink loses half of the flows.
            stop.store(true, Relaxed);
            result
        };
        let thread = thread::Builder::new()
            .name(name)
            .spawn(work)
            .map_err(|error| Error::Thread(format!("cannot be started: {error}")))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Tells it to end.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether it has ended, on request or not.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// The statistics now.
    pub fn report(&self) -> Report {
        let mut statistics = Statistics::default();
        for shared in &self.shared {
            statistics += *shared.lock().unwrap_or_else(PoisonError::into_inner);
        }
        // The device may be in another namespace by now; then only its user can see this.
        if let Some((connection, before)) = &self.tap
            && let Ok(Some(now)) = connection.link_by_index(before.index)
        {
            let before = before.statistics.tx_dropped;
            statistics.dropped.device_queue = now.statistics.tx_dropped.saturating_sub(before);
        }
        Report {
            config: self.config.clone(),
            seconds: self.start.elapsed().as_secs_f64(),
            statistics,
        }
    }

    /// Reads the state of the interface four times a second; call it often. Ends the uplink when the interface is
    /// gone, or the namespace that the device was made in.
    pub fn poll(&mut self) -> Option<Event> {
        if self.polled.elapsed() < POLL_INTERVAL || self.failure.is_some() {
            return None;
        }
        self.polled = Instant::now();
        if self.namespace.as_ref().is_some_and(NamedNamespace::is_gone) {
            let name = self.config.namespace.clone().unwrap_or_default();
            self.failure = Some(Error::NamespaceGone(name));
            self.stop();
            return None;
        }
        let name = self.config.interface.clone();
        let (connection, before) = &mut self.interface;
        let now = match connection.link_by_index(before.index) {
            Ok(Some(now)) => now,
            Ok(None) => {
                self.failure = Some(linerate_ring::Error::InterfaceGone(name).into());
                self.stop();
                return None;
            }
            Err(error) => {
                tracing::debug!(%error, "the interface cannot be read");
                return None;
            }
        };
        if let Some(mac) = now.address.filter(|_| now.address != before.address) {
            // Other changes are reported at the next call.
            before.address = now.address;
            if let Some(neighbours) = &self.neighbours {
                neighbours.cache.set_mac(mac);
                self.config.mac = mac.to_string();
            }
            return Some(Event::Mac(name, mac));
        }
        let before = std::mem::replace(before, now.clone());
        match () {
            () if before.is_up() && !now.is_up() => Some(Event::Down(name)),
            () if !before.is_up() && now.is_up() => Some(Event::Up(name)),
            () if now.mtu < before.mtu && now.mtu < self.config.mtu => {
                Some(Event::Mtu(name, now.mtu))
            }
            () => {
                let unreachable =
                    self.neighbours.as_ref().map(|neighbours| neighbours.cache.unreachable());
                unreachable
                    .filter(|unreachable| !unreachable.is_empty())
                    .map(|unreachable| Event::Unreachable(name, unreachable))
            }
        }
    }

    /// Ends it and removes everything: first the BPF program, so that frames go to the host again, then the
    /// rings and the device.
    pub fn finish(mut self) -> Outcome {
        self.stop();
        self.programs = Programs::default();
        let before = self.report();
        let mut failure = self.failure.take();
        for thread in std::mem::take(&mut self.threads) {
            let result =
                thread.join().unwrap_or_else(|_| Err(Error::Thread("panicked".to_owned())));
            if let Err(error) = result {
                failure.get_or_insert(error);
            }
        }
        let mut report = self.report();
        // The device went with its queues, and its count with it.
        report.statistics.dropped.device_queue = before.statistics.dropped.device_queue;
        Outcome { report, failure }
    }
}

impl Drop for Running {
    /// Ends what [`Running::finish`] did not: a thread that could not be started leaves others behind.
    fn drop(&mut self) {
        self.stop();
        for thread in std::mem::take(&mut self.threads) {
            // Nobody is left to hear why it ended.
            let _ = thread.join();
        }
    }
}
