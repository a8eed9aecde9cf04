//! [`Tempo`]: whether messages come so fast that it pays to let some gather.

use std::time::{Duration, Instant};

/// Messages a second from which waking the reader costs more than the wait would. Below, a rest brings few.
const FAST: u128 = 640_000;

/// How fast messages came since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tempo {
    last: Option<(Instant, u64)>,
}

impl Tempo {
    /// Whether messages came fast since the last question; `messages` is the count of all that have come.
    /// One clock reading without a system call.
    pub(super) fn is_fast(&mut self, messages: u64) -> bool {
        let now = Instant::now();
        let Some((then, before)) = self.last.replace((now, messages)) else { return false };
        let came = u128::from(messages - before);
        came * NANOSECONDS >= FAST * (now - then).as_nanos() && came > 0
    }
}

const NANOSECONDS: u128 = Duration::from_secs(1).as_nanos();

#[cfg(test)]
mod tests {
    use super::*;

    /// More than anybody's clock can be off by between two questions.
    const HOUR: Duration = Duration::from_secs(3600);

    fn since(time: Duration) -> Tempo {
        Tempo { last: Some((Instant::now() - time, 1000)) }
    }

    #[test]
    fn fast_is_a_matter_of_messages_a_second() {
        assert!(!Tempo::default().is_fast(1_000_000), "nothing to go by");
        let hourly = FAST as u64 * HOUR.as_secs();
        assert!(since(HOUR).is_fast(1000 + hourly / 100 * 101));
        assert!(!since(HOUR).is_fast(1000 + hourly / 100 * 99));
        assert!(!since(HOUR).is_fast(1000));
    }

    #[test]
    fn it_goes_by_what_came_since_the_last_question() {
        let mut tempo = since(HOUR);
        let many = 1000 + FAST as u64 * 2 * HOUR.as_secs();
        assert!(tempo.is_fast(many));
        assert!(!tempo.is_fast(many));
    }
}
