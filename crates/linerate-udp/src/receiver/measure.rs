//! The choice of a back end by what each costs on the messages that come.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::{Receiver, choose};
use crate::builder::Settings;
use crate::{Backend, Result, probe};

/// The better of two that cost the same comes first.
const ORDER: [Backend; 4] = [Backend::Xdp, Backend::Gro, Backend::Recvmmsg, Backend::Uring];
/// A smaller share of lost messages than this counts as none.
const BEARABLE: f64 = 1e-3;

/// What one back end did in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The back end.
    pub backend: Backend,
    /// Messages that it received, and nobody got.
    pub messages: u64,
    /// Messages that it lost, of all causes.
    pub lost: u64,
    /// CPU time of the thread that received.
    pub cpu: Duration,
}

impl Trial {
    /// What decides: the share of messages lost, then nanoseconds of CPU a message.
    fn cost(&self) -> (f64, f64) {
        let messages = self.messages as f64;
        let share = self.lost as f64 / (messages + self.lost as f64);
        let share = if share < BEARABLE { 0.0 } else { share };
        (share, self.cpu.as_nanos() as f64 / messages)
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// The best, if there was anything to measure by.
    pub(super) best: Option<Backend>,
    /// Why no other.
    pub(super) why: Vec<String>,
    pub(super) trials: Vec<Trial>,
}

/// Gives each back end its turn.
pub(super) fn run(settings: &Settings, time: Duration) -> Measured {
    let mut measured = Measured::default();
    for backend in ORDER {
        let obstacle = match backend {
            Backend::Xdp => choose::not_xdp(settings),
            other => probe(other, None),
        };
        let tried = match obstacle {
            Some(reason) => Err(reason),
            None => turn(settings, backend, time).map_err(|error| error.to_string()),
        };
        match tried {
            Ok((trial, whole)) => {
                measured.trials.push(trial);
                if !whole {
                    break;
                }
            }
            Err(reason) => measured.why.push(format!("not {backend}: {reason}")),
        }
    }
    let best = best(&measured.trials);
    measured.best = best.map(|trial| trial.backend);
    for trial in &measured.trials {
        if Some(trial.backend) != measured.best && trial.messages > 0 {
            measured.why.push(format!("not {}: measured {}", trial.backend, words(trial)));
        }
    }
    if let Some(best) = best {
        measured.why.insert(0, format!("measured {}", words(best)));
    }
    measured
}

fn best(trials: &[Trial]) -> Option<&Trial> {
    let heard = trials.iter().filter(|trial| trial.messages > 0);
    heard.min_by(|a, b| {
        let (a, b) = (a.cost(), b.cost());
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    })
}

fn words(trial: &Trial) -> String {
    let Trial { messages, lost, .. } = trial;
    format!("{:.0} ns of CPU a message, {lost} of {} lost", trial.cost().1, messages + lost)
}

/// One back end for `time`; false beside it where a signal came.
fn turn(settings: &Settings, backend: Backend, time: Duration) -> Result<(Trial, bool)> {
    let mut receiver = Receiver::open_with(settings, backend)?;
    let before = cpu_time();
    let end = Instant::now() + time;
    let whole = loop {
        let mut batch = receiver.receive(Some(end))?;
        let nothing = batch.is_empty();
        while batch.next().is_some() {}
        match (Instant::now() >= end, nothing) {
            (true, _) => break true,
            // Before its time a wait ends in vain only for a signal.
            (false, true) => break false,
            (false, false) => {}
        }
    };
    let cpu = cpu_time().saturating_sub(before);
    let lost = receiver.losses()?.lost();
    Ok((Trial { backend, messages: receiver.messages(), lost, cpu }, whole))
}

/// Time of this thread on a CPU, the kernel's on its behalf included.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(backend: Backend, messages: u64, lost: u64, cpu: u64) -> Trial {
        Trial { backend, messages, lost, cpu: Duration::from_nanos(cpu) }
    }

    #[test]
    fn what_loses_nothing_and_costs_least_is_best() {
        let cheap = trial(Backend::Gro, 1000, 0, 200_000);
        let lossy = trial(Backend::Xdp, 1000, 100, 50_000);
        let dear = trial(Backend::Recvmmsg, 500, 0, 300_000);
        let deaf = trial(Backend::Uring, 0, 0, 0);
        assert_eq!(best(&[lossy, dear, cheap, deaf]), Some(&cheap));
        assert_eq!(best(&[lossy, deaf]), Some(&lossy));
        assert_eq!(best(&[deaf]), None);
        // One lost of thousands is noise.
        let nearly = trial(Backend::Xdp, 10_000, 1, 500_000);
        assert_eq!(best(&[cheap, nearly]), Some(&nearly));
    }

    #[test]
    fn of_equals_the_first_is_taken() {
        let [one, other] = [Backend::Gro, Backend::Uring].map(|b| trial(b, 10, 0, 10));
        assert_eq!(best(&[one, other]), Some(&one));
    }
}
