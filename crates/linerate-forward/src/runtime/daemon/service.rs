//! What the service manager is told, where there is one (sd_notify(3)). Without `NOTIFY_SOCKET` all of it
//! does nothing.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The connection to the service manager.
#[derive(Debug)]
pub(super) struct Service {
    /// How often it wants to hear from us: half of `WatchdogSec=`, as sd_watchdog_enabled(3) advises.
    period: Option<Duration>,
    heard: Option<Instant>,
}

impl Service {
    /// Looks for a watchdog that was set on this process.
    pub(super) fn find() -> Self {
        Self { period: sd_notify::watchdog_enabled().map(|bound| bound / 2), heard: None }
    }

    /// Sessions are forwarded from now on.
    pub(super) fn ready(&self, status: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The configuration is read again; [`Service::ready`] says when that is over.
    pub(super) fn reloading(&self) {
        // `Type=notify-reload` tells by the time whether READY=1 is the answer to its own request.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(_) => tell(&[NotifyState::Reloading]),
        }
    }

    /// The line that `systemctl status` shows.
    pub(super) fn status(&self, status: &str) {
        tell(&[NotifyState::Status(status)]);
    }

    /// The end has begun.
    pub(super) fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Says that the run loop goes round, if it is time to.
    pub(super) fn beat(&mut self) {
        let Some(period) = self.period else { return };
        if self.heard.is_none_or(|heard| heard.elapsed() >= period) {
            tell(&[NotifyState::Watchdog]);
            self.heard = Some(Instant::now());
        }
    }
}

/// A service manager that does not listen is no reason to stop forwarding.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager was not told");
    }
}
