//! [`Batch`]: records that wait to be written and committed together.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use linerate_flow::outputs::Outputs;
use linerate_flow::writer::{Backlog, End};

use super::checkpoints::Checkpoints;
use crate::table::flows::PendingRecord;

/// How often the thread checks whether a batch is complete.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The most records of a batch.
const MAX_RECORDS: usize = 1 << 16;
/// The time between two attempts to write a batch.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The records of a batch, whose checkpoints are committed when the records are in files.
pub(super) struct Batch {
    pub(super) records: Vec<PendingRecord>,
    pub(super) checkpoints: Checkpoints,
    /// How long a record waits for others.
    pub(super) max_age: Duration,
    /// When the oldest record came.
    pub(super) since: Option<Instant>,
    /// When the next attempt is due, after one that failed.
    pub(super) retry: Option<Instant>,
    /// The highest sequence number in a complete file.
    pub(super) saved: Arc<AtomicU64>,
}

impl Backlog for Batch {
    type Message = Vec<PendingRecord>;

    fn add(&mut self, records: Vec<PendingRecord>) {
        self.records.extend(records);
        self.since.get_or_insert_with(Instant::now);
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn is_full(&self) -> bool {
        self.records.len() >= MAX_RECORDS
    }

    fn interval(&self) -> Duration {
        POLL_INTERVAL
    }

    /// A batch that cannot be written keeps its records, and is written later. The last one is lost.
    fn write(&mut self, outputs: &mut Outputs, end: &End, has_ended: bool) {
        let is_old = self.since.is_some_and(|since| since.elapsed() >= self.max_age);
        let is_due = self.retry.is_none_or(|at| Instant::now() >= at);
        let may_wait_longer = !(self.is_full() || is_old) || !is_due;
        if self.is_empty() || (may_wait_longer && !has_ended) {
            return;
        }
        let records = self.records.len();
        match self.commit(outputs, end) {
            Ok(()) => self.retry = None,
            Err(error) if has_ended => {
                tracing::error!(%error, records, "flow records lost: they cannot be written");
            }
            Err(error) => {
                tracing::warn!(%error, records, "cannot write flow records; they are tried again");
                self.retry = Some(Instant::now() + RETRY_DELAY);
                return;
            }
        }
        self.records.clear();
        self.since = None;
    }
}

impl Batch {
    /// Writes the batch and commits its checkpoints.
    fn commit(&mut self, outputs: &mut Outputs, end: &End) -> linerate_flow::Result<()> {
        let number = self.checkpoints.committed() + 1;
        let records = self.records.iter().map(|pending| &pending.record);
        outputs.seal(records.clone(), number)?;
        let checkpoints = self.records.iter().filter_map(|pending| pending.checkpoint.as_ref());
        checkpoints
            .for_each(|(slot, checkpoint)| self.checkpoints.stage(*slot, checkpoint, number));
        // The records are now in files even if this process is killed: the next daemon publishes them.
        self.checkpoints.commit(number);
        if let Err(error) = outputs.publish(records, || !end.is_over()) {
            tracing::error!(%error, "cannot publish flow records: they stay in hidden files");
        }
        let saved = self.records.iter().map(|pending| pending.sequence).max().unwrap_or_default();
        self.saved.fetch_max(saved, Relaxed);
        Ok(())
    }
}
