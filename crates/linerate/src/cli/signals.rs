//! The signals that a verb handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use linerate_capture::privilege;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::flag::{register, register_conditional_shutdown};

/// How often the thread that counts from the first signal to end looks for it.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How long a verb may take to end on request. `timeout(1)`, a terminal and a shell script may each deliver
/// the signal that the user sent once.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Set by SIGINT and SIGTERM from now on, for a verb that has nothing else to be told.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop: Arc<AtomicBool> = Arc::default();
    for signal in [SIGINT, SIGTERM] {
        register(signal, Arc::clone(&stop)).context("cannot handle signals")?;
    }
    Ok(stop)
}

/// The requests of signals.
#[derive(Default)]
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    counts: Arc<AtomicBool>,
    flush: Arc<AtomicBool>,
    rotate: Arc<AtomicBool>,
    unprivileged: Arc<AtomicBool>,
}

impl Signals {
    /// Takes them from now on. A signal to end that comes [`GRACE_PERIOD`] after the first, which has not
    /// been obeyed then, ends the program at once.
    pub(crate) fn register() -> Result<Self> {
        Self::register_with(None)
    }

    /// As [`Signals::register`]; the signal `rotation` only asks for another file.
    pub(crate) fn register_with(rotation: Option<i32>) -> Result<Self> {
        let signals = Self::default();
        signals.register_all(rotation).context("cannot take signals")?;
        Ok(signals)
    }

    fn register_all(&self, rotation: Option<i32>) -> std::io::Result<()> {
        let insist: Arc<AtomicBool> = Arc::default();
        // Under nohup(1) the capture is to outlive its terminal.
        let hangup = (!is_ignored(SIGHUP) && rotation != Some(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            register_conditional_shutdown(signal, 128 + signal, Arc::clone(&insist))?;
            register(signal, Arc::clone(&self.stop))?;
        }
        for (signal, flag) in [(SIGUSR1, &self.counts), (SIGUSR2, &self.flush)] {
            let flag = if rotation == Some(signal) { &self.rotate } else { flag };
            register(signal, Arc::clone(flag))?;
        }
        if rotation == Some(SIGHUP) {
            register(SIGHUP, Arc::clone(&self.rotate))?;
        }
        // At the limit on file sizes the write fails then, as on a full disk, and nobody dies.
        register(SIGXFSZ, Arc::default())?;
        let (stop, unprivileged) = (Arc::clone(&self.stop), Arc::clone(&self.unprivileged));
        let watch = move || {
            while !stop.load(Relaxed) {
                if unprivileged.swap(false, Relaxed) {
                    privilege::drop_all();
                }
                thread::sleep(POLL_INTERVAL);
            }
            thread::sleep(GRACE_PERIOD);
            insist.store(true, Relaxed);
        };
        thread::Builder::new().name("signals".to_owned()).spawn(watch)?;
        Ok(())
    }

    /// Takes the capabilities from the thread that waits for signals, too. Not before a change of user,
    /// for which all threads have to have the same.
    pub(crate) fn drop_privileges(&self) {
        self.unprivileged.store(true, Relaxed);
    }

    /// Set when the capture is to end.
    pub(crate) fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Whether the capture is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Whether the counts were asked for since the last call.
    pub(crate) fn take_report_request(&self) -> bool {
        self.counts.swap(false, Relaxed)
    }

    /// Whether another file was asked for since the last call.
    pub(crate) fn take_rotation(&self) -> bool {
        self.rotate.swap(false, Relaxed)
    }

    /// Whether a flush was asked for since the last call.
    pub(crate) fn take_flush(&self) -> bool {
        self.flush.swap(false, Relaxed)
    }
}

/// Whether the parent process has set `signal` to be ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
