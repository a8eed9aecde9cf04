//! [`UserMonitor`]: gives the frames of an interface back to the host when something begins to use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_net::change::{Changes, Group};
use linerate_ring::tee::Passer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::shared::Event;
use crate::interface::{Interface, InterfaceUser};
use crate::{Error, Result};

/// What the kernel reports of users of an interface.
const GROUPS: [Group; 5] =
    [Group::Link, Group::Ipv4Address, Group::Ipv4Route, Group::Ipv6Address, Group::Ipv6Route];

/// How often to look for packet sockets, which the kernel does not report, and for the end of the capture.
const SOCKETS_INTERVAL: Duration = Duration::from_millis(500);
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Watches an interface that `auto` takes frames of. `auto` found no user; the first one that comes gets the
/// frames, and the capture gets copies from then on.
pub(super) struct UserMonitor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl UserMonitor {
    /// Watches the interface of the first name from now on; events have the second.
    ///
    /// # Errors
    ///
    /// [`Error::Thread`], and [`Error::Net`] without notifications of the kernel.
    pub(super) fn start(
        (name, label): (String, String),
        passer: Passer,
        events: Sender<Event>,
    ) -> Result<Self> {
        let changes = Changes::subscribe(&GROUPS)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let watch = move || {
            crate::privilege::drop_all();
            // Without knowing whether there is a user there may be one.
            let user = match watch(&name, changes, &stopped) {
                Ok(None) => return,
                Ok(Some(user)) => user.to_string(),
                Err(error) => error.to_string(),
            };
            passer.pass();
            let _ = events.send(Event::Passes { name: label, user });
        };
        let thread = std::thread::Builder::new()
            .name("user-monitor".into())
            .spawn(watch)
            .map_err(|source| Error::Thread { source })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for UserMonitor {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The first user of the interface; `None` if `stop` is set or the interface is removed before.
fn watch(name: &str, mut changes: Changes, stop: &AtomicBool) -> Result<Option<InterfaceUser>> {
    let mut sockets_at = Instant::now();
    // Something may have come between the selection and the subscription.
    let mut changed = true;
    while !stop.load(Relaxed) {
        let look_for_sockets = sockets_at.elapsed() >= SOCKETS_INTERVAL;
        if changed || look_for_sockets {
            let all = match look_for_sockets {
                true => Interface::all()?,
                false => Interface::all_without_socket_search()?,
            };
            let Ok(found) = Interface::find(&all, name) else { return Ok(None) };
            let users = found.clone().with_users()?.users;
            // The capture itself makes the interface promiscuous.
            if let Some(user) = users.into_iter().find(|user| *user != InterfaceUser::Promiscuous) {
                return Ok(Some(user));
            }
            if look_for_sockets {
                sockets_at = Instant::now();
            }
        }
        changed = wait(&mut changes)?;
    }
    Ok(None)
}

/// Waits a while for a change; whether there was one.
fn wait(changes: &mut Changes) -> Result<bool> {
    let timeout = Timespec::try_from(STOP_INTERVAL).unwrap_or_default();
    let ready = poll(&mut [PollFd::new(changes, PollFlags::IN)], Some(&timeout)).unwrap_or(0);
    let mut changed = false;
    if ready > 0 {
        changes.receive(|_| changed = true)?;
    }
    Ok(changed)
}
