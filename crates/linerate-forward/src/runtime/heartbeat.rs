//! [`Heartbeat`]: how the programs know that the daemon is alive.
//!
//! The daemon sends heartbeats. At every packet the programs compare the time of the last heartbeat with now.
//! When it is older than the timeout, they leave every packet to the kernel: after `kill -9`, after a hang,
//! after an end that left everything attached. The first heartbeat of a daemon, and the first after a gap
//! longer than the timeout, makes all sessions stale, because nobody watched for changes.

use std::time::{Duration, Instant};

use crate::Result;
use crate::runtime::program::Programs;
use crate::snapshot::State;
use crate::table::clock::Clock;
use crate::table::control::Control;

/// Heartbeats per timeout: three may be late before anything happens.
const BEATS: u32 = 4;
/// The longest interval between two heartbeats.
const LONGEST: Duration = Duration::from_secs(1);

/// Sends heartbeats in time.
#[derive(Debug)]
pub struct Heartbeat {
    period: Duration,
    last: Option<Instant>,
}

impl Heartbeat {
    /// Sets how long the programs forward without a heartbeat. Programs that have failed open stay so until
    /// the next heartbeat, which is due immediately.
    pub fn new(control: &Control, timeout: Duration, clock: &Clock) -> Self {
        // By the former timeout: a longer one must not revive sessions that nobody watched over.
        if state(control, clock) == State::FailOpen {
            control.fail_open();
        }
        control.set_heartbeat_timeout(timeout, clock);
        Self { period: period(timeout), last: None }
    }

    /// The longest interval between two calls of [`Heartbeat::beat`].
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Sends a heartbeat if one is due, and then returns its clock.
    ///
    /// After a gap longer than the timeout, the caller must re-read all network state before it calls this.
    /// Older sessions are made stale here.
    ///
    /// # Errors
    /// [`crate::Error::Bpf`] when the kernel does not run the program.
    pub fn beat(&mut self, programs: &Programs, control: &Control) -> Result<Option<Clock>> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < self.period) {
            return Ok(None);
        }
        // Read before the beat, because the beat changes the result. Before the first one nobody watched.
        let before = control.heartbeat();
        let was_silent = self.last.is_none()
            || state_at(control, Clock::from_boot_time().now(), before) == State::FailOpen;
        if was_silent {
            control.bump_generation();
        }
        let jiffies = programs.heartbeat()?;
        if !was_silent && jiffies.saturating_sub(before) > control.heartbeat_timeout() {
            // The timeout passed between the two reads.
            control.bump_generation();
        }
        self.last = Some(now);
        Ok(Some(Clock::read(jiffies)))
    }
}

fn period(timeout: Duration) -> Duration {
    (timeout / BEATS).min(LONGEST)
}

/// Who forwards, by the last heartbeat.
pub fn state(control: &Control, clock: &Clock) -> State {
    state_at(control, clock.now(), control.heartbeat())
}

/// The age of the last heartbeat, and the timeout.
pub fn age_and_timeout(control: &Control, clock: &Clock) -> (Duration, Duration) {
    let age = clock.now().saturating_sub(control.heartbeat());
    (clock.duration(age), clock.duration(control.heartbeat_timeout()))
}

fn state_at(control: &Control, now: u64, beat: u64) -> State {
    let (age, heartbeat_timeout) = (now.saturating_sub(beat), control.heartbeat_timeout());
    if beat == 0 || age > heartbeat_timeout {
        State::FailOpen
    } else if age > heartbeat_timeout / 2 {
        State::Unattended
    } else {
        State::Running
    }
}

#[cfg(test)]
mod tests;
