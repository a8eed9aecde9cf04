//! [`Worker`]: the thread of one queue.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linerate_net::cpu;
use linerate_ring::poll;
use linerate_ring::tun::Queue;
use rustix::event::{PollFd, PollFlags};

use crate::port::FramePort;
use crate::rx::Receiver;
use crate::statistics::{Drops, Statistics};
use crate::tx::{MIN_FREE_FRAMES, Transmitter};
use crate::{Error, Result};

/// How often the kernel's own counters are read.
const COUNTERS_INTERVAL: Duration = Duration::from_millis(200);

/// One queue of the device and its share of the interface.
pub(crate) struct Worker<P> {
    pub(crate) tap: Queue,
    pub(crate) port: P,
    pub(crate) receiver: Receiver,
    pub(crate) transmitter: Transmitter,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) shared: Arc<Mutex<Statistics>>,
    pub(crate) cpu: Option<usize>,
}

impl<P: FramePort> Worker<P> {
    /// Moves packets until the end is requested, or the device or interface is gone.
    pub(crate) fn run(mut self) -> Result<()> {
        if let Some(cpu) = self.cpu {
            cpu::pin(cpu).map_err(|source| Error::Cpu { cpu, source })?;
        }
        let mut statistics = Statistics::default();
        let result = self.work(&mut statistics);
        statistics.dropped.unresolved += self.transmitter.pending() as u64;
        self.publish(&statistics, self.port.drops());
        result
    }

    fn work(&mut self, statistics: &mut Statistics) -> Result<()> {
        let (mut drops, mut looked) = (self.port.drops(), Instant::now());
        while !self.stop.load(Relaxed) {
            let received = self.port.receive(&self.tap, &mut self.receiver, statistics)?;
            for reply in self.receiver.replies() {
                self.transmitter.reply(&reply, &mut self.port, statistics)?;
            }
            let transmitted = self.transmitter.transmit(&self.tap, &mut self.port, statistics)?;
            if looked.elapsed() >= COUNTERS_INTERVAL {
                (drops, looked) = (self.port.drops(), Instant::now());
            }
            // One uncontended lock a batch, for numbers that belong together.
            self.publish(statistics, drops);
            if !received && !transmitted.any {
                self.sleep(transmitted.sleep)?;
            }
        }
        // What the stack has handed over is on its way, as far as the interface takes it.
        self.port.flush().map(drop)
    }

    /// Sleeps until the device or the interface has something. It does not poll the device while the port has
    /// no room: the stack then queues.
    fn sleep(&mut self, time: Duration) -> Result<()> {
        let listen = self.port.room() >= MIN_FREE_FRAMES;
        let events = if listen { PollFlags::IN } else { PollFlags::empty() };
        // An allocation a sleep, which is dear enough for it not to count.
        let mut fds = vec![PollFd::new(&self.tap, events)];
        fds.extend(self.port.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        poll(&mut fds, time).map_err(|source| {
            let action = format!("wait for packets of {}", self.tap.interface());
            Error::Link { action, source }
        })?;
        let broken = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::ERR);
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

    fn publish(&self, statistics: &Statistics, kernel: Drops) {
        let mut all = *statistics;
        all.dropped += kernel;
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}
