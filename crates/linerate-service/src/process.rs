//! The metrics of a process, by the names that Prometheus' own libraries give them.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::registry::Unit;

use crate::MetricEncoder;

/// The verb, its process and its start time.
#[derive(Debug)]
pub(crate) struct Process {
    verb: &'static str,
    id: u32,
    started: f64,
}

impl Process {
    pub(crate) fn new(verb: &'static str, id: u32) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { verb, id, started: now.as_secs_f64() }
    }

    pub(crate) fn encode(&self, encoder: &mut MetricEncoder<'_, '_>) -> fmt::Result {
        let of_verb = [([env!("CARGO_PKG_VERSION"), self.verb], 1.0)];
        let labels = ["version", "verb"];
        encoder.gauges("linerate_build_info", "Version and verb", None, labels, of_verb)?;
        let help = "Start time since the Unix epoch";
        encoder.gauge("process_start_time", help, Some(&Unit::Seconds), self.started)?;
        // A file of proc(5), whose second field may have spaces.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id)).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let fields: Vec<u64> =
            fields.split(' ').map(|field| field.trim().parse().unwrap_or_default()).collect();
        // utime, stime and rss are fields 14, 15 and 24; the first here is the third.
        let [Some(user), Some(system), Some(pages)] = [11, 12, 21].map(|at| fields.get(at)) else {
            return Ok(());
        };
        let ticks = rustix::param::clock_ticks_per_second();
        let cpu = (user + system) as f64 / ticks as f64;
        encoder.seconds("process_cpu", "CPU time, user and system", cpu)?;
        let bytes = pages * rustix::param::page_size() as u64;
        let unit = Some(&Unit::Bytes);
        encoder.gauge("process_resident_memory", "Resident memory", unit, bytes as f64)
    }
}
