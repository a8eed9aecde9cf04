//! UDP messages from one host to a reader on the other: what the `receive-*` experiments measure.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use linerate_testkit::Command;
use serde_json::Value;

use crate::interrupt;
use crate::measure::process::{Running, count};
use crate::programs::{self, words};
use crate::topology::pair::{Pair, RECEIVER, RECEIVER_ADDRESS, SENDER, SENDER_ADDRESS};
use crate::traffic::generated::SendReport;

/// The port, as it is and as `/proc/net/udp` has it.
const PORT: u16 = 7000;
const PORT_IN_TABLE: &str = ":1B58 ";
/// Ethernet, IPv4 and UDP headers.
pub(super) const HEADERS: u32 = 42;

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

#[derive(Clone, Debug)]
pub(super) struct Load {
    /// Bytes of messages: a size or a list.
    pub(super) sizes: &'static [u32],
    pub(super) messages: u64,
    /// Messages a second; as many as go if `None`.
    pub(super) rate: Option<u64>,
    /// Flows that they are of.
    pub(super) flows: u64,
    /// What the payload holds: `sequence` or `time`.
    pub(super) stamp: &'static str,
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

/// Two hosts, one of which receives messages.
#[derive(Debug)]
pub(super) struct Testbed(Pair);

impl Testbed {
    pub(super) fn build() -> Result<Self> {
        let pair = Pair::build()?;
        pair.add_receiver_address()?;
        Ok(Self(pair))
    }

    /// Sends `load` to `reader`; `more` are further arguments of `linerate receive`.
    pub(super) fn measure(
        &self,
        reader: &Reader,
        load: &Load,
        more: &[&str],
    ) -> Result<ReceiveOutcome> {
        let mut running = Running::start("the receiver", &mut self.command(reader, more)?)?;
        self.wait_until_receiving(reader, &mut running)?;
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

    /// The most messages a second of which none is lost, to some percent, by halving.
    pub(super) fn without_loss(&self, reader: &Reader, load: &Load, steps: u32) -> Result<f64> {
        let full = self.measure(reader, load, &[])?;
        if full.is_whole() {
            return Ok(full.rate());
        }
        let (mut good, mut bad) = (0.0, full.rate() * 1.15);
        for _ in 0..steps {
            let rate = if good == 0.0 { bad * 0.75 } else { (good + bad) / 2.0 };
            let load = Load { rate: Some(rate as u64), ..load.clone() };
            let seen = self.measure(reader, &load, &[])?;
            // What was sent more slowly than asked for says nothing of the rate.
            if seen.is_whole() && seen.sent.rate() > rate * 0.9 {
                good = seen.rate();
            } else {
                bad = rate;
            }
        }
        ensure!(good > 0.0, "messages were lost at every rate down to {bad:.0} a second");
        Ok(good)
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

    fn wait_until_receiving(&self, reader: &Reader, running: &mut Running) -> Result<()> {
        let receiving = || {
            let xdp = matches!(reader, Reader::XdpLoop | Reader::Linerate("xdp"));
            let table =
                self.0.receiver.run(|| std::fs::read_to_string("/proc/thread-self/net/udp"))?;
            let bound = *reader == Reader::XdpLoop || table?.contains(PORT_IN_TABLE);
            Ok(bound && (!xdp || self.0.cable.b.has_xdp()?))
        };
        running.wait_until("a receiver to begin", Duration::from_secs(20), receiving)?;
        interrupt::sleep(Duration::from_millis(300))
    }

    fn send(&self, load: &Load) -> Result<SendReport> {
        let sizes: Vec<_> = load.sizes.iter().map(|size| (size + HEADERS).to_string()).collect();
        let (core, mac) = (self.0.cores.generator, self.0.cable.b.mac());
        let mut arguments = words(&format!(
            "generate -i {SENDER} --src {SENDER_ADDRESS} --dst {RECEIVER_ADDRESS} --dport {PORT} \
             --size {} --dst-mac {mac} --stamp {} --cpu {core} --json --quiet --count {}",
            sizes.join(","),
            load.stamp,
            load.messages
        ));
        if load.flows > 1 {
            arguments.extend(words(&format!("--sport 1024-65535 --flows {}", load.flows)));
        }
        if let Some(rate) = load.rate {
            arguments.extend(words(&format!("--rate {rate}pps")));
        }
        let mut command = programs::linerate(&self.0.sender, core, arguments)?;
        let sender = Running::start("linerate generate", &mut command)?;
        let report = sender.wait(Duration::from_secs(600))?.success()?.json()?;
        SendReport::read(&report, "sent")
    }
}
