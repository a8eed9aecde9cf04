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
    let programs = Programs::load(&Options { max_sessions: 1024, ..Options::default() }).unwrap();
    let control = Control::open(&programs.maps).unwrap();
    let clock = Clock::from_boot_time();
    assert_eq!(state(&control, &clock), State::FailOpen, "before the first beat");
    // Long enough that no heartbeat is late here, even on a busy machine.
    let timeout = TIMEOUT;
    let mut heart = Heartbeat::new(&control, timeout, &clock);
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
        assert_eq!(state_at(&control, beat + age, beat), expected, "{age} of {heartbeat_timeout}");
    }
    let generation = control.generation();
    wait("another beat", || heart.beat(&programs, &control).unwrap().is_some());
    assert_eq!(control.generation(), generation, "nothing was missed");

    let short = Duration::from_secs(1);
    control.set_heartbeat_timeout(short, &clock);
    wait("the timeout", || state(&control, &clock) == State::FailOpen);
    let (age, told) = age_and_timeout(&control, &clock);
    assert!(age >= short && told == short, "{age:?} of {told:?}");
    // No older session is used, because anything may have changed.
    wait("a beat after", || heart.beat(&programs, &control).unwrap().is_some());
    assert!(control.generation() > generation);
}
