//! The AF_PACKET and AF_XDP back ends: frames built in user space and sent through a transmit ring.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use crate::counters::{Counters, Tally};
use crate::frames::Frames;
use crate::outlet::Outlet;
use crate::plan::{Backend, Plan};
use crate::{Rate, Result, clock};

/// Frames between two system calls at full speed.
const BATCH: u64 = 64;

/// Frames closer than this, in nanoseconds, are sent together.
const STEP: f64 = 100_000.0;

/// How far a paced run may fall behind and still catch up, in nanoseconds.
const SLACK: u64 = 10_000_000;

/// Sends the frames of the plan on this thread until all are sent or `stop` is set.
pub(crate) fn run(
    plan: &Plan,
    backend: Backend,
    stop: &AtomicBool,
    ready: &SyncSender<Result<Counters>>,
) -> Result<()> {
    let mut outlet = match Outlet::open(backend, &plan.interface, plan.sizes.max().into()) {
        Ok(outlet) => outlet,
        Err(error) => {
            let _ = ready.send(Err(error));
            return Ok(());
        }
    };
    let tally = Arc::new(Tally::default());
    let _ = ready.send(Ok(Counters::Own(Arc::clone(&tally))));
    let stopping = || stop.load(Ordering::Relaxed);
    let mut frames = Frames::of(plan);
    let (mut emitted, mut bytes) = (0_u64, 0_u64);
    let mut pace = Pace::of(plan);
    let count = plan.count.unwrap_or(u64::MAX);
    let start = clock::now();
    tally.first.store(start, Ordering::Relaxed);
    while emitted < count && clock::wait_until(start + pace.due as u64, stopping) && !stopping() {
        let horizon = pace.horizon(clock::now() - start);
        let end = count.min(emitted + BATCH);
        while emitted < end && pace.due <= horizon {
            let len = frames.next_len();
            if !outlet.put(len, stopping, |frame| frames.write(frame))? {
                break;
            }
            emitted += 1;
            bytes += len as u64;
            pace.step(len);
        }
        outlet.flush()?;
        tally.emitted.store(emitted, Ordering::Relaxed);
        tally.bytes.store(bytes, Ordering::Relaxed);
        tally.last.store(clock::now(), Ordering::Relaxed);
    }
    tally.refused.store(outlet.finish()?, Ordering::Relaxed);
    Ok(())
}

/// When the next frame is due, in nanoseconds since the start.
struct Pace {
    due: f64,
    per_frame: f64,
    per_byte: f64,
    /// How early a frame may go, because at a high rate a sleep would take longer than the gap.
    early: f64,
}

impl Pace {
    fn of(plan: &Plan) -> Self {
        let (per_frame, per_byte) = match plan.rate {
            Rate::Max => (0.0, 0.0),
            Rate::Packets(rate) => (1e9 / rate, 0.0),
            Rate::Bits(rate) => (0.0, 8e9 / rate),
        };
        let gap = per_frame + per_byte * plan.sizes.mean();
        Self { due: 0.0, per_frame, per_byte, early: if gap < STEP { STEP } else { 0.0 } }
    }

    /// Frames due until then go at once. Forgets what is too long ago to make up for.
    fn horizon(&mut self, now: u64) -> f64 {
        if self.per_frame + self.per_byte == 0.0 {
            return f64::INFINITY;
        }
        self.due = self.due.max(now.saturating_sub(SLACK) as f64);
        now as f64 + self.early
    }

    fn step(&mut self, len: usize) {
        self.due += self.per_frame + self.per_byte * len as f64;
    }
}
