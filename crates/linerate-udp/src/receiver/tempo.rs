//! [`Tempo`]: whether messages come so fast that it pays to let some gather.

use std::time::{Duration, Instant};

/// Messages that a nap has to bring. It takes as long again for the timer's slack, and brings twice as many.
const WORTH_A_NAP: u64 = 32;

/// How fast messages came since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tempo {
    last: Option<(Instant, u64)>,
}

impl Tempo {
    /// Whether as many as make it worth while would come during a nap, if it goes on as since the last
    /// question; `messages` is the count of all that have come. One clock reading without a system call.
    pub(super) fn is_fast(&mut self, messages: u64, nap: Duration) -> bool {
        let now = Instant::now();
        let Some((then, before)) = self.last.replace((now, messages)) else { return false };
        let came = u128::from(messages - before);
        came * nap.as_nanos() >= u128::from(WORTH_A_NAP) * (now - then).as_nanos() && came > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(time: Duration) -> Tempo {
        Tempo { last: Some((Instant::now() - time, 1000)) }
    }

    #[test]
    fn a_nap_pays_where_many_come_in_it() {
        let (nap, hour) = (Duration::from_millis(100), Duration::from_secs(3600));
        assert!(!Tempo::default().is_fast(1_000_000, nap), "nothing to go by");
        // 32 in 100 ms are 1,152,000 in an hour.
        assert!(since(hour).is_fast(1000 + 1_200_000, nap));
        assert!(!since(hour).is_fast(1000 + 1_150_000, nap));
        assert!(!since(hour).is_fast(1000, nap));
        assert!(!since(hour).is_fast(1000 + 1_200_000, Duration::ZERO));
    }

    #[test]
    fn it_goes_by_what_came_since_the_last_question() {
        let mut tempo = since(Duration::from_secs(3600));
        let nap = Duration::from_millis(100);
        assert!(tempo.is_fast(1000 + 5_000_000, nap));
        assert!(!tempo.is_fast(1000 + 5_000_000, nap));
    }
}
