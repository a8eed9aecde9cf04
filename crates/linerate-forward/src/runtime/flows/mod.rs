//! Flow records of an instance, from its sessions and from connection tracking.
//!
//! The ager makes records of sessions (`crate::table::flows`), a thread makes records of NAT events, and another thread
//! writes both. Neither the ager nor the reader of events waits for the disk or a collector: records wait in a bounded
//! queue, and ended sessions wait in the table.

mod batch;
mod checkpoints;
mod nat;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use linerate_flow::file::Retention;
use linerate_flow::outputs::{Destination, OutputOptions, OutputStatistics};
use linerate_flow::schema::Groups;
use linerate_flow::writer::Writer;

use crate::config::{Config, Lifetime};
use crate::runtime::pins::{Lock, Pins};
use crate::table::Table;
use crate::table::ageing::Ageing;
use crate::table::clock::Clock;
use crate::table::flows::{PendingRecord, SessionMeter, SessionMeterStatistics};
use crate::{Error, Result};
use batch::Batch;
use checkpoints::Checkpoints;
use nat::NatMonitor;

/// Batches of records in the queue.
const QUEUE_BATCHES: usize = 64;
/// How long the end waits for room in the queue.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time that records wait for a batch, if there are only collectors.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// How long the end waits for collectors that make progress: well within the time that the service manager gives it.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);

/// The counts of flow records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowStatistics {
    /// The records of sessions.
    pub sessions: SessionMeterStatistics,
    /// Records of NAT events.
    pub nat_events: u64,
    /// NAT events that were lost, because records could not be written.
    pub nat_events_lost: u64,
    /// How often the kernel dropped NAT events, because they were read too slowly.
    pub nat_event_overruns: u64,
    /// What was written to files and sent to collectors.
    pub output: OutputStatistics,
}

/// The threads that make and write flow records.
#[derive(Debug)]
pub(super) struct Flows {
    nat: Option<NatMonitor>,
    writer: Writer<Vec<PendingRecord>>,
}

impl Flows {
    /// Starts the threads, and gives `ageing` a meter, if flow records are configured. `has_lost_sessions` says that the
    /// table is not the one of the previous daemon.
    pub(super) fn start(
        config: &Config,
        (pins, lock): (&Pins, &Lock),
        has_lost_sessions: bool,
        table: &Table,
        ageing: &mut Ageing,
        clock: Clock,
    ) -> Result<Option<Self>> {
        let adopted = Checkpoints::adopt(pins, table.slots())?;
        if let Some(adopted) = adopted.as_ref().filter(|_| has_lost_sessions) {
            adopted.clear();
        }
        if config.flows.is_empty() {
            // A later daemon may make records again. The sessions of slots that are freed until then are none of them.
            if let Some(adopted) = adopted {
                ageing.set_free_listener(Box::new(adopted));
            }
            return Ok(None);
        }
        let checkpoints = match adopted {
            Some(adopted) => adopted,
            None => Checkpoints::create(pins, lock, table.slots())?,
        };
        let options = OutputOptions {
            destinations: config.flows.clone(),
            sensor: config.sensor.clone(),
            group: config.group.as_deref().map(str::parse).transpose().map_err(Error::Invalid)?,
            max_age: config.flow_file_time,
            retention: retention(config)?,
            groups: Groups::default(),
            sealed: Some(checkpoints.committed()),
        };
        let has_files = config.flows.iter().any(|one| matches!(one, Destination::Folder(_)));
        let max_wait = if has_files { Duration::MAX } else { MAX_WAIT };
        let (saved, stored) = (Arc::<AtomicU64>::default(), checkpoints.load());
        let checkpoint_bytes = checkpoints.bytes();
        let batch = Batch {
            records: Vec::new(),
            checkpoints,
            max_age: config.flow_file_time.min(max_wait),
            since: None,
            retry: None,
            saved: Arc::clone(&saved),
        };
        let warn = |warning: &str| tracing::warn!("{warning}");
        let writer = Writer::start(&options, batch, QUEUE_BATCHES, || (), warn)?;
        if writer.statistics().files.interruptions > 0 {
            tracing::warn!(
                "the previous daemon was interrupted: NAT events that it had not written are missing, records of \
                 sessions are complete"
            );
        }
        tracing::info!(
            memory_mib = (checkpoint_bytes + table.slots() * SessionMeter::BYTES_PER_SLOT) >> 20,
            "flow records enabled"
        );
        ageing.set_meter(SessionMeter::new(
            stored,
            writer.queue(),
            saved,
            config.active_timeout,
            table.decoder(clock),
        ));
        let nat = NatMonitor::start(writer.queue())
            .inspect_err(|error| tracing::warn!(%error, "NAT events unavailable"))
            .ok();
        Ok(Some(Self { nat, writer }))
    }

    /// The counts, with those of the ager's meter.
    pub(super) fn statistics(&self, sessions: SessionMeterStatistics) -> FlowStatistics {
        let nat = self.nat.as_ref().map(|nat| &nat.counters);
        FlowStatistics {
            sessions,
            nat_events: nat.map_or(0, |nat| nat.events.load(Relaxed)),
            nat_events_lost: nat.map_or(0, |nat| nat.lost.load(Relaxed)),
            nat_event_overruns: nat.map_or(0, |nat| nat.overruns.load(Relaxed)),
            output: self.writer.statistics(),
        }
    }

    /// Writes the remaining records; with a last record of `all` sessions when the instance is detached.
    pub(super) fn finish(self, ageing: &mut Ageing, all: bool) {
        let Self { nat, writer } = self;
        let mut waited = Duration::ZERO;
        let pause = Duration::from_millis(10);
        let is_room = || {
            std::thread::sleep(pause);
            waited += pause;
            waited < DRAIN_TIMEOUT
        };
        let counts = ageing.finish_meter(all, is_room).unwrap_or_default();
        drop(nat);
        writer.end().begin(COLLECTOR_TIMEOUT);
        let (output, outcome) = writer.finish();
        if let Err(error) = outcome {
            tracing::error!(%error, "cannot complete the files of flow records");
        }
        let (sessions, written) = (counts.records, output.files.records);
        tracing::info!(sessions, written, "flow records ended");
    }
}

/// Which files of records are deleted.
fn retention(config: &Config) -> Result<Retention> {
    let keep = match config.flows_keep {
        Lifetime::Off => None,
        Lifetime::For(age) => Some(age),
    };
    let keep_free = config.flows_keep_free.as_deref().map(str::parse).transpose();
    Ok(Retention { keep, keep_free: keep_free.map_err(Error::Invalid)? })
}
