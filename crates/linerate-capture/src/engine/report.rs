//! The report of a capture: at the end, on demand and live.

use std::path::PathBuf;

use linerate_flow::export::{ExportStatistics, RecordWriter};
use linerate_pcapfile::InterfaceDescription;
use serde::Serialize;

use crate::filter::FilterLocation;
use crate::sink::file::{FileSinkCounts, FileSinkReport, InterfaceOutcome};
use crate::source::OpenInterface;
use crate::split::SplitStatistics;
use crate::statistics::{DropCause, Drops, InterfaceCounters, QueueCounts};
use crate::{Error, Result};

/// The counts of a capture; serialises to the command's JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Packets that reached the sink.
    pub captured: u64,
    /// Packets that the filter accepted, lost ones included.
    pub received: u64,
    /// Packets lost, by cause; `total` sums them up (freezes are events and not in it).
    pub dropped: Drops,
    /// The source: `packet`, `xdp`, `tee` or `file`; several of them joined by `+`.
    pub source: String,
    /// The pages that the buffer actually has.
    pub pages: String,
    /// From the start to the last packet's reading.
    pub seconds: f64,
    /// Bytes on the wire of the captured packets.
    pub bytes: u64,
    /// Packets in files.
    pub written: u64,
    /// Files started.
    pub files: u64,
    /// Files deleted again: by `-b files:`, `--keep` and `--keep-free`.
    pub deleted_files: u64,
    /// Bytes in files.
    pub file_bytes: u64,
    /// The file written last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// The share of the writer's buffers that wait for the file.
    #[serde(skip)]
    pub writer_fill: Option<f32>,
    /// The filter and where it runs.
    pub filter: Option<FilterReport>,
    /// What was split, with `--split`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitStatistics>,
    /// What was metered, with `--flows`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<ExportStatistics>,
    /// What is missing of sockets and their processes, where those are looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<linerate_process::Statistics>,
    /// Processor time of the process in seconds.
    pub cpu: Cpu,
    /// The same counts, interface by interface.
    pub interfaces: Vec<InterfaceReport>,
}

/// Processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cpu {
    /// In user space, in seconds.
    pub user: f64,
    /// In the kernel on the process's behalf, in seconds.
    pub system: f64,
}

impl Cpu {
    /// What this process has used so far.
    pub fn now() -> Self {
        use nix::sys::resource::{UsageWho, getrusage};
        use nix::sys::time::TimeValLike;
        getrusage(UsageWho::RUSAGE_SELF).map_or_else(
            |_| Self::default(),
            |usage| Self {
                user: usage.user_time().num_microseconds() as f64 / 1e6,
                system: usage.system_time().num_microseconds() as f64 / 1e6,
            },
        )
    }
}

/// A filter and where it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FilterReport {
    /// The expression.
    pub expression: String,
    /// `kernel` or `user`.
    #[serde(rename = "in")]
    pub side: FilterLocation,
    /// Why there.
    pub reason: String,
}

impl FilterReport {
    pub(super) fn of(opened: &OpenInterface) -> Option<Self> {
        let filter = opened.filter.as_ref()?;
        let side =
            if opened.filter_in_user { FilterLocation::User } else { FilterLocation::Kernel };
        Some(Self {
            expression: filter.text().to_owned(),
            side,
            reason: opened.filter_reason.clone(),
        })
    }
}

/// The counts of one interface.
#[derive(Clone, Debug, Default, Serialize)]
pub struct InterfaceReport {
    /// Its name.
    pub name: String,
    /// The source.
    pub source: String,
    /// Why that source.
    pub reason: String,
    /// The pages of the buffer.
    pub pages: String,
    /// Readers.
    pub readers: usize,
    /// How the source runs, and why not in a better mode.
    pub notes: Vec<String>,
    /// Packets that reached the sink.
    pub captured: u64,
    /// Packets that the filter accepted.
    pub received: u64,
    /// Bytes on the wire of the captured packets.
    pub bytes: u64,
    /// Packets lost, by cause.
    pub dropped: Drops,
    /// The counts of each receive queue that had packets, where the source tells.
    pub queues: Vec<QueueCounts>,
    /// How full the buffer between kernel and reader was recently, 0 to 1.
    #[serde(skip)]
    pub fill: f32,
}

