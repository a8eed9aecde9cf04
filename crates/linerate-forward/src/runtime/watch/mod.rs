//! [`Watch`]: says that the kernel may decide otherwise than it did.
//!
//! A session repeats what the kernel did with its first packets. Whatever the kernel would now do
//! differently has to be learned again, so every change that it tells of, or that can be found out, is
//! answered by a *bump*: the caller raises the number of the generation, and every session of an older one
//! asks the kernel again. The watch is a thread that sleeps in `poll` and does nothing in a network that is
//! at rest.
//!
//! A bump follows every change: messages that wait are read up to [`BATCH`] at a time, and then the caller
//! is told once. The first of them is not kept waiting for others, and a storm of routes causes one bump a
//! batch. What comes while it is lost for want of room (`ENOBUFS`) causes a bump at once, and another when
//! everything has been read anew.
//!
//! # What is seen
//! Routes, rules and nexthop objects; neighbours; links with MTU, carrier and hardware address; addresses;
//! forwarding and reverse-path settings of interfaces; databases and VLANs of bridges that a port is in;
//! traffic control; commits to nftables, which iptables-nft makes too; policies of IPsec; tracked
//! connections that somebody deletes; runs of iptables in its old form, by its lock. What is no change is
//! passed over: neighbours that are only confirmed, addresses that are only renewed, interfaces that are
//! only captured on.
//!
//! # What is not
//! These are bounded only by the time after which every session is re-learned: x_tables changed without
//! iptables' lock; elements of sets that time out or that packets add, and rules that limit, count or go by
//! the time of day; ipset; other sysctls (`fib_multipath_hash_policy`); BPF programs that others attach;
//! tracked connections that end by themselves are left to the learner, which looks at their timeouts.

mod bridges;
mod causes;
mod counters;
mod detector;
mod links;
mod neighbours;
mod sockets;
mod xtables;

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use linerate_net::netlink::Received;
use rustix::event::{EventfdFlags, PollFd, PollFlags};

pub use causes::{Cause, Causes};

use counters::Counters;
use detector::ChangeDetector;
use sockets::Source;
use xtables::Lock;

use crate::{Error, Result};

/// Messages that are read at most before the caller is told, about 0.1 ms worth.
pub const BATCH: usize = 128;

/// What is watched, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Indices of the interfaces that are ports. They say which bridges matter; none, and all do.
    pub ports: Vec<u32>,
    /// Bytes of room for messages that wait, for each of the up to four sockets; 8 MiB. Without
    /// CAP_NET_ADMIN in the namespace it is cut to `net.core.rmem_max`.
    pub buffer: usize,
    /// Whether tracked connections that somebody deletes (`conntrack -D`, `-F`) are a change; true. While
    /// it is watched the kernel writes a message at the end of every tracked connection, about a
    /// microsecond each, and drops it before it is queued if nobody asked for the end.
    pub conntrack: bool,
    /// Whether runs of iptables in its old form are; true.
    pub xtables: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { ports: Vec::new(), buffer: 8 << 20, conntrack: true, xtables: true }
    }
}

/// What the watch has seen, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages of the kernel.
    pub messages: u64,
    /// Those among them that were no change.
    pub ignored: u64,
    /// Times that the caller was told.
    pub bumps: u64,
    /// Times that messages were lost and everything was read anew.
    pub overruns: u64,
    /// Bumps that each cause had a part in, in the order of [`Cause::ALL`].
    pub causes: [u64; Cause::ALL.len()],
}

