//! Notifications to the service manager (sd_notify(3)). Without `NOTIFY_SOCKET` they do nothing.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

use crate::INTERVAL;

/// The connection to the service manager: systemd, or nobody.
#[derive(Debug)]
pub struct Manager {
    /// The interval of watchdog messages: half of `WatchdogSec=`, as sd_watchdog_enabled(3) advises.
    period: Option<Duration>,
    heard: Option<Instant>,
    /// When [`Manager::update`] told the status; `None` where nobody listens.
    told: Option<Instant>,
}

impl Manager {
    /// Reads whether this process has a watchdog.
    pub fn find() -> Self {
        Self {
            period: sd_notify::watchdog_enabled().map(|bound| bound / 2),
            heard: None,
            told: std::env::var_os("NOTIFY_SOCKET").map(|_| Instant::now()),
        }
    }

    /// The verb works from now on. The manager waits for this message, so its loss is logged as a warning.
    pub fn ready(&self, status: &str) {
        if let Err(error) = sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)]) {
            tracing::warn!(
                %error,
                "the service manager was not told that this service is ready (READY=1 to {}), and ends it after \
                 TimeoutStartSec= if its unit has Type=notify; restart the service once the socket can be written to",
                std::env::var_os("NOTIFY_SOCKET").unwrap_or_default().display()
            );
        }
    }

    /// The configuration is being reloaded; [`Manager::ready`] ends that.
    pub fn reloading(&self) {
        // `Type=notify-reload` uses the time to match READY=1 with its request.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(_) => tell(&[NotifyState::Reloading]),
        }
    }

    /// The line that `systemctl status` shows.
    pub fn status(&self, status: &str) {
        tell(&[NotifyState::Status(status)]);
    }

    /// Tells the status once in [`INTERVAL`], if anybody listens.
    pub fn update(&mut self, status: impl FnOnce() -> String) {
        if let Some(told) = &mut self.told
            && told.elapsed() >= INTERVAL
        {
            *told = Instant::now();
            tell(&[NotifyState::Status(&status())]);
        }
    }

    /// The service stops.
    pub fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// Sends a watchdog message if one is due: the run loop works.
    pub fn beat(&mut self) {
        let Some(period) = self.period else { return };
        if self.heard.is_none_or(|heard| heard.elapsed() >= period) {
            tell(&[NotifyState::Watchdog]);
            self.heard = Some(Instant::now());
        }
    }
}

/// A failed notification must not stop the work.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager was not told");
    }
}
