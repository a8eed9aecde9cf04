//! Calibration: selects a backend by what each costs on the messages that arrive.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::select;
use crate::Result;
use crate::backend::Backend;
use crate::options::Options;
use crate::probe::probe;
use crate::receiver::{CalibrationRun, Receiver};

/// The order of preference of backends that cost the same.
const PREFERENCE: [Backend; 4] = [Backend::Xdp, Backend::Gro, Backend::Recvmmsg, Backend::Uring];

/// The result of a calibration.
#[derive(Debug, Default)]
pub(super) struct Calibration {
    /// The best backend, if any message arrived.
    pub(super) best: Option<Backend>,
    /// Why no other.
    pub(super) reasons: Vec<String>,
    pub(super) runs: Vec<CalibrationRun>,
}

/// Tries one backend after the other, each for `time`.
pub(super) fn run(options: &Options, time: Duration) -> Calibration {
    let (mut runs, mut reasons) = (Vec::new(), Vec::new());
    let consented = |backend: &Backend| options.take_over || *backend != Backend::Xdp;
    for backend in PREFERENCE.into_iter().filter(consented) {
        let available = match backend {
            Backend::Xdp => select::native_xdp(options),
            Backend::Gro => select::probe_gro(options),
            other => probe(other, None),
        };
        let tried = available
            .and_then(|()| try_backend(options, backend, time).map_err(|error| error.to_string()));
        match tried {
            Ok((run, completed)) => {
                runs.push(run);
                if !completed {
                    break;
                }
            }
            Err(reason) => reasons.push(format!("not {backend}: {reason}")),
        }
    }
    let best = CalibrationRun::best(&runs).copied();
    for run in &runs {
        if Some(run.backend) != best.map(|best| best.backend) && run.messages > 0 {
            reasons.push(format!("not {}: measured {run}", run.backend));
        }
    }
    if let Some(best) = best {
        reasons.insert(0, format!("measured {best}"));
    }
    Calibration { best: best.map(|best| best.backend), reasons, runs }
}

/// One backend for `time`; with it false where a signal ended the run.
fn try_backend(
    options: &Options,
    backend: Backend,
    time: Duration,
) -> Result<(CalibrationRun, bool)> {
    let mut receiver = Receiver::open_backend(options, backend)?;
    let before = cpu_time();
    let end = Instant::now() + time;
    let completed = loop {
        let mut batch = receiver.receive(Some(end))?;
        let empty = batch.is_empty();
        while batch.next().is_some() {}
        match (Instant::now() >= end, empty) {
            (true, _) => break true,
            // Before the deadline only a signal ends a wait without messages.
            (false, true) => break false,
            (false, false) => {}
        }
    };
    let cpu = cpu_time().saturating_sub(before);
    let lost = receiver.drops()?.total();
    Ok((CalibrationRun { backend, messages: receiver.messages(), lost, cpu }, completed))
}

/// Time of this thread on a CPU, in user space and in the kernel.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
