//! [`Worker`]: the thread of one queue.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linerate_net::cpu;
use linerate_ring::tun::Queue;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::counts::{Counts, Drops};
use crate::down::{Down, LEAST_ROOM};
use crate::port::Port;
use crate::up::Up;
use crate::{Error, Result};

/// How long a thread sleeps at most: how soon it sees that it is to end.
const SLEEP: Duration = Duration::from_millis(100);

/// How long it sleeps while the interface does not take what was written.
const BUSY: Duration = Duration::from_millis(1);

/// How often the kernel's own counters are read.
const KERNEL_COUNTS: Duration = Duration::from_millis(200);

/// One queue of the device and its share of the interface.
pub(crate) struct Worker<P> {
    pub(crate) tap: Queue,
    pub(crate) port: P,
    pub(crate) up: Up,
    pub(crate) down: Down,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) shared: Arc<Mutex<Counts>>,
    pub(crate) cpu: Option<usize>,
}

impl<P: Port> Worker<P> {
    /// Moves packets until it is told to end, or something is gone.
    pub(crate) fn run(mut self) -> Result<()> {
        if let Some(cpu) = self.cpu {
            cpu::pin(cpu).map_err(|source| Error::Cpu { cpu, source })?;
        }
        let mut counts = Counts::default();
        let result = self.work(&mut counts);
        counts.dropped.unresolved += self.down.waiting() as u64;
        self.publish(&counts, self.port.drops());
        result
    }

    fn work(&mut self, counts: &mut Counts) -> Result<()> {
        let (mut drops, mut looked) = (self.port.drops(), Instant::now());
        while !self.stop.load(Relaxed) {
            let came = self.port.receive(&self.tap, &mut self.up, counts)?;
            for answer in self.up.answers() {
                self.down.answer(&answer, &mut self.port, counts)?;
            }
            let went = self.down.pump(&self.tap, &mut self.port, counts)?;
            if looked.elapsed() >= KERNEL_COUNTS {
                (drops, looked) = (self.port.drops(), Instant::now());
            }
            // One uncontended lock a batch, for numbers that belong together.
            self.publish(counts, drops);
            if !came && !went.any {
                self.sleep(went.sleep)?;
            }
        }
        // What the stack has handed over is on its way, as far as the interface takes it.
        self.port.flush().map(drop)
    }

    /// Sleeps until the device or the interface has something. The device is not listened to while the
    /// port has no room: the stack then queues, which is where waiting belongs.
    fn sleep(&mut self, time: Duration) -> Result<()> {
        let listen = self.port.room() >= LEAST_ROOM;
        let events = if listen { PollFlags::POLLIN } else { PollFlags::empty() };
        // An allocation a sleep, which is dear enough for it not to count.
        let mut fds = vec![PollFd::new(self.tap.as_fd(), events)];
        fds.extend(self.port.descriptors().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::ZERO);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(errno) => {
                let action = format!("wait for packets of {}", self.tap.interface());
                return Err(Error::Link { action, source: errno.into() });
            }
        }
        let broken =
            |fd: &PollFd<'_>| fd.revents().is_some_and(|got| got.contains(PollFlags::POLLERR));
        if broken(&fds[0]) {
            let name = self.tap.interface().to_owned();
            return Err(linerate_ring::Error::InterfaceGone(name).into());
        }
        if fds[1..].iter().any(broken) {
            drop(fds);
            self.port.note_error();
        }
        Ok(())
    }

    fn publish(&self, counts: &Counts, kernel: Drops) {
        let mut all = *counts;
        all.dropped += kernel;
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// What a pass down did.
pub(crate) struct Pumped {
    /// There was something.
    pub(crate) any: bool,
    /// How long to sleep if nothing else is to be done.
    pub(crate) sleep: Duration,
}

impl Pumped {
    pub(crate) fn new(any: bool, unsent: bool, up: bool) -> Self {
        Self { any, sleep: if unsent && up { BUSY } else { SLEEP } }
    }
}
