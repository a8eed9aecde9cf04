//! The counts of a receiver while it runs: the live line and `--stats`.

use std::fmt;

use indicatif::HumanCount;
use linerate_feed::RequestStatistics;
use linerate_udp::{Backend, Drops};
use serde::Serialize;

use crate::cli::progress::{Meter, Moment};
use crate::cli::stdio::noun;

/// The counts of one thread, or of all, while they run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Counts {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) calls: u64,
    /// `None` where they cannot be read.
    #[serde(skip)]
    pub(super) losses: Option<Drops>,
    pub(super) feed: Option<linerate_feed::Statistics>,
    pub(super) requests: Option<RequestStatistics>,
}

impl Counts {
    /// Those of the start.
    pub(super) fn none() -> Self {
        let losses = Some(Drops::default());
        Self { messages: 0, bytes: 0, calls: 0, losses, feed: None, requests: None }
    }
}

/// The counts of all threads, and where they come from.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    pub(super) backend: String,
    pub(super) counts: Counts,
}

#[derive(Debug, Serialize)]
pub(super) struct Lost {
    pub(super) total: u64,
    pub(super) socket_buffer: u64,
    pub(super) ring: u64,
    pub(super) checksum: u64,
    pub(super) malformed: u64,
    pub(super) other: u64,
    /// The socket counted joined datagrams, each of 1 to 64 messages.
    pub(super) at_least: bool,
}

impl Lost {
    pub(super) fn of(losses: Drops, backend: &str) -> Self {
        Self {
            total: losses.total(),
            socket_buffer: losses.socket_buffer,
            ring: losses.ring,
            checksum: losses.checksum,
            malformed: losses.malformed,
            other: losses.other,
            at_least: losses.socket_buffer > 0 && backend == Backend::Gro.name(),
        }
    }

    /// The total, or that it is unknown.
    pub(super) fn text(total: Option<u64>) -> String {
        total.map_or_else(|| "unknown losses".to_owned(), |total| format!("{total} lost"))
    }
}

/// What has come so far, with rates. The names are those of the report.
#[derive(Debug, Serialize)]
pub(super) struct ReceiveStats {
    #[serde(flatten)]
    moment: Moment,
    messages_per_second: f64,
    bits_per_second: f64,
    /// With `truncated`: `None` where they cannot be read.
    lost: Option<Lost>,
    truncated: Option<u64>,
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
            lost: counts.losses.map(|losses| Lost::of(losses, &backend)),
            truncated: counts.losses.map(|losses| losses.truncated),
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
        let lost = Lost::text(self.lost.as_ref().map(|lost| lost.total));
        write!(f, "{messages} {noun}, {rate}/s, {lost}")
    }
}
