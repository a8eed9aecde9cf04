//! [`Generator`] runs a [`Config`].

use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::libc::ENETDOWN;
use nix::sys::pthread::pthread_kill;
use nix::sys::signal::Signal;
use serde::Serialize;

use crate::config::Config;
use crate::counters::{Counters, Statistics};
use crate::options::Backend;
use crate::{Error, Rate, Result, clock, cpu, live_frames, rate, ring};

/// Ends the system call in which a thread generates. Its default action is to be ignored, so a late one
/// does no harm.
const WAKE_SIGNAL: Signal = Signal::SIGURG;

/// How often a run is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Starts runs.
#[derive(Debug)]
pub struct Generator;

impl Generator {
    /// Starts a thread that sends, and returns just before the first frame.
    ///
    /// That thread is in one long system call, which only a signal ends: during a run the process has a
    /// handler for SIGURG that does nothing.
    ///
    /// # Errors
    /// [`Error::Privilege`], [`Error::Unavailable`] where no backend works, [`Error::Argument`] for a
    /// CPU that is not there.
    pub fn start(config: Config) -> Result<Running> {
        let mut fallback = String::new();
        let mut started = Err(Error::argument("backend", "none can do this"));
        for (backend, reason) in candidates(&config)? {
            started = Self::launch(&config, backend);
            match &started {
                Err(error) => match error.fallback_reason() {
                    Some(reason) if config.backend == Backend::Auto => fallback = reason,
                    _ => break,
                },
                Ok(_) => {
                    let reason = if fallback.is_empty() { reason } else { fallback };
                    return started
                        .and_then(|launched| Self::follow(config, backend, reason, launched));
                }
            }
        }
        started.and_then(|_| Err(thread_failed(&config.interface.name)))
    }

    fn launch(config: &Config, backend: Backend) -> Result<Launched> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = sync_channel(1);
        let worker = {
            let (config, stop) = (config.clone(), Arc::clone(&stop));
            spawn("generate", move || work(&config, backend, &stop, &ready))?
        };
        match is_ready.recv() {
            Ok(Ok(counters)) => Ok(Launched { worker, stop, counters }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(match worker.join() {
                Ok(Err(error)) => error,
                _ => thread_failed(&config.interface.name),
            }),
        }
    }

    fn follow(
        config: Config,
        backend: Backend,
        reason: String,
        launched: Launched,
    ) -> Result<Running> {
        let Launched { worker, stop, counters } = launched;
        let (stopper, stopped) = sync_channel(1);
        let watch = {
            let (counters, duration) = (Arc::clone(&counters), config.time_limit);
            spawn("generate-watch", move || watch(worker, &*counters, duration, &stop, &stopped))?
        };
        Ok(Running { config, backend, reason, counters, stopper, watch })
    }
}

/// A worker that is about to send its first frame.
struct Launched {
    worker: JoinHandle<Result<()>>,
    stop: Arc<AtomicBool>,
    counters: Arc<dyn Counters>,
}

/// A run in progress. Dropping it stops the run.
#[derive(Debug)]
pub struct Running {
    config: Config,
    backend: Backend,
    reason: String,
    counters: Arc<dyn Counters>,
    stopper: SyncSender<()>,
    watch: JoinHandle<Result<()>>,
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Frames given to the interface: those that were accepted and those that were refused.
    pub sent: u64,
    /// Frames that the peer could not take.
    pub refused: u64,
    /// Bytes of the frames sent.
    pub bytes: u64,
    /// Seconds since the first frame.
    pub seconds: f64,
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The interface.
    pub interface: String,
    /// What carried the frames: `live`, `packet` or `xdp`.
    pub backend: String,
    /// Why this backend.
    pub reason: String,
    /// Frames given to the interface: `accepted` and `refused` together.
    pub sent: u64,
    /// Frames that the driver took.
    pub accepted: u64,
    /// Frames that it returned: the ring of the peer was full, or there was no receiver.
    pub refused: u64,
    /// Bytes of the frames sent.
    pub bytes: u64,
    /// Seconds from the first frame to the last.
    pub seconds: f64,
    /// Frames sent per second.
    pub packets_per_second: f64,
    /// Bits sent per second, frames as in memory.
    pub bits_per_second: f64,
    /// The part of the requested rate that was reached, 0 to 1; `None` at full speed.
    pub rate_reached: Option<f64>,
    /// What to do about frames that were refused, where that is known.
    pub hint: Option<String>,
    /// What ended the run early; the counts above are from before.
    pub error: Option<String>,
}

