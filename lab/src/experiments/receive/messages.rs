//! UDP messages from one host to a reader on the other: what the `receive-*` experiments measure.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use linerate_testkit::Command;
use serde_json::Value;

use super::testbed::{Attempt, Load, PORT, Testbed, highest_without_loss};
use crate::interrupt;
use crate::measure::process::{Running, count};
use crate::programs;
use crate::topology::pair::{RECEIVER, RECEIVER_ADDRESS};
use crate::traffic::generated::SendReport;

/// Who receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// `linerate receive` with this backend.
    Linerate(&'static str),
    /// A plain AF_XDP loop that parses and verifies every datagram: the limit.
    XdpLoop,
    /// quinn-udp, built from `peers/`.
    Quinn(PathBuf),
}

/// The result.
#[derive(Clone, Debug)]
pub(super) struct ReceiveOutcome {
    pub(super) sent: SendReport,
    /// Messages that the reader got.
    pub(super) messages: u64,
    /// Messages that the interfaces or the reader counted as lost.
    pub(super) lost: u64,
    /// CPU time of the reader, in seconds; of a reader that spins, nothing that means anything.
    pub(super) cpu: f64,
    /// System calls, where the reader counts them.
    pub(super) calls: Option<u64>,
    pub(super) report: Value,
    pub(super) void: Option<String>,
}

impl ReceiveOutcome {
    pub(super) fn rate(&self) -> f64 {
        self.messages as f64 / self.sent.seconds.max(1e-9)
    }

    pub(super) fn is_whole(&self) -> bool {
        self.messages == self.sent.frames
    }

    /// CPU nanoseconds of the reader for each message.
    pub(super) fn cpu_per_message(&self) -> f64 {
        self.cpu * 1e9 / self.messages.max(1) as f64
    }

    /// System calls of the reader for each message.
    pub(super) fn calls_per_message(&self) -> Option<f64> {
        self.calls.map(|calls| calls as f64 / self.messages.max(1) as f64)
    }
}

impl Testbed {
    /// Sends `load` to `reader`; `more` are further arguments of `linerate receive`.
    pub(super) fn measure(
        &self,
        reader: &Reader,
        load: &Load,
        more: &[&str],
    ) -> Result<ReceiveOutcome> {
        let mut running = Running::start("the receiver", &mut self.command(reader, more)?)?;
        let is_xdp = matches!(reader, Reader::XdpLoop | Reader::Linerate("xdp"));
        self.wait_until_receiving(&mut running, is_xdp, *reader != Reader::XdpLoop)?;
        let dropped = self.0.cable.a.statistics()?.tx_dropped;
        let sent = self.send(load)?;
        // What a buffer holds when the last frame has come is read in a few milliseconds.
        interrupt::sleep(Duration::from_millis(300))?;
        let dropped = self.0.cable.a.statistics()?.tx_dropped - dropped;
        let limit = Duration::from_secs(30);
        let finished = match reader {
            Reader::Quinn(_) => running.wait(limit)?,
            _ => running.stop(limit)?,
        };
        let finished = finished.success()?;
        let report = finished.json()?;
        let (messages, lost, cpu) = match reader {
            Reader::Linerate(_) => {
                let lost = count(&report["lost"], "total")?;
                let cpu = report["cpu_seconds"].as_f64().context("no cpu_seconds")?;
                // The kernel counts a lost super-datagram as one: the number of its messages is unknown.
                let joined = report["lost"]["at_least"] == true;
                (count(&report, "messages")?, (!joined).then_some(lost), cpu)
            }
            Reader::XdpLoop => {
                let lost = ["no chunk", "ring full"].map(|cause| count(&report["dropped"], cause));
                let [chunk, ring] = lost;
                (count(&report, "captured")?, Some(chunk? + ring?), f64::NAN)
            }
            Reader::Quinn(_) => {
                (count(&report, "messages")?, None, finished.cpu.user + finished.cpu.system)
            }
        };
        let lost_or_rest = lost.unwrap_or(sent.frames.saturating_sub(messages + dropped));
        let explained = messages + lost_or_rest + dropped;
        let void = (explained != sent.frames)
            .then(|| format!("{} messages sent, {explained} accounted for", sent.frames));
        let calls = report["calls"].as_u64();
        Ok(ReceiveOutcome {
            sent,
            messages,
            lost: lost_or_rest + dropped,
            cpu,
            calls,
            report,
            void,
        })
    }

    /// The most messages a second of which none is lost.
    pub(super) fn without_loss(&self, reader: &Reader, load: &Load, steps: u32) -> Result<f64> {
        let found = highest_without_loss(load, steps, 1.15, |load| {
            let seen = self.measure(reader, load, &[])?;
            Ok(Attempt { sent: seen.sent.rate(), answered: seen.rate(), whole: seen.is_whole() })
        })?;
        found.map_err(|lowest| {
            anyhow!("messages were lost at every rate down to {lowest:.0} a second")
        })
    }

    fn command(&self, reader: &Reader, more: &[&str]) -> Result<Command> {
        let address = format!("{RECEIVER_ADDRESS}:{PORT}");
        let (host, core) = (&self.0.receiver, self.0.cores.consumer);
        match reader {
            Reader::Linerate(backend) => {
                let receive = ["receive", "--bind", &address, "--backend", backend];
                let mut command = programs::linerate(host, core, receive)?;
                command.args(["--json", "--quiet"]).args(more);
                Ok(command)
            }
            Reader::XdpLoop => {
                programs::helper(host, core, ["xdp-loop", "-i", RECEIVER, "--huge", "--udp"])
            }
            Reader::Quinn(program) => {
                let mut command = host.command_killed_with_parent(program);
                command.arg(address).cpus([core]);
                Ok(command)
            }
        }
    }
}
