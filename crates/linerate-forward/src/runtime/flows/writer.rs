//! [`Writer`]: the thread that writes records and commits their marks.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use linerate_flow::outputs::{OutputStatistics, Outputs};

use super::marks::Marks;
use crate::table::flows::FlowReport;

/// How often it looks whether a batch is complete.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The most records of a batch.
const MAX_RECORDS: usize = 1 << 16;
/// After a batch could not be written, it is tried again so much later.
const RETRY: Duration = Duration::from_secs(5);
/// The longest time that records wait where there is no file to fill.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// What the thread shares.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The highest number of a report that is in a whole file.
    pub(super) saved: Arc<AtomicU64>,
    output: Mutex<OutputStatistics>,
    is_ending: AtomicBool,
}

impl Shared {
    /// What cannot be written now is not tried again.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Relaxed);
    }

    pub(super) fn output(&self) -> OutputStatistics {
        self.output.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_output(&self, statistics: OutputStatistics) {
        *self.output.lock().unwrap_or_else(PoisonError::into_inner) = statistics;
    }
}

/// Writes reports.
pub(super) struct Writer {
    pub(super) outputs: Outputs,
    pub(super) marks: Marks,
    pub(super) max_age: Duration,
    pub(super) shared: Arc<Shared>,
}

impl Writer {
    /// Runs until nobody sends reports any more, and writes the rest.
    pub(super) fn run(mut self, reports: &Receiver<Vec<FlowReport>>) {
        let max_age =
            if self.outputs.has_files() { self.max_age } else { MAX_WAIT.min(self.max_age) };
        let mut batch = Vec::new();
        let mut since = None;
        let mut retry: Option<Instant> = None;
        let mut is_over = false;
        while !is_over {
            let is_full = batch.len() >= MAX_RECORDS;
            if is_full {
                // What comes meanwhile waits in the queue.
                std::thread::sleep(POLL_INTERVAL.min(due_in(retry)));
                is_over = self.shared.is_ending.load(Relaxed);
            } else {
                match reports.recv_timeout(POLL_INTERVAL) {
                    Ok(reports) => batch.extend(reports),
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
                retry = self.write(&mut batch).err().map(|()| Instant::now() + RETRY);
                since = since.filter(|_| retry.is_some());
            }
            self.shared.set_output(self.outputs.statistics());
        }
        batch.extend(reports.try_iter().flatten());
        if !batch.is_empty() && self.write(&mut batch).is_err() {
            tracing::error!(records = batch.len(), "flow records lost: they cannot be written");
        }
        let (statistics, outcome) = self.outputs.finish();
        self.shared.set_output(statistics);
        if let Err(error) = outcome {
            tracing::error!(%error, "flow records");
        }
    }

    /// Writes a batch and commits its marks. It stays if that fails.
    fn write(&mut self, batch: &mut Vec<FlowReport>) -> Result<(), ()> {
        let number = self.marks.committed() + 1;
        let records = batch.iter().map(|report| &report.record);
        if let Err(error) = self.outputs.seal(records.clone(), number) {
            tracing::warn!(%error, records = batch.len(), "flow records wait");
            return Err(());
        }
        for (slot, mark) in batch.iter().filter_map(|report| report.mark.as_ref()) {
            self.marks.stage(*slot, mark, number);
        }
        // From here on the records are in files, also if this process is killed: the next one publishes them.
        self.marks.commit(number);
        if let Err(error) = self.outputs.publish(records) {
            tracing::error!(%error, "flow records are in hidden files");
        }
        let saved = batch.iter().map(|report| report.number).max().unwrap_or_default();
        self.shared.saved.fetch_max(saved, Relaxed);
        batch.clear();
        Ok(())
    }
}

fn due_in(retry: Option<Instant>) -> Duration {
    retry.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()))
}
