//! The counts of a receiver while it runs: the live line and `--stats`.

use crate::cli::stdio::noun;
use std::fmt;

use indicatif::HumanCount;
use serde::Serialize;

use super::report::Lost;
use super::worker::{Counts, Progress};
use crate::cli::progress::{Meter, Moment};

/// What has come so far, with rates. The names are those of the report.
#[derive(Debug, Serialize)]
pub(super) struct ReceiveStats {
    #[serde(flatten)]
    moment: Moment,
    messages_per_second: f64,
    bits_per_second: f64,
    lost: Lost,
    truncated: u64,
    backend: String,
    #[serde(flatten)]
    counts: Counts,
}

impl ReceiveStats {
    pub(super) fn of(Progress { backend, counts }: Progress, meter: &mut Meter<2>) -> Self {
        let (moment, [messages, bytes]) = meter.read([counts.messages, counts.bytes]);
        Self {
            moment,
            messages_per_second: messages,
            bits_per_second: 8.0 * bytes,
            lost: Lost::of(counts.losses, &backend),
            truncated: counts.losses.truncated,
            backend,
            counts,
        }
    }
}

impl fmt::Display for ReceiveStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.counts.messages;
        let (messages, rate) = (HumanCount(count), HumanCount(self.messages_per_second as u64));
        let noun = noun(count, "message");
        write!(f, "{messages} {noun}, {rate}/s, {} lost", self.lost.total)
    }
}