impl Running {
    /// The backend in use, and why.
    pub fn backend(&self) -> (&'static str, &str) {
        (self.backend.name(), &self.reason)
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

    /// Requests the end of the run after the current batch; [`Running::wait`] then returns at once.
    pub fn stop(&self) {
        let _ = self.stopper.try_send(());
    }

    /// Waits for the end of the run. [`Report::error`] says what ended it early.
    ///
    /// # Errors
    /// When the sending thread died and nothing is known.
    pub fn wait(self) -> Result<Report> {
        let Self { config, backend, reason, counters, stopper, watch } = self;
        let name_of = &config.interface.name;
        let ended = watch.join().map_err(|_| thread_failed(name_of))?;
        drop(stopper);
        let counters = counters.read().ok_or_else(|| thread_failed(name_of))?;
        let refused = counters.emitted.saturating_sub(counters.accepted);
        let seconds = counters.last.saturating_sub(counters.first) as f64 / 1e9;
        let rate = |amount: u64| if seconds > 0.0 { amount as f64 / seconds } else { 0.0 };
        Ok(Report {
            interface: config.interface.name.clone(),
            backend: backend.name().to_owned(),
            reason,
            sent: counters.emitted,
            accepted: counters.accepted,
            refused,
            bytes: counters.bytes,
            seconds,
            packets_per_second: rate(counters.emitted),
            bits_per_second: rate(counters.bytes.saturating_mul(8)),
            rate_reached: match config.rate {
                Rate::Max => None,
                Rate::Packets(rate) => Some(counters.emitted.saturating_sub(1) as f64 / rate),
                Rate::Bits(rate) => Some(counters.bytes as f64 * 8.0 / rate),
            }
            .map(|scheduled| rate::reached(scheduled, seconds)),
            hint: (refused > 0).then(|| hint(&config.interface.name, backend, &counters)),
            error: match ended {
                Ok(()) if counters.interface_is_gone() => {
                    Some(format!("interface {name_of} was removed"))
                }
                Ok(()) => None,
                Err(error) => Some(error.to_string()),
            },
        })
    }
}

/// The backends to try, best first, each with the reason that is told if it works.
fn candidates(config: &Config) -> Result<Vec<(Backend, String)>> {
    let rate = config.rate.packets(config.sizes.mean());
    let too_slow = rate.is_some_and(|rate| rate < live_frames::MIN_RATE);
    let too_long = config.sizes.max() > live_frames::MAX_FRAME;
    let long = format!("live frames have at most {} bytes", live_frames::MAX_FRAME);
    let slow = format!("live frames go at {} a second at least", live_frames::MIN_RATE);
    match config.backend {
        Backend::Live if too_long => Err(Error::argument(format!("size {}", config.sizes), long)),
        Backend::Live if too_slow => Err(Error::argument(format!("rate {}", config.rate), slow)),
        Backend::Xdp if config.sizes.max() > 4096 => Err(Error::argument(
            format!("size {}", config.sizes),
            "AF_XDP sends at most 4096 bytes",
        )),
        Backend::Auto if too_long => Ok(vec![(Backend::Packet, long)]),
        Backend::Auto if too_slow => Ok(vec![(Backend::Packet, slow)]),
        Backend::Auto => Ok(vec![
            (Backend::Live, "the fastest".into()),
            (Backend::Packet, "works everywhere".into()),
        ]),
        requested => Ok(vec![(requested, "requested".into())]),
    }
}

fn work(
    config: &Config,
    backend: Backend,
    stop: &AtomicBool,
    ready: &SyncSender<Result<Arc<dyn Counters>>>,
) -> Result<()> {
    if let Some(cpu) = config.cpu
        && let Err(error) = cpu::pin(&config.interface.name, cpu)
    {
        let _ = ready.send(Err(error));
        return Ok(());
    }
    match backend {
        Backend::Packet | Backend::Xdp => ring::run(config, backend, stop, ready),
        Backend::Auto | Backend::Live => {
            live_frames::run(config, config.backend == Backend::Auto, stop, ready)
        }
    }
}

/// Ends the worker when its time is over or on request, and returns its result.
fn watch(
    worker: JoinHandle<Result<()>>,
    counters: &dyn Counters,
    duration: Option<Duration>,
    stop: &AtomicBool,
    stopped: &Receiver<()>,
) -> Result<()> {
    let handler = signal_hook::flag::register(WAKE_SIGNAL as i32, Arc::new(AtomicBool::new(false)));
    let mut stopping = false;
    while !worker.is_finished() {
        if stopping {
            stop.store(true, Ordering::Relaxed);
            // A signal may come before the thread is in the system call, so it is repeated.
            let _ = pthread_kill(worker.as_pthread_t(), WAKE_SIGNAL);
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let left = duration
            .map_or(POLL_INTERVAL, |duration| time_left(counters, duration).min(POLL_INTERVAL));
        stopping = stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout)
            || duration.is_some_and(|duration| time_left(counters, duration).is_zero())
            || counters.read().is_some_and(|counts| counts.interface_is_gone());
    }
    if let Ok(handler) = handler {
        signal_hook::low_level::unregister(handler);
    }
    worker.join().unwrap_or_else(|_| Err(thread_failed("?")))
}

/// Until `duration` after the first frame; the whole of it while there is none.
fn time_left(counters: &dyn Counters, duration: Duration) -> Duration {
    let first = counters.read().map_or(0, |counters| counters.first);
    if first == 0 {
        return duration;
    }
    (Duration::from_nanos(first) + duration).saturating_sub(Duration::from_nanos(clock::now()))
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

fn thread_failed(name: &str) -> Error {
    Error::Kernel {
        name: name.to_owned(),
        action: "generate",
        source: std::io::Error::other("the generating thread ended without a report"),
    }
}

fn hint(name: &str, backend: Backend, counts: &Statistics) -> String {
    let error = [counts.redirect_error, counts.driver_error].into_iter().find(|error| *error != 0);
    match error.map(|error| -error) {
        _ if counts.cannot_send() => format!(
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