/// The thread that watches, until it is dropped.
pub struct Watch {
    thread: Option<JoinHandle<Result<()>>>,
    stop: Arc<OwnedFd>,
    counters: Arc<Counters>,
    unmonitored: Vec<String>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Watch {
    /// Watches the network namespace of the calling thread. `bump` is called once before this returns
    /// ([`Cause::Start`]), and from then on by a thread of its own. Every change after the return is
    /// followed by a call.
    ///
    /// `bump` raises the generation, by one atomic addition; what it does longer, other changes wait for.
    ///
    /// # Errors
    /// When the kernel does not let the state of routing be watched. What it merely does not have is no
    /// error: [`Watch::unmonitored`].
    pub fn start(options: &Options, mut bump: impl FnMut(Causes) + Send + 'static) -> Result<Self> {
        let mut unmonitored = Vec::new();
        let mut sources = vec![Source::route(options.buffer)?];
        let mut optional = vec![("the ruleset of nftables", Source::nftables(options.buffer))];
        optional.push(("policies of IPsec", Source::ipsec(options.buffer)));
        if options.conntrack {
            optional.push(("deleted connections", Source::conntrack(options.buffer)));
        }
        for (what, source) in optional {
            match source {
                Ok(source) => sources.push(source),
                Err(error) => unmonitored.push(format!("changes of {what} are not seen: {error}")),
            }
        }
        let lock = match options.xtables.then(Lock::watch) {
            Some(Err(error)) => {
                unmonitored.push(format!("runs of iptables in its old form are not seen: {error}"));
                None
            }
            Some(Ok(lock)) => Some(lock),
            None => None,
        };
        let mut detector = ChangeDetector::new(&options.ports);
        detector.load().map_err(|source| Error::system("read the state of the network", source))?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|errno| Error::system("make an eventfd", errno.into()))?;
        let (stop, counters) = (Arc::new(stop), Arc::new(Counters::default()));
        let first = Causes::from_iter([Cause::Start]);
        counters.bumped(first);
        bump(first);
        let body = Body { sources, lock, detector, stop: stop.clone(), counters: counters.clone() };
        let thread = thread::Builder::new()
            .name("forward-watch".into())
            .spawn(move || body.run(bump))
            .map_err(|source| Error::system("start the thread of the watch", source))?;
        Ok(Self { thread: Some(thread), stop, counters, unmonitored })
    }

    /// What it has seen so far.
    pub fn counts(&self) -> Counts {
        self.counters.read()
    }

    /// What it cannot see on this kernel, a sentence each.
    pub fn unmonitored(&self) -> &[String] {
        &self.unmonitored
    }

    /// Whether it still watches. After an error nothing bumps any more: the daemon has to stop its
    /// heartbeat, so that the kernel takes over.
    ///
    /// # Errors
    /// Why it has ended, once; then, that it has.
    pub fn check(&mut self) -> Result<()> {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        let ended = || io::Error::other("its thread has ended");
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => Err(error),
            _ => Err(Error::system("watch the network", ended())),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread owns.
struct Body {
    sources: Vec<Source>,
    lock: Option<Lock>,
    detector: ChangeDetector,
    stop: Arc<OwnedFd>,
    counters: Arc<Counters>,
}

impl Body {
    fn run(mut self, mut bump: impl FnMut(Causes)) -> Result<()> {
        // Full softirqs leave ordinary threads little time, and that is when it matters. Lowering needs
        // CAP_SYS_NICE, and does without.
        let _ = rustix::process::setpriority_process(None, -20);
        let counters = self.counters.clone();
        let mut bump = |causes: Causes| {
            counters.bumped(causes);
            bump(causes);
        };
        while !self.sleep()? {
            let mut causes = Causes::default();
            let mut overrun = false;
            for source in &mut self.sources {
                let detector = &mut self.detector;
                let drained = source.drain(BATCH, |protocol, message| {
                    let cause = detector.detect(protocol, message);
                    counters.message(cause.is_some());
                    if let Some(cause) = cause {
                        causes.insert(cause);
                    }
                });
                overrun |= drained? == Received::Overrun;
            }
            if self.lock.as_mut().is_some_and(Lock::was_held) {
                causes.insert(Cause::Xtables);
            }
            if overrun {
                causes.insert(Cause::Overrun);
            }
            if !causes.is_empty() {
                bump(causes);
            }
            if overrun {
                counters.overrun();
                for source in &mut self.sources {
                    source.discard()?;
                }
                let load = self.detector.load();
                load.map_err(|source| Error::system("read the state of the network anew", source))?;
                bump(Causes::from_iter([Cause::Overrun]));
            }
        }
        Ok(())
    }

    /// Sleeps until something waits: whether it is the end.
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
