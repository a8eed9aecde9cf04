//! Ctrl-C as an ordinary error: the stack unwinds, and destructors remove everything that was created.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Turns SIGINT, SIGTERM and SIGHUP of this process into the error of [`check`]. A second one of
/// them ends the process at once.
pub(crate) fn install() -> Result<()> {
    let flag = FLAG.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())
            .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
            .context("cannot handle signals")?;
    }
    Ok(())
}

/// What the signals set.
pub(crate) fn flag() -> &'static AtomicBool {
    FLAG.get_or_init(Arc::default)
}

/// Fails when a signal asked for the end.
pub(crate) fn check() -> Result<()> {
    if happened() {
        bail!("interrupted; everything that was set up has been removed");
    }
    Ok(())
}

/// Whether a signal asked for the end.
pub(crate) fn happened() -> bool {
    FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Sleeps until a signal asks for the end.
pub(crate) fn wait() {
    while !happened() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sleeps, unless a signal asks for the end.
pub(crate) fn sleep(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(20)));
    }
}

/// Waits until `condition` holds; fails when it does not within `limit`.
pub(crate) fn wait_until(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + limit;
    while !condition()? {
        if Instant::now() >= end {
            bail!("timed out after {} s waiting for {what}", limit.as_secs_f64());
        }
        sleep(Duration::from_millis(5))?;
    }
    Ok(())
}
