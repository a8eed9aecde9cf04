//! [`NetworkMonitor`]: detects changes after which the kernel may forward packets differently.
//!
//! A session repeats what the kernel did with its first packets. Every detected change causes a *bump*
//! ([`Causes::invalidate`]): the generation is incremented, and all older sessions are relearned. After a change of
//! routes or neighbours that `bpf_fib_lookup` sees, the programs ask it about each session instead. The watch is a
//! thread that sleeps in `poll` and does nothing while the network does not change.
//!
//! A bump follows every change: queued messages are read up to [`BATCH`] at a time, then the caller is
//! notified once. The first message does not wait for others, and a storm of routes causes one bump a batch.
//! If the socket overflows (`ENOBUFS`), the watch bumps at once, and again after a full re-read.
//!
//! # What is detected
//! Routes, rules and nexthop objects; neighbours; links with MTU, carrier and hardware address; addresses;
//! forwarding and reverse-path settings of interfaces; databases and VLANs of bridges that a port is in;
//! traffic control; nftables commits, which iptables-nft makes too; IPsec policies; tracked connections that
//! somebody deletes or changes; runs of legacy iptables, by its lock. Notifications that change nothing are ignored:
//! neighbours that are only confirmed, addresses that are only renewed, interfaces that are only captured on.
//!
//! What the kernel does not report is polled twice a second (`unannounced`): settings, routes that expire, redirects
//! and learned path MTUs, x_tables that changed without iptables' lock, BPF programs at netfilter's hooks.
//!
//! # What is not detected
//! These take effect only when a session is revalidated: BPF programs that others attach elsewhere, and tracked
//! connections that end by themselves (the learner checks their timeouts).

mod bridges;
mod causes;
mod counters;
mod detector;
mod links;
mod neighbours;
mod routing;
mod sockets;
mod unannounced;
mod xtables;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_net::netlink::Received;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

pub use causes::{Cause, Causes};
pub use counters::Counts;

use counters::Counters;
use detector::ChangeDetector;
use sockets::Source;
use unannounced::{POLL_INTERVAL, Unannounced};
use xtables::{Lock, Tables};

use crate::{Error, Result};

/// Maximum messages that are read before the caller is notified: about 0.1 ms.
pub const BATCH: usize = 128;

/// What is watched, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Indices of the interfaces that are ports. They decide which bridges matter; if empty, all do.
    pub ports: Vec<u32>,
    /// Receive buffer in bytes of each of the up to four sockets; default: 8 MiB. Without CAP_NET_ADMIN in
    /// the namespace `net.core.rmem_max` limits it.
    pub buffer: usize,
    /// The netlink port whose changes of tracked connections are none; default: 0.
    pub own_port: u32,
    /// Whether runs of legacy iptables are a change; default: true.
    pub xtables: bool,
    /// Whether what the kernel does not report is polled; default: true.
    pub poll: bool,
}

impl Default for Options {
    fn default() -> Self {
        let buffer = 8 << 20;
        Self { ports: Vec::new(), buffer, own_port: 0, xtables: true, poll: true }
    }
}

/// The threads that watch, until it is dropped: one for what the kernel reports, and one for the rest.
#[derive(Debug)]
pub struct NetworkMonitor {
    threads: Vec<JoinHandle<Result<()>>>,
    has_ended: bool,
    stop: Arc<OwnedFd>,
    counters: Arc<Counters>,
    unmonitored: Vec<String>,
}

impl NetworkMonitor {
    /// Watches the network namespace of the calling thread. `bump` is called once before this returns
    /// ([`Cause::Start`]), and then by the watch's threads. A call follows every later change.
    ///
    /// `bump` increments the generation by one atomic addition. Other changes wait until it returns.
    ///
    /// # Errors
    /// When the routing state cannot be monitored. A feature that the kernel lacks is not an error:
    /// [`NetworkMonitor::unmonitored`].
    pub fn start(options: &Options, bump: impl FnMut(Causes) + Send + 'static) -> Result<Self> {
        let mut unmonitored = Vec::new();
        let mut sources = vec![Source::route(options.buffer)?];
        let Options { buffer, own_port, .. } = *options;
        for (what, source) in [
            ("the nftables ruleset", Source::nftables(buffer)),
            ("IPsec policies", Source::ipsec(buffer)),
            // The kernel writes a message at each change of state and at the end of every tracked connection, about a
            // microsecond each, and drops those that nobody requested before they are queued.
            ("tracked connections", Source::conntrack(buffer, own_port)),
        ] {
            match source {
                Ok(source) => sources.push(source),
                Err(error) => {
                    unmonitored.push(format!("changes of {what} are not detected: {error}"));
                }
            }
        }
        let lock = match options.xtables.then(Lock::watch) {
            Some(Err(error)) => {
                unmonitored.push(format!("runs of legacy iptables are not detected: {error}"));
                None
            }
            Some(Ok(lock)) => Some(lock),
            None => None,
        };
        let mut detector = ChangeDetector::new(&options.ports);
        detector.load().map_err(|source| Error::system("read the state of the network", source))?;
        let tables = Tables::read();
        let unannounced =
            options.poll.then(|| Unannounced::open(detector.has_expiring(), tables.clone()));
        let unannounced = unannounced.transpose().map_err(unpolled)?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|errno| Error::system("make an eventfd", errno.into()))?;
        let (stop, counters) = (Arc::new(stop), Arc::new(Counters::default()));
        let bump = {
            let (counters, bump) = (Arc::clone(&counters), Arc::new(Mutex::new(bump)));
            move |causes| {
                counters.bumped(causes);
                bump.lock().unwrap_or_else(PoisonError::into_inner)(causes);
            }
        };
        bump(Causes::from_iter([Cause::Start]));
        let mut monitor = Self {
            threads: Vec::new(),
            has_ended: false,
            stop: Arc::clone(&stop),
            counters,
            unmonitored,
        };
        if let Some(unannounced) = unannounced {
            let (stop, bump) = (Arc::clone(&stop), bump.clone());
            monitor.spawn("forward-poll", move || poll(unannounced, &stop, bump))?;
        }
        let counters = Arc::clone(&monitor.counters);
        let body = Body { sources, lock, tables, detector, stop, counters };
        monitor.spawn("forward-watch", || body.run(bump))?;
        Ok(monitor)
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let thread = thread::Builder::new().name(name.into()).spawn(run);
        self.threads
            .push(thread.map_err(|source| Error::system("start a thread of the watch", source))?);
        Ok(())
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.counters.read()
    }

    /// What it cannot detect on this kernel, a sentence each.
    pub fn unmonitored(&self) -> &[String] {
        &self.unmonitored
    }

    /// Whether the watch still runs. After an error there are no more bumps: the daemon must stop its
    /// heartbeat, so that the kernel takes over.
    ///
    /// # Errors
    /// The first call returns why it ended, later ones only that it did.
    pub fn check(&mut self) -> Result<()> {
        let ended = self.threads.iter().position(JoinHandle::is_finished);
        let ended = match ended.map(|ended| self.threads.remove(ended).join()) {
            None if !self.has_ended => return Ok(()),
            ended => ended,
        };
        self.has_ended = true;
        match ended {
            Some(Ok(Err(error))) => Err(error),
            _ => Err(Error::system("watch the network", io::Error::other("its thread has ended"))),
        }
    }
}

