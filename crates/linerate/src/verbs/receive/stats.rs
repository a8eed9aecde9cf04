//! The counts of a receiver while it runs: the live line and `--stats`.

use std::fmt;

use indicatif::HumanCount;
use linerate_feed::RequestStatistics;
use linerate_udp::{Backend, Drops};
use serde::Serialize;

use crate::cli::progress::{Meter, Moment};
use crate::cli::stdio::noun;

/// The counts of one thread, or of all, while they run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Counts {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) calls: u64,
    #[serde(skip)]
    pub(super) losses: Drops,
    pub(super) feed: Option<linerate_feed::Statistics>,
    pub(super) requests: Option<RequestStatistics>,
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
}

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
