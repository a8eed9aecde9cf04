//! [`Worker`]: the thread of one queue.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linerate_net::cpu;
use linerate_ring::poll;
use rustix::event::{PollFd, PollFlags};

use crate::device::DeviceQueue;
use crate::port::FramePort;
use crate::rx::Receiver;
use crate::statistics::{Drops, Statistics};
use crate::tx::{MIN_FREE_FRAMES, Transmitter};
use crate::{Error, Result};

/// How often the kernel's own counters are read.
const COUNTERS_INTERVAL: Duration = Duration::from_millis(200);

/// One queue of the device and its share of the interface.
pub(crate) struct Worker<P> {
    pub(crate) tap: DeviceQueue,
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
            let received = !self.tap.has_backlog()
                && self.port.receive(&self.tap, &mut self.receiver, statistics)?;
            for reply in self.receiver.replies() {
                self.transmitter.reply(&reply, &mut self.port, statistics)?;
            }
            let transmitted = self.transmitter.transmit(&self.tap, &mut self.port, statistics)?;
            self.tap.flush(&mut statistics.dropped);
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
        let Some(events) = self.tap.arm(listen) else { return Ok(()) };
        let is_full = self.tap.has_backlog();
        let is_kernel = matches!(self.tap, DeviceQueue::Kernel(_));
        let port = &mut self.port;
        self.tap
            .with_descriptor(|tap| {
                // An allocation a sleep, which is dear enough for it not to count.
                let mut fds: Vec<_> = port
                    .descriptors()
                    .filter(|_| !is_full)
                    .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                    .collect();
                // The end of a socket's program would end each wait at once.
                if is_kernel || !events.is_empty() {
                    fds.push(PollFd::from_borrowed_fd(tap, events));
                }
                poll(&mut fds, time)?;
                let broken = |fd: &PollFd<'_>| fd.revents().contains(PollFlags::ERR);
                let is_gone = is_kernel && fds.pop().is_some_and(|tap| broken(&tap));
                let is_port = fds.iter().any(broken);
                drop(fds);
                if is_port {
                    port.note_error();
                }
                Ok(is_gone)
            })
            .map_err(|source: io::Error| Error::Link {
                action: format!("wait for packets of {}", self.tap.name()),
                source,
            })
            .and_then(|is_gone| match is_gone {
                true => Err(linerate_ring::Error::InterfaceGone(self.tap.name().to_owned()).into()),
                false => Ok(()),
            })
    }

    fn publish(&self, statistics: &Statistics, kernel: Drops) {
        let mut all = *statistics;
        all.dropped += kernel;
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}