impl Drop for NetworkMonitor {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn unpolled(source: io::Error) -> Error {
    Error::system("poll the state of the network", source)
}

/// The pause after a poll that failed.
const FAILED_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Polls what the kernel does not report, until `stop` is readable.
fn poll(mut unannounced: Unannounced, stop: &OwnedFd, bump: impl Fn(Causes)) -> Result<()> {
    let mut pause = POLL_INTERVAL;
    loop {
        let time = Timespec::try_from(pause).ok();
        match rustix::event::poll(&mut [PollFd::new(stop, PollFlags::IN)], time.as_ref()) {
            Ok(0) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => return Ok(()),
            Err(errno) => return Err(unpolled(errno.into())),
        }
        // What could not be read may have changed.
        let (causes, next) = unannounced.poll().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot poll what the kernel does not report: all sessions are learned again");
            ([Cause::Overrun].into_iter().collect(), FAILED_POLL_INTERVAL)
        });
        pause = next;
        if !causes.is_empty() {
            bump(causes);
        }
    }
}

/// The state of the thread for what the kernel reports.
struct Body {
    sources: Vec<Source>,
    lock: Option<Lock>,
    tables: Tables,
    detector: ChangeDetector,
    stop: Arc<OwnedFd>,
    counters: Arc<Counters>,
}

impl Body {
    fn run(mut self, bump: impl Fn(Causes)) -> Result<()> {
        // Under softirq load ordinary threads get little time, and then the watch matters most. A lower nice
        // value needs CAP_SYS_NICE; a failure is ignored.
        let _ = rustix::process::setpriority_process(None, -20);
        let counters = self.counters.clone();
        while !self.sleep()? {
            let mut causes = Causes::default();
            let mut overrun = false;
            for source in &mut self.sources {
                let detector = &mut self.detector;
                let drained = source.drain(BATCH, |protocol, message| {
                    let change = detector.detect(protocol, message);
                    counters.message(change.is_some());
                    match change {
                        Some(change) if change.is_seen_by_fib => {
                            causes.insert_seen_by_fib(change.cause);
                        }
                        Some(change) => causes.insert(change.cause),
                        None => {}
                    }
                });
                overrun |= drained? == Received::Overrun;
            }
            if self.lock.as_mut().is_some_and(Lock::was_held) {
                // A change that was taken back meanwhile is one, too.
                let _ = self.tables.have_changed();
                causes.insert(Cause::Xtables);
            }
            if overrun {
                causes.insert(Cause::Overrun);
            }
            if !causes.is_empty() {
                bump(causes);
            }
            if causes.contains(Cause::Rule) {
                let load = self.detector.load_rules();
                load.map_err(|source| Error::system("read the routing rules again", source))?;
            }
            if overrun {
                counters.overrun();
                for source in &mut self.sources {
                    source.discard()?;
                }
                let load = self.detector.load();
                load.map_err(|source| {
                    Error::system("read the state of the network again", source)
                })?;
                bump(Causes::from_iter([Cause::Overrun]));
            }
        }
        Ok(())
    }

    /// Sleeps until there is something to read. Returns whether to stop.
    fn sleep(&self) -> Result<bool> {
        let mut waiting = vec![PollFd::new(&*self.stop, PollFlags::IN)];
        waiting.extend(self.sources.iter().map(|source| PollFd::new(source, PollFlags::IN)));
        waiting.extend(self.lock.iter().map(|lock| PollFd::new(lock, PollFlags::IN)));
        loop {
            match rustix::event::poll(&mut waiting, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => {
                    return Err(Error::system("wait for changes of the network", errno.into()));
                }
                Ok(_) => return Ok(!waiting[0].revents().is_empty()),
            }
        }
    }
}
