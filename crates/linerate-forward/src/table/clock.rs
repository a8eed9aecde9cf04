//! [`Clock`]: the kernel's jiffies, the time of the programs, without a system call into BPF.
//!
//! A jiffy is counted for every 1/HZ seconds of CLOCK_MONOTONIC (`tick_do_update_jiffies64` in
//! `kernel/time/tick-sched.c`), so one reading of both gives the jiffies at any later moment.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// Converts between CLOCK_MONOTONIC and jiffies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    hz: u32,
    /// Nanoseconds of CLOCK_MONOTONIC when the jiffies were these.
    monotonic: u64,
    jiffies: u64,
}

impl Clock {
    /// Counts on from `jiffies`, which a program has just read (`beat`). Exact to one jiffy.
    pub fn read(jiffies: u64) -> Self {
        Self { hz: hz(), monotonic: monotonic(), jiffies }
    }

    /// Counts from boot, for processes that may not run a program: `INITIAL_JIFFIES` in
    /// `include/linux/jiffies.h`. Ahead by the time that passed at boot before the first tick, less than a
    /// second.
    pub fn from_boot_time() -> Self {
        let hz = hz();
        Self { hz, monotonic: 0, jiffies: (1 << 32) - 300 * u64::from(hz) }
    }

    /// Jiffies in a second.
    pub fn hz(&self) -> u32 {
        self.hz
    }

    /// The jiffies now, `bpf_jiffies64` of the programs.
    pub fn now(&self) -> u64 {
        self.jiffies + self.jiffies_in_nanoseconds(monotonic().saturating_sub(self.monotonic))
    }

    /// Sixteenths of a second of the jiffies now.
    pub fn sixteenths(&self) -> u64 {
        self.now() * 16 / u64::from(self.hz)
    }

    /// Jiffies in `time`, rounded up, so that a wait is never shorter.
    pub fn jiffies(&self, time: Duration) -> u64 {
        let whole = u128::from(self.hz) * time.as_nanos();
        u64::try_from(whole.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
    }

    /// The duration of `jiffies`.
    pub fn duration(&self, jiffies: u64) -> Duration {
        let hz = u64::from(self.hz);
        let rest = jiffies % hz * 1_000_000_000 / hz;
        Duration::new(jiffies / hz, rest as u32)
    }

    /// The time since the low half of the jiffies was `then`; valid for half of its range, which at 1000
    /// jiffies a second is 24 days. Zero for a time in the future.
    pub fn since(&self, then: u32) -> Duration {
        let passed = (self.now() as u32).wrapping_sub(then);
        if passed > u32::MAX / 2 { Duration::ZERO } else { self.duration(u64::from(passed)) }
    }

    fn jiffies_in_nanoseconds(&self, nanoseconds: u64) -> u64 {
        (u128::from(nanoseconds) * u128::from(self.hz) / 1_000_000_000) as u64
    }
}

/// The resolution of the coarse clocks is one jiffy (`clock_getres(2)`, `KTIME_LOW_RES`).
fn hz() -> u32 {
    let jiffy = nanoseconds(clock_getres(ClockId::MonotonicCoarse));
    ((1_000_000_000 + jiffy / 2) / jiffy.max(1)) as u32
}

fn monotonic() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

fn nanoseconds(time: Timespec) -> u64 {
    // Neither is negative for the monotonic clocks.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests;
