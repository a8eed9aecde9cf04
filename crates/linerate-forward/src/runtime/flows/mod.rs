//! Flow records of an instance, from its sessions and from connection tracking.
//!
//! The ager makes reports (`crate::table::flows`), a thread reads NAT events, and another writes both. Nobody waits for
//! the disk or a collector: reports wait in a bounded queue, and sessions in the table.

mod marks;
mod nat;
mod writer;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use linerate_flow::outputs::{OutputOptions, OutputStatistics, Outputs};

use crate::config::Config;
use crate::runtime::pins::{Lock, Pins};
use crate::table::Table;
use crate::table::ageing::Ageing;
use crate::table::clock::Clock;
use crate::table::flows::{FlowCounts, FlowReport, FlowReporter};
use crate::{Error, Result};
use marks::Marks;
use nat::NatWatch;
use writer::{Shared, Writer};

/// Lists of reports on their way.
const QUEUE: usize = 64;
/// How long the end waits for a thread that cannot write.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowStatistics {
    /// Of sessions.
    pub sessions: FlowCounts,
    /// NAT events.
    pub nat_events: u64,
    /// NAT events that were lost, because records could not be written.
    pub nat_events_lost: u64,
    /// How often the kernel dropped NAT events, because they were read too slowly.
    pub nat_event_overruns: u64,
    /// What was written and sent.
    pub output: OutputStatistics,
}

/// The threads.
#[derive(Debug)]
pub(super) struct Flows {
    nat: Option<NatWatch>,
    reports: SyncSender<Vec<FlowReport>>,
    shared: Arc<Shared>,
    writer: JoinHandle<()>,
}

impl Flows {
    /// Starts them, and has `ageing` report, if the configuration asks for it.
    pub(super) fn start(
        config: &Config,
        pins: &Pins,
        lock: &Lock,
        table: &Table,
        ageing: &mut Ageing,
        clock: Clock,
    ) -> Result<Option<Self>> {
        if config.flows.is_empty() {
            return Ok(None);
        }
        let marks = Marks::open(pins, lock, table.slots())?;
        let options = OutputOptions {
            destinations: config.flows.clone(),
            sensor: config.sensor.clone(),
            max_age: config.flow_file_time,
            sealed: Some(marks.committed()),
        };
        let outputs = Outputs::open(&options, || ())?;
        if outputs.statistics().files.interruptions > 0 {
            tracing::warn!(
                "a former daemon was interrupted: NAT events of its last {:?} or less are missing, records of \
                 sessions are not",
                config.flow_file_time
            );
        }
        let (reports, received) = sync_channel(QUEUE);
        let shared = Arc::<Shared>::default();
        tracing::info!(
            memory_mib = (marks.bytes() + table.slots() * FlowReporter::BYTES_PER_SLOT) >> 20,
            "flow records"
        );
        ageing.set_flows(FlowReporter::new(
            marks.load(),
            reports.clone(),
            Arc::clone(&shared.saved),
            config.active_timeout,
            clock,
        ));
        let nat = NatWatch::start(reports.clone())
            .inspect_err(|error| tracing::warn!(%error, "no NAT events"))
            .ok();
        let writer =
            Writer { outputs, marks, max_age: config.flow_file_time, shared: Arc::clone(&shared) };
        let writer = std::thread::Builder::new()
            .name("flows".into())
            .spawn(move || writer.run(&received))
            .map_err(|error| Error::system("start the thread that writes flow records", error))?;
        Ok(Some(Self { nat, reports, shared, writer }))
    }

    /// The counts, with those of the ager.
    pub(super) fn statistics(&self, sessions: FlowCounts) -> FlowStatistics {
        let nat = self.nat.as_ref().map(|nat| &nat.counters);
        FlowStatistics {
            sessions,
            nat_events: nat.map_or(0, |nat| nat.events.load(Relaxed)),
            nat_events_lost: nat.map_or(0, |nat| nat.lost.load(Relaxed)),
            nat_event_overruns: nat.map_or(0, |nat| nat.overruns.load(Relaxed)),
            output: self.shared.output(),
        }
    }

    /// Writes what is left; the rest of `all` sessions, if they are detached.
    pub(super) fn finish(self, ageing: &mut Ageing, all: bool) {
        let Self { nat, reports, shared, writer } = self;
        let mut waited = Duration::ZERO;
        let pause = Duration::from_millis(10);
        let is_room = || {
            std::thread::sleep(pause);
            waited += pause;
            waited < LAST_WAIT
        };
        let counts = ageing.end_flows(all, is_room).unwrap_or_default();
        drop((nat, reports));
        shared.end();
        let _ = writer.join();
        let files = shared.output().files;
        tracing::info!(sessions = counts.records, written = files.records, "flow records");
    }
}
