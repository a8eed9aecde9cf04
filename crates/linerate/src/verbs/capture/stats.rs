//! The counts of a capture while it runs: the live line, `--stats`, and what is served.

use std::fmt;
use std::io::IsTerminal;

use indicatif::{HumanBytes, HumanCount};
use linerate_capture::engine::Report;
use linerate_capture::statistics::QueueCounts;
use serde::Serialize;

use super::arguments::Arguments;
use crate::cli::json::{self, Schema};
use crate::cli::progress::{Meter, Moment, StatusLine};
use crate::cli::stdio::{noun, plural};

/// The source in the report of a file.
pub(super) const FILE_SOURCE: &str = "file";

/// Queues in the line, at most.
const MAX_QUEUES: usize = 4;

/// The report so far, with rates.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CaptureStats {
    #[serde(flatten)]
    moment: Moment,
    packets_per_second: f64,
    bits_per_second: f64,
    /// How full the fullest buffer between kernel and reader was, 0 to 1; a file has none.
    ring_fill: Option<f32>,
    /// The share of the writer's buffers that wait for the file, 0 to 1.
    writer_fill: Option<f32>,
    #[serde(flatten)]
    pub(super) report: Report,
}

impl CaptureStats {
    pub(super) fn of(report: Report, meter: &mut Meter<2>) -> Self {
        let (moment, [packets, bytes]) = meter.read([report.captured, report.bytes]);
        Self {
            moment,
            packets_per_second: packets,
            bits_per_second: 8.0 * bytes,
            ring_fill: (report.source != FILE_SOURCE)
                .then(|| report.interfaces.iter().map(|one| one.fill).fold(0.0, f32::max)),
            writer_fill: report.writer_fill,
            report,
        }
    }

    pub(super) fn to_json(&self) -> Result<String, String> {
        json::line(Schema::CaptureStats, self).map_err(|error| format!("{error:#}"))
    }
}

impl fmt::Display for CaptureStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { report, packets_per_second, ring_fill, writer_fill, .. } = self;
        let (captured, rate) =
            (HumanCount(report.captured), HumanCount(*packets_per_second as u64));
        if report.source == FILE_SOURCE {
            let read = HumanCount(report.received);
            let noun = noun(report.received, "packet");
            write!(f, "{read} {noun} read, {captured} captured, {rate}/s")?;
        } else {
            let lost = report.dropped;
            let noun = noun(report.captured, "packet");
            write!(f, "{captured} {noun}, {rate}/s, lost: {lost}")?;
            if let Some(fill) = ring_fill {
                write!(f, ", ring {:.0}% full", fill * 100.0)?;
            }
            for one in report.interfaces.iter().filter(|one| one.queues.len() > 1) {
                write!(f, ", queues {}", queues(&one.queues, MAX_QUEUES))?;
            }
        }
        if let Some(fill) = writer_fill {
            let (bytes, files, full) = (HumanBytes(report.file_bytes), report.files, fill * 100.0);
            let files = plural(files, "file");
            write!(f, ", {bytes} in {files}, writer {full:.0}% full")?;
        }
        Ok(())
    }
}

/// The line of a capture.
pub(super) struct Line {
    pub(super) status: StatusLine,
    meter: Meter<2>,
}

impl Line {
    /// A line, unless packets are printed on the same terminal: one that changes would overwrite them.
    pub(super) fn new(arguments: &Arguments) -> Option<Self> {
        let same_terminal = arguments.json || std::io::stdout().is_terminal();
        let lines = arguments.write.is_none() && arguments.flows.is_empty() && !arguments.discard;
        let printed = (lines || arguments.print) && same_terminal;
        let quiet = arguments.quiet || printed;
        let status = StatusLine::new(arguments.stats, arguments.json, quiet)?;
        Some(Self { status, meter: Meter::start() })
    }

    pub(super) fn update(&mut self, report: impl FnOnce() -> Report) {
        if self.status.is_due() {
            let stats = CaptureStats::of(report(), &mut self.meter);
            self.status.show(Schema::CaptureStats, &stats);
        }
    }
}

/// What each queue received and lost, of the `most` that received most.
pub(super) fn queues(queues: &[QueueCounts], most: usize) -> String {
    let mut shown: Vec<_> = queues.iter().collect();
    shown.sort_by_key(|one| std::cmp::Reverse(one.received));
    shown.truncate(most);
    shown.sort_by_key(|one| one.queue);
    let one = |queue: &&QueueCounts| match queue.drops.total() {
        0 => format!("{}: {}", queue.queue, HumanCount(queue.received)),
        lost => format!("{}: {} ({lost} lost)", queue.queue, HumanCount(queue.received)),
    };
    let text = shown.iter().map(one).collect::<Vec<_>>().join(", ");
    if shown.len() < queues.len() { format!("{text}, ... of {}", queues.len()) } else { text }
}