impl InterfaceReport {
    pub(super) fn of(opened: &OpenInterface) -> Self {
        Self {
            name: opened.label.clone(),
            source: opened.selection.kind.to_string(),
            reason: opened.selection.reason.clone(),
            pages: opened.pages.clone(),
            readers: opened.sources.len(),
            notes: opened.notes.clone(),
            ..Self::default()
        }
    }

    pub(super) fn update(&mut self, counters: &InterfaceCounters) {
        self.captured = counters.captured();
        self.received = counters.received();
        self.bytes = counters.bytes();
        self.dropped = counters.drops();
        self.queues = counters.queues();
        self.fill = counters.fill_level();
    }
}

impl Report {
    pub(super) fn new(drops: Drops, interfaces: Vec<InterfaceReport>) -> Self {
        let joined = |of: fn(&InterfaceReport) -> &str| {
            let mut words: Vec<&str> = interfaces.iter().map(of).collect();
            words.dedup();
            words.join("+")
        };
        let (source, pages) = (joined(|one| &one.source), joined(|one| &one.pages));
        let cpu = Cpu::now();
        Self { dropped: drops, source, pages, cpu, interfaces, ..Self::default() }
    }

    /// Sets the counts of the files.
    pub(super) fn set_files(&mut self, counts: &FileSinkCounts) {
        (self.written, self.files) = (counts.written, counts.files);
        (self.deleted_files, self.file_bytes) = (counts.deleted, counts.bytes);
    }

    /// Waits until all flow records are written, and takes their last counts. Returns what went wrong.
    pub(super) fn finish_flows(&mut self, record_writer: Option<RecordWriter>) -> Option<Error> {
        let (statistics, outcome) = record_writer?.finish();
        self.flows = Some(statistics);
        outcome.err().map(Error::Flow)
    }

    /// Takes the final counts of the writer into account: a packet that is not in the files was not
    /// captured.
    pub(super) fn settle(&mut self, writer: &FileSinkReport) {
        let missing = |outcome: &InterfaceOutcome| outcome.received - outcome.written;
        for (one, outcome) in self.interfaces.iter_mut().zip(&writer.interfaces) {
            one.captured = one.captured.saturating_sub(missing(outcome));
            one.bytes = one.bytes.saturating_sub(outcome.missing_bytes);
            one.dropped = with_unwritten(one.dropped, outcome.unwritten(), writer);
        }
        self.dropped = with_unwritten(self.dropped, writer.counts.unwritten, writer);
        self.set_files(&writer.counts);
        let outcomes = || writer.interfaces.iter();
        self.captured = self.captured.saturating_sub(outcomes().map(missing).sum());
        self.bytes = self.bytes.saturating_sub(outcomes().map(|one| one.missing_bytes).sum());
        self.cpu = Cpu::now();
    }
}

/// These losses with the packets that are not in the files, under their cause.
fn with_unwritten(mut drops: Drops, unwritten: u64, writer: &FileSinkReport) -> Drops {
    (drops[DropCause::Disk], drops[DropCause::PipeClosed]) = match writer.pipe_closed {
        true => (0, unwritten),
        false => (unwritten, drops[DropCause::PipeClosed]),
    };
    drops
}

/// The interfaces as a file describes them.
pub(super) fn descriptions(
    opened: &[OpenInterface],
    snaplen: u32,
) -> Result<Vec<InterfaceDescription>> {
    let describe = |one: &OpenInterface| {
        Ok(InterfaceDescription {
            name: Some(one.label.clone()),
            description: Some(&one.interface.kind)
                .filter(|kind| !kind.is_empty())
                .map(|kind| format!("{kind} device")),
            // What is missing in the file is said in the file.
            comment: (!one.warnings.is_empty()).then(|| one.warnings.join("\n")),
            filter: one.filter.as_ref().map(|filter| filter.text().to_owned()),
            linktype: one.linktype,
            snaplen,
            ..InterfaceDescription::default()
        })
    };
    opened.iter().map(describe).collect()
}
