//! Waiting for what has to happen.

use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take that takes an instant, or some seconds, on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Waits until `condition` holds; panics with `what` if it does not within [`TIMEOUT`].
#[track_caller]
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
