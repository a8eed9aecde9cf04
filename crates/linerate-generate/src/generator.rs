//! [`Generator`] runs a [`Plan`].

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::pthread::pthread_kill;
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use serde::Serialize;

use crate::live::{self, Counters};
use crate::plan::{Backend, Plan};
use crate::{Error, Result};

/// Ends the system call in which a thread generates. Its default is to be ignored, so that one that
/// comes late harms nobody.
const KICK: Signal = Signal::SIGURG;

/// Starts runs.
#[derive(Debug)]
pub struct Generator;

impl Generator {
    /// Starts to send on a thread of its own, and returns when the first frame is about to go.
    ///
    /// The kernel works for that thread in one long system call, which only a signal ends: while a run
    /// lives, the process has a handler for SIGURG that does nothing.
    ///
    /// # Errors
    /// [`Error::Privilege`], [`Error::Unavailable`] where no back end works, [`Error::Argument`] for a
    /// CPU that is not there.
    pub fn start(plan: Plan) -> Result<Running> {
        let (choice, why) = choose(&plan)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = sync_channel(1);
        let worker = {
            let (plan, stop) = (plan.clone(), Arc::clone(&stop));
            spawn("generate", move || work(&plan, choice, &stop, &ready))?
        };
        let counters = match is_ready.recv() {
            Ok(Ok(counters)) => Arc::new(counters),
            Ok(Err(error)) => return Err(error),
            Err(_) => return Err(died(&plan.interface.name, worker)),
        };
        let (stopper, stopped) = sync_channel(1);
        let watch = {
            let (counters, duration) = (Arc::clone(&counters), plan.duration);
            spawn("generate-watch", move || watch(worker, &counters, duration, &stop, &stopped))?
        };
        Ok(Running { plan, backend: choice, why, counters, stopper, watch })
    }
}

/// A run that goes on. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    plan: Plan,
    backend: Backend,
    why: String,
    counters: Arc<Counters>,
    stopper: SyncSender<()>,
    watch: JoinHandle<Result<()>>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Frames given to the interface: those that were accepted and those that were refused.
    pub sent: u64,
    /// Frames that the far end could not take.
    pub refused: u64,
    /// Bytes of the frames sent.
    pub bytes: u64,
    /// Seconds since the first frame.
    pub seconds: f64,
}

/// What a run did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The interface.
    pub interface: String,
    /// What carried the frames: `live`, `packet`.
    pub backend: String,
    /// Why this back end.
    pub why: String,
    /// Frames given to the interface: `accepted` and `refused` together.
    pub sent: u64,
    /// Frames that the driver took.
    pub accepted: u64,
    /// Frames that it gave back: the ring of the far end was full, or nobody was there.
    pub refused: u64,
    /// Bytes of the frames sent.
    pub bytes: u64,
    /// Seconds from the first frame to the last.
    pub seconds: f64,
    /// Frames sent per second.
    pub packets_per_second: f64,
    /// Bits sent per second, frames as they stand in memory.
    pub bits_per_second: f64,
    /// What to do about frames that were refused, where that is known.
    pub hint: Option<String>,
}

impl Running {
    /// The back end in use, and why.
    pub fn backend(&self) -> (&'static str, &str) {
        (name(self.backend), &self.why)
    }

    /// How far the run is.
    pub fn progress(&self) -> Progress {
        let Some(counters) = self.counters.read() else { return Progress::default() };
        Progress {
            sent: counters.accepted + counters.refused + counters.undirected,
            refused: counters.refused + counters.undirected,
            bytes: counters.bytes,
            seconds: counters.last.saturating_sub(counters.first) as f64 / 1e9,
        }
    }

    /// Whether the run has ended by itself.
    pub fn is_finished(&self) -> bool {
        self.watch.is_finished()
    }

