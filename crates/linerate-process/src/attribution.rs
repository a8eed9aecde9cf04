//! [`Attribution`]: the programs, and the thread that takes what they report.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_bpf::process::{Holders, SocketEvents};
use linerate_bpf::{Error, Result};
use linerate_net::privilege::{CapabilitySet, keep_only};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, DynamicClockId, clock_gettime, clock_gettime_dynamic};
use serde::Serialize;

use crate::cache::Cache;
use crate::selection::Selection;
use crate::table::Table;

/// The longest time between two looks at what is to be done.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The same after a fork: until then the child has executed its program, mostly, and closed its sockets.
const WAIT_AFTER_FORK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// The share of the time that looks at all descriptors may take: one of so many.
const HOLDERS_SHARE: u32 = 50;

/// The longest time between two looks at all descriptors: processes pass sockets to each other.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// By how much clocks may drift apart between two looks at the events, in nanoseconds.
const MAX_CLOCK_DRIFT: u64 = 5_000_000;

/// How often what nobody needs is forgotten.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// Knows which process has a flow, until it is dropped.
#[derive(Debug)]
pub struct Attribution {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    stop: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct State {
    events: SocketEvents,
    lost: u64,
    /// How often the table was emptied.
    resets: u64,
    clocks: [u64; 2],
    pub(crate) table: Table,
}

/// What the kernel did not report of sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Events that came too fast. After each loss flows are unknown until they or their sockets are seen again.
    pub lost_events: u64,
    /// Packets of flows that were not reported, because too many began in that second.
    pub limited_flows: u64,
}

/// The programs are attached.
#[derive(Debug)]
pub struct Attached {
    shared: Arc<Shared>,
    holders: Holders,
    ring: OwnedFd,
}

impl Attached {
    /// Starts the thread, without capabilities: so the process must have its last user.
    ///
    /// # Errors
    /// [`Error::System`] if no thread can be started.
    pub fn start(self) -> Result<Attribution> {
        let Self { shared, holders, ring } = self;
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("processes".to_owned());
        let thread = thread.spawn(move || own.run(&holders, &ring)).map_err(failed)?;
        Ok(Attribution { shared, thread: Some(thread) })
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::System { action: "follow the sockets of processes".to_owned(), source }
}

impl Attribution {
    /// Attaches the programs, and finds the sockets that exist.
    ///
    /// # Errors
    /// As [`SocketEvents::open`].
    pub fn attach() -> Result<Attached> {
        let (events, holders) = SocketEvents::open()?;
        let ring = events.as_fd().try_clone_to_owned().map_err(failed)?;
        let state = State { events, lost: 0, resets: 0, clocks: clocks(), table: Table::new() };
        let shared = Arc::new(Shared { state: Mutex::new(state), stop: AtomicBool::new(false) });
        shared.look(&holders);
        Ok(Attached { shared, holders, ring })
    }

    /// A cache for one reader of packets in the network namespace with this cookie, with room for at least this many flows.
    pub fn cache(&self, netns: u64, selection: Selection, flows: usize) -> Cache {
        let buckets = Arc::clone(&self.shared.lock().table.buckets);
        Cache::new(Arc::clone(&self.shared), buckets, netns, selection, flows)
    }

    /// What was not reported so far.
    pub fn statistics(&self) -> Statistics {
        let events = &self.shared.lock().events;
        Statistics { lost_events: events.lost(), limited_flows: events.limited() }
    }
}

impl Drop for Attribution {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl State {
    /// Takes all events so far. Returns the time, before which all are known.
    pub(crate) fn refresh(&mut self) -> u64 {
        let time = now();
        let clocks = clocks();
        let offset = clocks[0];
        // The times of packets and events do not belong together any more.
        let is_set = |(now, before): (u64, &u64)| now.abs_diff(*before) > MAX_CLOCK_DRIFT;
        if clocks.into_iter().zip(&self.clocks).any(is_set) {
            self.events.take();
            self.reset();
        }
        self.clocks = clocks;
        for mut event in self.events.take() {
            event.time = event.time.saturating_sub(offset);
            self.table.apply(&event);
        }
        let lost = self.events.lost();
        if lost != self.lost {
            if self.lost == 0 {
                tracing::warn!(
                    "events of sockets came too fast: packets have no process until their sockets are seen again"
                );
            }
            self.lost = lost;
            self.reset();
        }
        time
    }

    fn reset(&mut self) {
        self.resets += 1;
        self.table.reset();
        // The programs would report datagram flows later.
        if let Err(error) = self.events.forget_flows() {
            tracing::debug!("flows of datagrams stay without a process for a while: {error}");
        }
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, holders: &Holders, ring: &OwnedFd) {
        if let Err(error) = keep_only(CapabilitySet::empty()) {
            tracing::debug!("cannot drop the capabilities of a thread: {error}");
        }
        let mut wait = WAIT;
        let (mut next_look, mut last_look) = (Instant::now(), Instant::now());
        let mut next_sweep = Instant::now() + SWEEP_INTERVAL;
        while !self.stop.load(Relaxed) {
            let _ = poll(&mut [PollFd::new(ring, PollFlags::IN)], Some(&wait));
            let mut state = self.lock();
            state.refresh();
            wait = match std::mem::take(&mut state.table.had_fork) {
                true => WAIT_AFTER_FORK,
                false => WAIT,
            };
            let is_due = state.table.wants_holders || last_look.elapsed() >= LOOK_INTERVAL;
            let looks = is_due && Instant::now() >= next_look;
            if Instant::now() >= next_sweep {
                next_sweep = Instant::now() + SWEEP_INTERVAL;
                state.table.sweep();
            }
            drop(state);
            if looks {
                let start = Instant::now();
                self.look(holders);
                last_look = Instant::now();
                next_look = last_look + start.elapsed() * HOLDERS_SHARE;
            }
        }
    }

    /// Finds who has a socket alone.
    fn look(&self, holders: &Holders) {
        let (begin, resets) = {
            let mut state = self.lock();
            (state.refresh(), state.resets)
        };
        let found = holders.list();
        let mut state = self.lock();
        match found {
            Ok(found) => {
                // What came meanwhile is known first.
                let end = state.refresh();
                if state.resets == resets {
                    state.table.apply_holders(&found, begin, end);
                }
            }
            Err(error) => {
                tracing::warn!("flows of inherited sockets stay without a process: {error}");
                state.table.wants_holders = false;
            }
        }
    }
}

fn nanoseconds(time: rustix::time::Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// UTC, in nanoseconds.
pub(crate) fn now() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// TAI less UTC, in whole seconds, which the kernel may not know (then 0); and UTC less the time since boot. Both in
/// nanoseconds.
fn clocks() -> [u64; 2] {
    let utc = now();
    let tai = clock_gettime_dynamic(DynamicClockId::Tai).map_or(utc, nanoseconds);
    let offset = (tai.saturating_sub(utc) + 500_000_000) / 1_000_000_000 * 1_000_000_000;
    let boot = clock_gettime_dynamic(DynamicClockId::Known(ClockId::Boottime));
    [offset, utc.saturating_sub(boot.map_or(0, nanoseconds))]
}

#[cfg(test)]
mod tests;
