//! [`Control`]: the memory-mapped control page that all programs read.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use linerate_bpf::map::MappedArray;

use crate::config::Statistics;
use crate::maps::Maps;
use crate::table::clock::Clock;
use crate::table::layout::{self, GENERATION_CLOSED};
use crate::{Error, Result};

mod at {
    use std::mem::offset_of;

    use crate::table::layout::Control;

    pub(super) const GENERATION: usize = offset_of!(Control, generation);
    pub(super) const DENIED: usize = offset_of!(Control, denied);
    pub(super) const HEARTBEAT: usize = offset_of!(Control, heartbeat);
    pub(super) const HEARTBEAT_TIMEOUT: usize = offset_of!(Control, heartbeat_timeout);
    pub(super) const REVALIDATE_AFTER: usize = offset_of!(Control, revalidate_after);
    pub(super) const ADMISSION: usize = offset_of!(Control, admission);
    pub(super) const RULES: usize = offset_of!(Control, rules);
    pub(super) const ROUTE_GENERATION: usize = offset_of!(Control, route_generation);
    pub(super) const ROUTE_GENERATION_MARKED: usize = offset_of!(Control, route_generation_marked);
    pub(super) const VERIFY_CHECKSUMS: usize = offset_of!(Control, verify_checksums);
    pub(super) const ABI: usize = offset_of!(Control, abi);
    pub(super) const STATISTICS: usize = offset_of!(Control, statistics);
}

/// How often ingress metadata takes a new route generation. Each needs entries of its own, which are kept for up to
/// 100 s.
const MARK_INTERVAL: Duration = Duration::from_millis(20);

/// The control page of the programs of an instance. Any number of processes may map it.
#[derive(Debug)]
pub struct Control {
    page: MappedArray,
    /// When ingress metadata took a new route generation last; held while that is raised.
    marked: Mutex<Option<Instant>>,
}

impl Control {
    /// Maps the page of the programs with these maps.
    ///
    /// # Errors
    /// [`Error::Bpf`]; [`Error::Invalid`] if it has the layout of another version.
    pub fn open(maps: &Maps) -> Result<Self> {
        let page = MappedArray::new(maps.get("control")?.as_fd())?;
        let page = Self { page, marked: Mutex::default() };
        if page.page.value_size() != size_of::<layout::Control>() || page.abi() != layout::ABI {
            return Err(Error::Invalid(
                "the programs that run are of another version of Linerate; detach them with that one, or \
                 with `linerate forward detach`"
                    .into(),
            ));
        }
        Ok(page)
    }

    fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        self.page.atomic(0, offset)
    }

    fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        self.page.atomic(0, offset)
    }

    /// The generation: only sessions that were learned in it are valid.
    pub fn generation(&self) -> u32 {
        self.atomic_u32(at::GENERATION).load(SeqCst)
    }

    /// Makes all sessions stale: the next packet of each goes through the kernel. Call it after each change.
    /// Returns the new generation.
    pub fn bump_generation(&self) -> u32 {
        let next = |now: u32| if now + 1 >= GENERATION_CLOSED { 1 } else { now + 1 };
        let before =
            self.atomic_u32(at::GENERATION).fetch_update(SeqCst, SeqCst, |now| Some(next(now)));
        next(before.unwrap_or_else(|now| now))
    }

    /// Has the programs ask `bpf_fib_lookup` about each session before they use it again; those that it does not see
    /// are stale. Call it after each change of routes and neighbours that it sees. One process may call it.
    pub fn reroute(&self) {
        let mut marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.atomic_u32(at::ROUTE_GENERATION).load(SeqCst).wrapping_add(1) & 0xffff;
        self.atomic_u32(at::ROUTE_GENERATION).store(next, SeqCst);
        if next == 0 {
            // The numbers come again. After the store: no session of the new generation has the last of the old.
            self.bump_generation();
            *marked = None;
        }
        self.mark(&mut marked);
    }

    /// Has ingress metadata take the current route generation, if changes came too fast for that. Call it now and
    /// then.
    pub fn settle_routes(&self) {
        let mut marked = self.marked.lock().unwrap_or_else(PoisonError::into_inner);
        self.mark(&mut marked);
    }

    fn mark(&self, marked: &mut Option<Instant>) {
        let now = self.atomic_u32(at::ROUTE_GENERATION).load(SeqCst);
        let mark = self.atomic_u32(at::ROUTE_GENERATION_MARKED);
        if mark.load(SeqCst) != now && marked.is_none_or(|last| last.elapsed() >= MARK_INTERVAL) {
            mark.store(now, SeqCst);
            *marked = Some(Instant::now());
        }
    }

    /// The number of deny list entries that the programs see.
    pub fn denied(&self) -> u32 {
        self.atomic_u32(at::DENIED).load(SeqCst)
    }

    /// Sets it; at 0 the programs skip the deny lists.
    pub(crate) fn set_denied(&self, entries: u32) {
        self.atomic_u32(at::DENIED).store(entries, SeqCst);
    }

    /// The jiffies of the daemon's last heartbeat; 0: none.
    pub fn heartbeat(&self) -> u64 {
        self.atomic_u64(at::HEARTBEAT).load(Relaxed)
    }

    /// Passes everything to the kernel, from now until the next heartbeat.
    pub fn fail_open(&self) {
        self.atomic_u64(at::HEARTBEAT).store(0, SeqCst);
    }

    /// The heartbeat timeout in jiffies.
    pub fn heartbeat_timeout(&self) -> u64 {
        self.atomic_u64(at::HEARTBEAT_TIMEOUT).load(Relaxed)
    }

    /// Sets the heartbeat timeout in jiffies.
    pub fn set_heartbeat_timeout(&self, timeout: Duration, clock: &Clock) {
        self.atomic_u64(at::HEARTBEAT_TIMEOUT).store(clock.jiffies(timeout), SeqCst);
    }

    /// Sets after how many jiffies, up to 2^30, new sessions go through the kernel again.
    pub fn set_revalidate_after(&self, period: Duration, clock: &Clock) {
        let jiffies = clock.jiffies(period).clamp(1, 1 << 30) as u32;
        self.atomic_u32(at::REVALIDATE_AFTER).store(jiffies, SeqCst);
    }

    /// Jiffies after which a session goes through the kernel again.
    pub fn revalidate_after(&self) -> u32 {
        self.atomic_u32(at::REVALIDATE_AFTER).load(Relaxed)
    }

    /// Sets how many packets of a session go through the kernel before it is learned: 1 or more.
    pub fn set_admission(&self, packets: u32) {
        self.atomic_u32(at::ADMISSION).store(packets.max(1), SeqCst);
    }

    /// Packets of a session that go through the kernel before it is learned.
    pub fn admission(&self) -> u32 {
        self.atomic_u32(at::ADMISSION).load(Relaxed)
    }

    /// Says what packet filters look at, and whether that was different before. A bump has to follow then.
    pub(crate) fn set_rules(&self, rules: u32) -> bool {
        self.atomic_u32(at::RULES).swap(rules, SeqCst) != rules
    }

    /// What packet filters look at: bits of [`layout::rules`].
    pub fn rules(&self) -> u32 {
        self.atomic_u32(at::RULES).load(SeqCst)
    }

    /// Has the programs verify TCP and UDP checksums where conntrack does. It concerns sessions that are learned
    /// afterwards: a bump has to follow a change.
    pub fn set_verify_checksums(&self, verify: bool) {
        self.atomic_u32(at::VERIFY_CHECKSUMS).store(verify.into(), SeqCst);
    }

    /// Whether they verify them.
    pub fn verifies_checksums(&self) -> bool {
        self.atomic_u32(at::VERIFY_CHECKSUMS).load(SeqCst) != 0
    }

    /// The layout that the programs were built with.
    pub fn abi(&self) -> u32 {
        self.atomic_u32(at::ABI).load(Relaxed)
    }

    /// The design of statistics that they were loaded with.
    pub fn statistics(&self) -> Statistics {
        let number = self.atomic_u32(at::STATISTICS).load(Relaxed);
        let found = Statistics::ALL.iter().find(|one| one.number() == number);
        found.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
