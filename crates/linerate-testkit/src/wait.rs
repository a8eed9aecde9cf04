//! Waiting for what has to happen.

use std::io::{ErrorKind, Result};
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

/// Calls `receive` again while it fails with `EINTR`. A wait on a socket with a timeout ends with `EINTR` when the
/// process is stopped and continued, or its machine is frozen for a moment, even without a signal handler (signal(7)).
pub fn uninterrupted<T>(mut receive: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match receive() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_interrupted_is_tried_again() {
        let mut left = 3;
        let answer = uninterrupted(|| {
            left -= 1;
            if left > 0 { Err(ErrorKind::Interrupted.into()) } else { Ok(left) }
        });
        assert_eq!(answer.unwrap(), 0);
        let refused = uninterrupted(|| -> Result<()> { Err(ErrorKind::WouldBlock.into()) });
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}