    /// Asks the run to end after the batch that it is at; [`Running::wait`] then returns at once.
    pub fn stop(&self) {
        let _ = self.stopper.try_send(());
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    /// What stopped the run before its end; frames may have been sent.
    pub fn wait(self) -> Result<Report> {
        let Self { plan, backend, why, counters, stopper, watch } = self;
        let name_of = &plan.interface.name;
        watch.join().map_err(|_| panicked(name_of))??;
        drop(stopper);
        let counters = counters.read().ok_or_else(|| panicked(name_of))?;
        let refused = counters.emitted - counters.accepted;
        let seconds = counters.last.saturating_sub(counters.first) as f64 / 1e9;
        let rate = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
        Ok(Report {
            interface: plan.interface.name.clone(),
            backend: name(backend).to_owned(),
            why,
            sent: counters.emitted,
            accepted: counters.accepted,
            refused,
            bytes: counters.bytes,
            seconds,
            packets_per_second: rate(counters.emitted),
            bits_per_second: rate(counters.bytes.saturating_mul(8)),
            hint: (refused > 0)
                .then(|| hint(&plan, counters.driver_error, counters.redirect_error)),
        })
    }
}

fn choose(plan: &Plan) -> Result<(Backend, String)> {
    let rate = plan.rate.packets(plan.sizes.mean());
    match plan.backend {
        Backend::Live if plan.sizes.max() > live::MAX_FRAME => Err(Error::argument(
            format!("size {}", plan.sizes),
            format!("live frames have at most {} bytes", live::MAX_FRAME),
        )),
        Backend::Live if rate.is_some_and(|rate| rate < live::MIN_RATE) => Err(Error::argument(
            format!("rate {}", plan.rate),
            format!("live frames go at {} a second at least", live::MIN_RATE),
        )),
        Backend::Live => Ok((Backend::Live, "asked for".into())),
        _ => Ok((Backend::Live, "the fastest".into())),
    }
}

fn work(
    plan: &Plan,
    _backend: Backend,
    stop: &AtomicBool,
    ready: &SyncSender<Result<Counters>>,
) -> Result<()> {
    if let Some(cpu) = plan.cpu
        && let Err(error) = pin(&plan.interface.name, cpu)
    {
        let _ = ready.send(Err(error));
        return Ok(());
    }
    live::run(plan, stop, ready)
}

fn pin(name: &str, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|error| match error {
            nix::Error::EINVAL => Error::argument(
                format!("cpu {cpu}"),
                "this process may not run there; `nproc` tells how many CPUs there are, counted from 0",
            ),
            error => Error::Kernel {
                name: name.to_owned(),
                action: "pin the generator to a CPU",
                source: error.into(),
            },
        })
}

/// Ends the worker when its time is over or somebody asks for it, and returns what it returned.
fn watch(
    worker: JoinHandle<Result<()>>,
    counters: &Counters,
    duration: Option<Duration>,
    stop: &AtomicBool,
    stopped: &Receiver<()>,
) -> Result<()> {
    let handler = signal_hook::flag::register(KICK as i32, Arc::new(AtomicBool::new(false)));
    let mut stopping = false;
    while !worker.is_finished() {
        let left = match duration {
            Some(_) if stopping => Duration::from_millis(1),
            Some(duration) => time_left(counters, duration),
            None if stopping => Duration::from_millis(1),
            None => Duration::from_millis(20),
        };
        match stopped.recv_timeout(left.min(Duration::from_millis(20))) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => stopping = true,
            Err(RecvTimeoutError::Timeout) => {}
        }
        stopping |= duration.is_some_and(|duration| time_left(counters, duration).is_zero());
        if stopping {
            stop.store(true, Ordering::Relaxed);
            let _ = pthread_kill(worker.as_pthread_t(), KICK);
        }
    }
    if let Ok(handler) = handler {
        signal_hook::low_level::unregister(handler);
    }
    worker.join().unwrap_or_else(|_| Err(panicked("?")))
}

/// Until `duration` after the first frame; the whole of it while there is none.
fn time_left(counters: &Counters, duration: Duration) -> Duration {
    let first = counters.read().map_or(0, |counters| counters.first);
    if first == 0 {
        return duration;
    }
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
    (Duration::from_nanos(first) + duration).saturating_sub(now)
}

fn spawn(
    name: &str,
    work: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<JoinHandle<Result<()>>> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|source| Error::Kernel {
        name: name.to_owned(),
        action: "start a thread",
        source,
    })
}

fn died(name: &str, worker: JoinHandle<Result<()>>) -> Error {
    match worker.join() {
        Ok(Err(error)) => error,
        _ => panicked(name),
    }
}

fn panicked(name: &str) -> Error {
    Error::Kernel {
        name: name.to_owned(),
        action: "generate",
        source: std::io::Error::other("the generating thread ended without a word"),
    }
}

fn name(backend: Backend) -> &'static str {
    match backend {
        Backend::Auto => "auto",
        Backend::Live => "live",
        Backend::Packet => "packet",
    }
}

fn hint(plan: &Plan, driver_error: i32, redirect_error: i32) -> String {
    use nix::libc::{ENETDOWN, ENXIO, EOPNOTSUPP};
    let name = &plan.interface.name;
    match (-driver_error, -redirect_error) {
        (ENXIO, _) => format!(
            "nobody receives at the other end of {name}: a veth takes live frames only where its peer \
             is up and has an XDP program or GRO (`ethtool -K PEER gro on`, in the peer's namespace)"
        ),
        (_, EOPNOTSUPP) => {
            format!("the driver of {name} sends no XDP frames; --backend packet does")
        }
        (ENETDOWN, _) | (_, ENETDOWN) => format!("{name} went down"),
        (0, 0) => format!(
            "the receive ring behind {name} was full: a lower --rate, or --cpu to keep sender and \
             receiver on CPUs of their own"
        ),
        (driver, redirect) => format!(
            "the kernel said: {}",
            std::io::Error::from_raw_os_error(if driver != 0 { driver } else { redirect })
        ),
    }
}
