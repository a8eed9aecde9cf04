//! [`Generator`] runs a [`Plan`].

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::libc::ENETDOWN;
use nix::sys::pthread::pthread_kill;
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::counters::{Counters, Counts};
use crate::plan::{Backend, Plan};
use crate::{Error, Result, cpu, live, ring};

/// Ends the system call in which a thread generates. Its default is to be ignored, so that one that
/// comes late harms nobody.
const KICK: Signal = Signal::SIGURG;

/// How often a run is looked at.
const GLANCE: Duration = Duration::from_millis(10);

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
        let mut why = String::new();
        let mut started = Err(Error::argument("backend", "none can do this"));
        for (backend, reason) in candidates(&plan)? {
            started = Self::launch(&plan, backend);
            match &started {
                Err(error) if plan.backend == Backend::Auto && error.leaves_a_choice() => {
                    why = format!("instead: {error}");
                }
                Err(_) => break,
                Ok(_) => {
                    let why = if why.is_empty() { reason } else { why };
                    return started.and_then(|launched| Self::follow(plan, backend, why, launched));
                }
            }
        }
        started.and_then(|_| Err(died(&plan.interface.name)))
    }

    fn launch(plan: &Plan, backend: Backend) -> Result<Launched> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = sync_channel(1);
        let worker = {
            let (plan, stop) = (plan.clone(), Arc::clone(&stop));
            spawn("generate", move || work(&plan, backend, &stop, &ready))?
        };
        match is_ready.recv() {
            Ok(Ok(counters)) => Ok(Launched { worker, stop, counters: Arc::new(counters) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(match worker.join() {
                Ok(Err(error)) => error,
                _ => died(&plan.interface.name),
            }),
        }
    }

    fn follow(plan: Plan, backend: Backend, why: String, launched: Launched) -> Result<Running> {
        let Launched { worker, stop, counters } = launched;
        let (stopper, stopped) = sync_channel(1);
        let watch = {
            let (counters, duration) = (Arc::clone(&counters), plan.duration);
            spawn("generate-watch", move || watch(worker, &counters, duration, &stop, &stopped))?
        };
        Ok(Running { plan, backend, why, counters, stopper, watch })
    }
}

/// A worker that is about to send its first frame.
struct Launched {
    worker: JoinHandle<Result<()>>,
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
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
    /// What carried the frames: `live`, `packet` or `xdp`.
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
    /// What ended the run before its time; what is above happened before.
    pub trouble: Option<String>,
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
            sent: counters.emitted,
            refused: counters.refused,
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

    /// Waits for the end of the run. What ended it early is told in [`Report::trouble`].
    ///
    /// # Errors
    /// When the sending thread died and nothing is known.
    pub fn wait(self) -> Result<Report> {
        let Self { plan, backend, why, counters, stopper, watch } = self;
        let name_of = &plan.interface.name;
        let ended = watch.join().map_err(|_| died(name_of))?;
        drop(stopper);
        let counters = counters.read().ok_or_else(|| died(name_of))?;
        let refused = counters.emitted.saturating_sub(counters.accepted);
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
            hint: (refused > 0).then(|| hint(&plan.interface.name, backend, &counters)),
            trouble: match ended {
                Ok(()) if counters.gone() => Some(format!("interface {name_of} was removed")),
                Ok(()) => None,
                Err(error) => Some(error.to_string()),
            },
        })
    }
}

/// The back ends to try, best first, each with the reason that is told if it works.
fn candidates(plan: &Plan) -> Result<Vec<(Backend, String)>> {
    let rate = plan.rate.packets(plan.sizes.mean());
    let too_slow = rate.is_some_and(|rate| rate < live::MIN_RATE);
    let too_long = plan.sizes.max() > live::MAX_FRAME;
    let long = format!("live frames have at most {} bytes", live::MAX_FRAME);
    let slow = format!("live frames go at {} a second at least", live::MIN_RATE);
    match plan.backend {
        Backend::Live if too_long => Err(Error::argument(format!("size {}", plan.sizes), long)),
        Backend::Live if too_slow => Err(Error::argument(format!("rate {}", plan.rate), slow)),
        Backend::Xdp if plan.sizes.max() > 4096 => {
            Err(Error::argument(format!("size {}", plan.sizes), "AF_XDP sends at most 4096 bytes"))
        }
        Backend::Auto if too_long => Ok(vec![(Backend::Packet, long)]),
        Backend::Auto if too_slow => Ok(vec![(Backend::Packet, slow)]),
        Backend::Auto => Ok(vec![
            (Backend::Live, "the fastest".into()),
            (Backend::Packet, "works everywhere".into()),
        ]),
        asked => Ok(vec![(asked, "asked for".into())]),
    }
}

fn work(
    plan: &Plan,
    backend: Backend,
    stop: &AtomicBool,
    ready: &SyncSender<Result<Counters>>,
) -> Result<()> {
    if let Some(cpu) = plan.cpu
        && let Err(error) = cpu::pin(&plan.interface.name, cpu)
    {
        let _ = ready.send(Err(error));
        return Ok(());
    }
    match backend {
        Backend::Packet | Backend::Xdp => ring::run(plan, backend, stop, ready),
        Backend::Auto | Backend::Live => {
            live::run(plan, plan.backend == Backend::Auto, stop, ready)
        }
    }
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
        if stopping {
            stop.store(true, Ordering::Relaxed);
            // One may come while the thread is not in the system call yet, so there are more.
            let _ = pthread_kill(worker.as_pthread_t(), KICK);
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let left = duration.map_or(GLANCE, |duration| time_left(counters, duration).min(GLANCE));
        stopping = stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout)
            || duration.is_some_and(|duration| time_left(counters, duration).is_zero())
            || counters.read().is_some_and(|counts| counts.gone());
    }
    if let Ok(handler) = handler {
        signal_hook::low_level::unregister(handler);
    }
    worker.join().unwrap_or_else(|_| Err(died("?")))
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

fn died(name: &str) -> Error {
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
        Backend::Xdp => "xdp",
    }
}

fn hint(name: &str, backend: Backend, counts: &Counts) -> String {
    let error = [counts.redirect_error, counts.driver_error].into_iter().find(|error| *error != 0);
    match error.map(|error| -error) {
        _ if counts.nobody_takes_them() => format!(
            "{name} sends no XDP frames: its driver cannot, or, of a veth, the peer is down or has \
             neither an XDP program nor GRO (`ethtool -K PEER gro on` in the peer's namespace); \
             --backend packet sends in any case"
        ),
        Some(ENETDOWN) => format!("{name} went down"),
        Some(error) => {
            format!("the kernel said: {}", std::io::Error::from_raw_os_error(error))
        }
        None if backend == Backend::Live => format!(
            "the receive ring behind {name} was full: a lower --rate helps, or another --cpu (that of \
             the receiver for a veth)"
        ),
        None => {
            format!("{name} dropped them (its own count, which includes other senders' frames)")
        }
    }
}
