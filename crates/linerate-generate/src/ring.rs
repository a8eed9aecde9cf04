//! The AF_PACKET and AF_XDP backends: frames built in user space and sent through a transmit ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use crate::config::Config;
use crate::counters::{Counters, SharedCounters};
use crate::frame_builder::FrameBuilder;
use crate::options::Backend;
use crate::transmit::TransmitQueue;
use crate::{Rate, Result, clock};

/// Frames between two system calls at full speed.
const BATCH: u64 = 64;

/// Frames closer than this, in nanoseconds, are sent together.
const MIN_GAP_NS: f64 = 100_000.0;

/// Sends all frames on this thread until all are sent or `stop` is set.
pub(crate) fn run(
    config: &Config,
    backend: Backend,
    stop: &AtomicBool,
    ready: &SyncSender<Result<Arc<dyn Counters>>>,
) -> Result<()> {
    let mut queue = match TransmitQueue::open(backend, &config.interface, config.sizes.max().into())
    {
        Ok(queue) => queue,
        Err(error) => {
            let _ = ready.send(Err(error));
            return Ok(());
        }
    };
    let counters = Arc::new(SharedCounters::default());
    let _ = ready.send(Ok(Arc::clone(&counters) as _));
    let stopping = || stop.load(Ordering::Relaxed);
    let mut frames = FrameBuilder::new(config);
    let (mut emitted, mut bytes) = (0_u64, 0_u64);
    let mut pacer = Pacer::new(config);
    let count = config.count.unwrap_or(u64::MAX);
    let start = clock::now();
    counters.first.store(start, Ordering::Relaxed);
    while emitted < count
        && clock::wait_until(start.saturating_add(pacer.due as u64), clock::SPIN_TIME_NS, stopping)
        && !stopping()
    {
        let horizon = pacer.horizon(clock::now() - start);
        let end = count.min(emitted + BATCH);
        while emitted < end && pacer.due <= horizon {
            let len = frames.next_len();
            if !queue.enqueue(len, stopping, |frame| frames.write(frame))? {
                break;
            }
            emitted += 1;
            bytes += len as u64;
            pacer.step(len);
        }
        queue.flush()?;
        counters.emitted.store(emitted, Ordering::Relaxed);
        counters.bytes.store(bytes, Ordering::Relaxed);
        counters.last.store(clock::now(), Ordering::Relaxed);
    }
    counters.refused.store(queue.finish()?, Ordering::Relaxed);
    Ok(())
}

/// When the next frame is due, in nanoseconds since the start.
struct Pacer {
    due: f64,
    per_frame: f64,
    per_byte: f64,
    /// How early a frame may go, because at a high rate a sleep would take longer than the gap.
    early: f64,
    max_catch_up: u64,
}

impl Pacer {
    fn new(config: &Config) -> Self {
        let (per_frame, per_byte) = match config.rate {
            Rate::Max => (0.0, 0.0),
            Rate::Packets(rate) => (1e9 / rate, 0.0),
            Rate::Bits(rate) => (0.0, 8e9 / rate),
        };
        let gap = per_frame + per_byte * config.sizes.mean();
        Self {
            due: 0.0,
            per_frame,
            per_byte,
            early: if gap < MIN_GAP_NS { MIN_GAP_NS } else { 0.0 },
            max_catch_up: config.max_catch_up(),
        }
    }

    /// Frames due until then are sent at once. A run that is too late does not catch up fully.
    fn horizon(&mut self, now: u64) -> f64 {
        if self.per_frame + self.per_byte == 0.0 {
            return f64::INFINITY;
        }
        self.due = self.due.max(now.saturating_sub(self.max_catch_up) as f64);
        now as f64 + self.early
    }

    fn step(&mut self, len: usize) {
        self.due += self.per_frame + self.per_byte * len as f64;
    }
}
