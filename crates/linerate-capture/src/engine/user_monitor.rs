//! [`UserMonitor`]: gives the frames of an interface back to the host when something begins to use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use linerate_net::change::{Changes, Group};
use linerate_net::packet_socket;
use linerate_ring::tee::Passer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::shared::Event;
use crate::interface::{Interface, InterfaceUser};
use crate::{Error, Result};

/// What the kernel reports of users of an interface.
const GROUPS: [Group; 5] =
    [Group::Link, Group::Ipv4Address, Group::Ipv4Route, Group::Ipv6Address, Group::Ipv6Route];

/// How often to look for packet sockets and for the end of the capture. The program notices packet sockets by itself; this is
/// for kernels where it cannot, and tells who it was.
pub(crate) const SOCKETS_INTERVAL: Duration = Duration::from_millis(50);

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
            let user = match watch(&name, &passer, changes, &stopped) {
                Ok(None) => return,
                Ok(Some(user)) => user,
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
fn watch(
    name: &str,
    passer: &Passer,
    mut changes: Changes,
    stop: &AtomicBool,
) -> Result<Option<String>> {
    // Something may have come between the selection and the subscription.
    let (mut changed, mut before) = (true, Vec::new());
    while !stop.load(Relaxed) {
        // The program passes frames on by itself when a socket comes, and says who only here.
        let passing = passer.is_passing();
        let sockets = packet_socket::all()?;
        let other_sockets = passing || sockets != before;
        if changed || other_sockets {
            let all = match other_sockets {
                true => Interface::all()?,
                false => Interface::all_without_socket_search()?,
            };
            let Ok(found) = Interface::find(&all, name) else { return Ok(None) };
            let mut users = found.clone().with_users()?.users;
            // The capture itself makes the interface promiscuous.
            users.retain(|user| *user != InterfaceUser::Promiscuous);
            if let Some(user) = users.first() {
                return Ok(Some(user.to_string()));
            }
            if passing {
                return Ok(Some("a packet socket was on it".to_owned()));
            }
            before = sockets;
        }
        changed = wait(&mut changes)?;
    }
    Ok(None)
}

/// Waits a while for a change; whether there was one.
fn wait(changes: &mut Changes) -> Result<bool> {
    let timeout = Timespec::try_from(SOCKETS_INTERVAL).unwrap_or_default();
    let ready = poll(&mut [PollFd::new(changes, PollFlags::IN)], Some(&timeout)).unwrap_or(0);
    let mut changed = false;
    if ready > 0 {
        changes.receive(|_| changed = true)?;
    }
    Ok(changed)
}
