//! [`CalibrationRun`]: the result of one backend in a calibration, and which is the best.

use std::fmt;
use std::time::Duration;

use crate::backend::Backend;

/// A smaller share of lost messages counts as none.
const TOLERATED_LOSS: f64 = 1e-3;

/// The result of one backend in the calibration of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalibrationRun {
    /// The backend.
    pub backend: Backend,
    /// Messages that it received, and that were discarded.
    pub messages: u64,
    /// Messages that it lost, of all causes.
    pub lost: u64,
    /// CPU time of the thread that received.
    pub cpu: Duration,
}

impl CalibrationRun {
    /// The best of those that received messages; the first of equals.
    pub(crate) fn best(runs: &[Self]) -> Option<&Self> {
        let candidates = runs.iter().filter(|run| run.messages > 0);
        candidates.min_by(|a, b| {
            let (a, b) = (a.cost(), b.cost());
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        })
    }

    /// The share of messages lost, then nanoseconds of CPU per message.
    fn cost(&self) -> (f64, f64) {
        let messages = self.messages as f64;
        let share = self.lost as f64 / (messages + self.lost as f64);
        let share = if share < TOLERATED_LOSS { 0.0 } else { share };
        (share, self.cpu.as_nanos() as f64 / messages)
    }
}

impl fmt::Display for CalibrationRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { messages, lost, .. } = self;
        let (_, nanoseconds) = self.cost();
        write!(f, "{nanoseconds:.0} ns of CPU a message, {lost} of {} lost", messages + lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration(backend: Backend, messages: u64, lost: u64, cpu: u64) -> CalibrationRun {
        CalibrationRun { backend, messages, lost, cpu: Duration::from_nanos(cpu) }
    }

    #[test]
    fn what_loses_nothing_and_costs_least_is_best() {
        let cheap = calibration(Backend::Gro, 1000, 0, 200_000);
        let lossy = calibration(Backend::Xdp, 1000, 100, 50_000);
        let dear = calibration(Backend::Recvmmsg, 500, 0, 300_000);
        let deaf = calibration(Backend::Uring, 0, 0, 0);
        assert_eq!(CalibrationRun::best(&[lossy, dear, cheap, deaf]), Some(&cheap));
        assert_eq!(CalibrationRun::best(&[lossy, deaf]), Some(&lossy));
        assert_eq!(CalibrationRun::best(&[deaf]), None);
        // One lost of thousands is noise.
        let nearly = calibration(Backend::Xdp, 10_000, 1, 500_000);
        assert_eq!(CalibrationRun::best(&[cheap, nearly]), Some(&nearly));
    }

    #[test]
    fn of_equals_the_first_is_taken() {
        let [one, other] = [Backend::Gro, Backend::Uring].map(|b| calibration(b, 10, 0, 10));
        assert_eq!(CalibrationRun::best(&[one, other]), Some(&one));
    }
}
