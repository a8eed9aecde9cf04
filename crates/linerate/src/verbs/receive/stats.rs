//! The counts of a receiver while it runs: the live line and `--stats`.

use crate::cli::stdio::noun;
use std::fmt;

use indicatif::HumanCount;
use linerate_feed::{RequestStatistics, Statistics};
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
    messages: u64,
    bytes: u64,
    lost: Lost,
    truncated: u64,
    backend: String,
    calls: u64,
    feed: Option<Statistics>,
    requests: Option<RequestStatistics>,
}

impl ReceiveStats {
    pub(super) fn of(progress: Progress, meter: &mut Meter<2>) -> Self {
        let Progress { backend, counts } = progress;
        let Counts { messages, bytes, calls, losses, feed, requests } = counts;
        let (moment, [message_rate, byte_rate]) = meter.read([messages, bytes]);
        Self {
            moment,
            messages_per_second: message_rate,
            bits_per_second: 8.0 * byte_rate,
            messages,
            bytes,
            lost: Lost::of(losses, &backend),
            truncated: losses.truncated,
            backend,
            calls,
            feed,
            requests,
        }
    }
}

impl fmt::Display for ReceiveStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (messages, rate) =
            (HumanCount(self.messages), HumanCount(self.messages_per_second as u64));
        let noun = noun(self.messages, "message");
        write!(f, "{messages} {noun}, {rate}/s, {} lost", self.lost.total)
    }
}
