//! [`RateEstimator`]: whether messages arrive so fast that it pays to let some gather.

use std::time::{Duration, Instant};

/// Messages a second from which waking the reader costs more than a timed sleep. Below, a sleep gathers few.
const COALESCE_RATE: u128 = 640_000;

const NANOSECONDS: u128 = Duration::from_secs(1).as_nanos();

/// The rate at which messages arrive between two calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateEstimator {
    last: Option<(Instant, u64)>,
}

impl RateEstimator {
    /// Whether messages arrived fast since the last call; `messages` counts all that have arrived. One clock
    /// reading without a system call.
    pub(super) fn is_fast(&mut self, messages: u64) -> bool {
        let now = Instant::now();
        let Some((then, before)) = self.last.replace((now, messages)) else { return false };
        let arrived = u128::from(messages - before);
        arrived * NANOSECONDS >= COALESCE_RATE * (now - then).as_nanos() && arrived > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than a clock can be off by between two calls.
    const HOUR: Duration = Duration::from_secs(3600);

    fn since(time: Duration) -> RateEstimator {
        RateEstimator { last: Some((Instant::now() - time, 1000)) }
    }

    #[test]
    fn fast_is_a_matter_of_messages_a_second() {
        assert!(!RateEstimator::default().is_fast(1_000_000), "nothing to compare with");
        let hourly = COALESCE_RATE as u64 * HOUR.as_secs();
        assert!(since(HOUR).is_fast(1000 + hourly / 100 * 101));
        assert!(!since(HOUR).is_fast(1000 + hourly / 100 * 99));
        assert!(!since(HOUR).is_fast(1000));
    }

    #[test]
    fn it_counts_what_arrived_since_the_last_call() {
        let mut rate = since(HOUR);
        let many = 1000 + COALESCE_RATE as u64 * 2 * HOUR.as_secs();
        assert!(rate.is_fast(many));
        assert!(!rate.is_fast(many));
    }
}
