//! [`Heartbeat`]: how the programs know that somebody looks after them.
//!
//! The daemon beats; the programs compare the time of the last beat with now at every packet. When it is
//! older than the bound they leave every packet to the kernel, by themselves: after `kill -9`, after a hang,
//! after an end that left everything attached. The first beat of a daemon, and the first after a silence,
//! makes all sessions stale, since nobody watched for changes.

use std::time::{Duration, Instant};

use crate::Result;
use crate::runtime::program::Programs;
use crate::snapshot::State;
use crate::table::clock::Clock;
use crate::table::control::Control;

/// Beats in the time of the bound: three may be late before anything happens.
const BEATS: u32 = 4;
/// The longest time between two.
const LONGEST: Duration = Duration::from_secs(1);

/// Says in time that the daemon lives.
#[derive(Debug)]
pub struct Heartbeat {
    period: Duration,
    last: Option<Instant>,
}

impl Heartbeat {
    /// Sets how long the programs go on without a beat. Those that have handed back stay so until the first
    /// one, which is due at once.
    pub fn new(control: &Control, bound: Duration, clock: &Clock) -> Self {
        // By the former bound: a longer one must not wake sessions that nobody watched over.
        if state(control, clock) == State::FailOpen {
            control.fail_open();
        }
        control.set_heartbeat_timeout(bound, clock);
        Self { period: period(bound), last: None }
    }

    /// How often to call [`Heartbeat::beat`] at least.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Beats if it is time to; the clock of the beat then.
    ///
    /// Whoever has been silent for longer than the bound must have looked at everything that could have
    /// changed before this is called; sessions learned before are made stale here.
    ///
    /// # Errors
    /// [`crate::Error::Ring`] when the kernel does not run the program.
    pub fn beat(&mut self, programs: &Programs, control: &Control) -> Result<Option<Clock>> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < self.period) {
            return Ok(None);
        }
        // Asked before the beat, which makes the answer another. Before the first one nobody watched.
        let before = control.heartbeat();
        let was_silent = self.last.is_none()
            || state_at(control, Clock::estimated().now(), before) == State::FailOpen;
        if was_silent {
            control.bump();
        }
        let jiffies = programs.heartbeat()?;
        if !was_silent && jiffies.saturating_sub(before) > control.heartbeat_timeout() {
            // The bound passed between the two looks.
            control.bump();
        }
        self.last = Some(now);
        Ok(Some(Clock::read(jiffies)))
    }
}

fn period(bound: Duration) -> Duration {
    (bound / BEATS).min(LONGEST)
}

/// Who forwards, by the last beat.
pub fn state(control: &Control, clock: &Clock) -> State {
    state_at(control, clock.now(), control.heartbeat())
}

/// How long ago the last beat was, and for how long the programs go on without one.
pub fn ages(control: &Control, clock: &Clock) -> (Duration, Duration) {
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
mod tests {
    use linerate_testkit::root_or_skip;

    use super::*;
    use crate::runtime::program::Options;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn wait(what: &str, mut holds: impl FnMut() -> bool) {
        let end = Instant::now() + TIMEOUT;
        while !holds() {
            assert!(Instant::now() < end, "in vain: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn the_state_follows_the_beat() {
        root_or_skip!();
        let programs =
            Programs::load(&Options { max_sessions: 1024, ..Options::default() }).unwrap();
        let control = Control::open(&programs.maps).unwrap();
        let clock = Clock::estimated();
        assert_eq!(state(&control, &clock), State::FailOpen, "before the first beat");
        // Long enough that nobody misses a beat here, however busy the machine is.
        let bound = TIMEOUT;
        let mut heart = Heartbeat::new(&control, bound, &clock);
        assert_eq!(heart.period(), Duration::from_secs(1));
        let clock = heart.beat(&programs, &control).unwrap().expect("due at once");
        assert_eq!(state(&control, &clock), State::Running);
        let (beat, heartbeat_timeout) = (control.heartbeat(), control.heartbeat_timeout());
        for (age, expected) in [
            (heartbeat_timeout / 2, State::Running),
            (heartbeat_timeout / 2 + 1, State::Unattended),
            (heartbeat_timeout, State::Unattended),
            (heartbeat_timeout + 1, State::FailOpen),
        ] {
            assert_eq!(
                state_at(&control, beat + age, beat),
                expected,
                "{age} of {heartbeat_timeout}"
            );
        }
        let generation = control.generation();
        wait("another beat", || heart.beat(&programs, &control).unwrap().is_some());
        assert_eq!(control.generation(), generation, "nothing was missed");

        let short = Duration::from_secs(1);
        control.set_heartbeat_timeout(short, &clock);
        wait("the bound", || state(&control, &clock) == State::FailOpen);
        let (age, told) = ages(&control, &clock);
        assert!(age >= short && told == short, "{age:?} of {told:?}");
        // Whatever changed meanwhile, no session of before is used.
        wait("a beat after", || heart.beat(&programs, &control).unwrap().is_some());
        assert!(control.generation() > generation);
    }
}
