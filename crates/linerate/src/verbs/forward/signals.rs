//! The signals that `run` answers to.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use linerate_forward::runtime::daemon::Event;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag::register_conditional_shutdown;
use signal_hook::iterator::Signals;

/// Time that a stopping daemon gets before the next signal ends it at once.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Takes them from now on and sends what they ask for. SIGHUP reads the file again where there is one
/// (`has_file`), and else ends: the terminal is gone.
pub(super) fn register(events: Sender<Event>, has_file: bool) -> Result<()> {
    let context = "cannot take signals";
    let insist: Arc<AtomicBool> = Arc::default();
    for signal in [SIGINT, SIGTERM] {
        register_conditional_shutdown(signal, 128 + signal, Arc::clone(&insist))
            .context(context)?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2]).context(context)?;
    let forward = move || {
        for signal in signals.forever() {
            let event = match signal {
                SIGUSR1 => Event::Report,
                // What `linerate forward detach` sends.
                SIGUSR2 => Event::Detach,
                SIGHUP if has_file => Event::Reload,
                _ => Event::Stop,
            };
            let is_end = matches!(event, Event::Stop | Event::Detach);
            // Nobody listens once the daemon is over.
            if events.send(event).is_err() {
                return;
            }
            if is_end {
                let insist = Arc::clone(&insist);
                thread::spawn(move || {
                    thread::sleep(STOP_TIMEOUT);
                    insist.store(true, std::sync::atomic::Ordering::Relaxed);
                });
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(forward).context(context)?;
    Ok(())
}
