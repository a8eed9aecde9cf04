//! [`Writer`]: the thread that writes records and commits their checkpoints.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use linerate_flow::outputs::{OutputStatistics, Outputs};

use super::checkpoints::Checkpoints;
use crate::table::flows::PendingRecord;

/// How often the thread checks whether a batch is complete.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The most records of a batch.
const MAX_RECORDS: usize = 1 << 16;
/// The time between two attempts to write a batch.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// The longest time that records wait for a batch, if there are only collectors.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// How long the end waits for collectors that make progress: well within the time that the service manager gives it.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end waits at least for collectors to take what is queued.
const MIN_COLLECTOR_TIMEOUT: Duration = Duration::from_secs(3);

/// What the thread shares.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The highest sequence number in a complete file.
    pub(super) saved: Arc<AtomicU64>,
    output: Mutex<OutputStatistics>,
    /// Until when records wait for collectors, since the end has begun.
    deadline: OnceLock<Instant>,
}

impl Shared {
    /// From now on a batch that cannot be written is not tried again, and collectors have a limited time.
    pub(super) fn end(&self) {
        self.deadline.get_or_init(|| Instant::now() + COLLECTOR_TIMEOUT);
    }

    fn is_ending(&self) -> bool {
        self.deadline.get().is_some()
    }

    /// How long records may still wait for collectors; `None` without a limit.
    fn time_left(&self) -> Option<Duration> {
        let deadline = self.deadline.get()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    pub(super) fn output(&self) -> OutputStatistics {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_output(&self, statistics: OutputStatistics) {
        *self.output.lock().unwrap_or_else(PoisonError::into_inner) = statistics;
    }
}

/// Writes records in batches.
pub(super) struct Writer {
    pub(super) outputs: Outputs,
    pub(super) checkpoints: Checkpoints,
    pub(super) max_age: Duration,
    pub(super) shared: Arc<Shared>,
}

impl Writer {
    /// Runs until all senders of the queue are dropped, and writes the remaining records.
    pub(super) fn run(mut self, queue: &Receiver<Vec<PendingRecord>>) {
        let max_age =
            if self.outputs.has_files() { self.max_age } else { MAX_WAIT.min(self.max_age) };
        let mut batch = Vec::new();
        let mut since = None;
        let mut retry: Option<Instant> = None;
        let mut is_over = false;
        while !is_over {
            let is_full = batch.len() >= MAX_RECORDS;
            if is_full {
                // New records wait in the queue.
                std::thread::sleep(POLL_INTERVAL.min(due_in(retry)));
                is_over = self.shared.is_ending();
            } else {
                match queue.recv_timeout(POLL_INTERVAL) {
                    Ok(records) => batch.extend(records),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => is_over = true,
                }
            }
            if !batch.is_empty() {
                since.get_or_insert_with(Instant::now);
            }
            let is_old = since.is_some_and(|since: Instant| since.elapsed() >= max_age);
            let is_complete = is_old || is_over || batch.len() >= MAX_RECORDS;
            if is_complete && !batch.is_empty() && due_in(retry).is_zero() {
                retry = self.write(&mut batch).err().map(|()| Instant::now() + RETRY_DELAY);
                since = since.filter(|_| retry.is_some());
            }
            self.outputs.take_warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
            self.shared.set_output(self.outputs.statistics());
        }
        batch.extend(queue.try_iter().flatten());
        if !batch.is_empty() && self.write(&mut batch).is_err() {
            tracing::error!(records = batch.len(), "flow records lost: they cannot be written");
        }
        let timeout = self.shared.time_left().unwrap_or(COLLECTOR_TIMEOUT);
        let (statistics, outcome) = self.outputs.finish(timeout.max(MIN_COLLECTOR_TIMEOUT));
        self.shared.set_output(statistics);
        if let Err(error) = outcome {
            tracing::error!(%error, "cannot complete the files of flow records");
        }
    }

    /// Writes a batch and commits its checkpoints. If that fails, the batch keeps its records.
    fn write(&mut self, batch: &mut Vec<PendingRecord>) -> Result<(), ()> {
        let number = self.checkpoints.committed() + 1;
        let records = batch.iter().map(|pending| &pending.record);
        if let Err(error) = self.outputs.seal(records.clone(), number) {
            tracing::warn!(%error, records = batch.len(), "cannot write flow records; they are tried again");
            return Err(());
        }
        for (slot, checkpoint) in batch.iter().filter_map(|pending| pending.checkpoint.as_ref()) {
            self.checkpoints.stage(*slot, checkpoint, number);
        }
        // The records are now in files even if this process is killed: the next daemon publishes them.
        self.checkpoints.commit(number);
        let may_wait = || self.shared.time_left().is_none_or(|left| !left.is_zero());
        if let Err(error) = self.outputs.publish(records, may_wait) {
            tracing::error!(%error, "cannot publish flow records: they stay in hidden files");
        }
        let saved = batch.iter().map(|pending| pending.sequence).max().unwrap_or_default();
        self.shared.saved.fetch_max(saved, Relaxed);
        batch.clear();
        Ok(())
    }
}

fn due_in(retry: Option<Instant>) -> Duration {
    retry.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
}
