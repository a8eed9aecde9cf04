//! Two hosts, one of which receives UDP messages: what the `receive-*` experiments measure on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use linerate_testkit::{Namespace, Veth, VethOptions};
use serde_json::Value;

use crate::bench::{Bench, Cores, RECEIVER, SENDER};
use crate::interrupt;
use crate::process::{Running, count};
use crate::traffic::Sent;

const THERE: &str = "198.18.0.1";
const HERE: &str = "198.18.0.2";
/// The port, as it is and as `/proc/net/udp` has it.
const PORT: u16 = 7000;
const PORT_IN_TABLE: &str = ":1B58 ";
/// Ethernet, IPv4 and UDP headers.
pub const HEADERS: u32 = 42;
/// Bytes of the longest message that live frames of XDP carry, for which they have a page each.
pub const LONGEST_LIVE: u32 = 3000;
/// The MTU for longer ones.
const WIDE: u32 = 9000;

const QUINN: [(&str, &str); 3] = [
    ("Cargo.toml", include_str!("../peers/quinn-udp/Cargo.toml")),
    ("Cargo.lock", include_str!("../peers/quinn-udp/Cargo.lock")),
    ("src/main.rs", include_str!("../peers/quinn-udp/src/main.rs")),
];

/// Who receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reader {
    /// `linerate receive` with this back end.
    Linerate(&'static str),
    /// A bare AF_XDP loop that parses and verifies every datagram: the limit.
    Bare,
    /// quinn-udp, built from `peers/`.
    Quinn(PathBuf),
}

/// What is sent.
#[derive(Clone, Debug)]
pub struct Load {
    /// Bytes of messages: a size or a list.
    pub sizes: &'static [u32],
    /// Messages.
    pub messages: u64,
    /// Messages a second; as many as go if `None`.
    pub rate: Option<u64>,
    /// Flows that they are of.
    pub flows: u64,
    /// What the payload holds: `sequence` or `time`.
    pub stamp: &'static str,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Received {
    /// What the generator sent.
    pub sent: Sent,
    /// Messages that the reader got.
    pub messages: u64,
    /// Messages that the interfaces or the reader counted as lost.
    pub lost: u64,
    /// CPU time of the reader, in seconds; of a reader that spins, nothing that means anything.
    pub cpu: f64,
    /// System calls, where the reader counts them.
    pub calls: Option<u64>,
    /// All that it said.
    pub report: Value,
    /// Why it does not count.
    pub void: Option<String>,
}

impl Received {
    /// Messages received a second.
    pub fn rate(&self) -> f64 {
        self.messages as f64 / self.sent.seconds.max(1e-9)
    }

    /// Whether every message that was sent came.
    pub fn is_whole(&self) -> bool {
        self.messages == self.sent.frames
    }

    /// CPU nanoseconds of the reader for each message.
    pub fn cpu_per_message(&self) -> f64 {
        self.cpu * 1e9 / self.messages.max(1) as f64
    }

    /// System calls of the reader for each message.
    pub fn calls_per_message(&self) -> Option<f64> {
        self.calls.map(|calls| calls as f64 / self.messages.max(1) as f64)
    }
}

/// The two hosts.
#[derive(Debug)]
pub struct Desk {
    sender: Namespace,
    receiver: Namespace,
    cable: Veth,
    cores: Cores,
}

impl Desk {
    /// Lays them: NAPI on at the receiving end, neighbours fixed.
    ///
    /// # Errors
    /// Without root.
    pub fn lay(cores: Cores) -> Result<Self> {
        let (sender, receiver) = (Namespace::create("talks")?, Namespace::create("hears")?);
        let cable = Veth::create(&sender, SENDER, &receiver, RECEIVER, VethOptions::default())?;
        cable.a.set_offloads(false)?;
        cable.b.set_gro(true)?;
        cable.a.add_address(THERE.parse()?, 24)?;
        cable.b.add_address(HERE.parse()?, 24)?;
        cable.a.add_neighbour(HERE.parse()?, cable.b.mac())?;
        cable.b.add_neighbour(THERE.parse()?, cable.a.mac())?;
        Ok(Self { sender, receiver, cable, cores })
    }

    /// Sends `load` to `reader`; `more` are further arguments of `linerate receive`.
    ///
    /// # Errors
    /// When a program fails, or a signal asks for the end.
    pub fn measure(&self, reader: &Reader, load: &Load, more: &[&str]) -> Result<Received> {
        if load.is_long() {
            for end in [&self.cable.a, &self.cable.b] {
                end.set_mtu(WIDE)?;
            }
        }
        let mut running = Running::start("the receiver", &mut self.command(reader, more)?)?;
        self.wait_until_hearing(reader, &mut running)?;
        let dropped = self.cable.a.counters()?.tx_dropped;
        let sent = self.send(load)?;
        // What a buffer holds when the last frame has come is read in a few milliseconds.
        interrupt::sleep(Duration::from_millis(300))?;
        let dropped = self.cable.a.counters()?.tx_dropped - dropped;
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
                // The kernel counts a lost super-datagram as one: how many messages it held, nobody knows.
                let joined = report["lost"]["at_least"] == true;
                (count(&report, "messages")?, (!joined).then_some(lost), cpu)
            }
            Reader::Bare => {
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
        Ok(Received { sent, messages, lost: lost_or_rest + dropped, cpu, calls, report, void })
    }

    /// The most messages a second of which none is lost, to some percent, by halving.
    ///
    /// # Errors
    /// As [`Desk::measure`].
    pub fn without_loss(&self, reader: &Reader, load: &Load, steps: u32) -> Result<f64> {
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

    fn command(&self, reader: &Reader, more: &[&str]) -> Result<linerate_testkit::Command> {
        let own = std::env::current_exe().context("cannot find the linerate program")?;
        let address = format!("{HERE}:{PORT}");
        let core = self.cores.consumer;
        let mut command = match reader {
            Reader::Linerate(backend) => {
                let mut command = self.receiver.tied(own);
                command.args(["receive", "--bind", &address, "--backend", backend]);
                command.args(["--json", "--quiet"]).args(more);
                command
            }
            Reader::Bare => {
                let mut command = self.receiver.tied(own);
                command.args(["lab", "bare", "-i", RECEIVER, "--huge", "--udp"]);
                command
            }
            Reader::Quinn(program) => {
                let mut command = self.receiver.tied(program);
                command.arg(address);
                command
            }
        };
        command.cpus([core]);
        Ok(command)
    }

    fn wait_until_hearing(&self, reader: &Reader, running: &mut Running) -> Result<()> {
        let hearing = || {
            running.check()?;
            let xdp = matches!(reader, Reader::Bare | Reader::Linerate("xdp"));
            let table =
                self.receiver.run(|| std::fs::read_to_string("/proc/thread-self/net/udp"))?;
            let bound = *reader == Reader::Bare || table?.contains(PORT_IN_TABLE);
            Ok(bound && (!xdp || self.cable.b.has_xdp()?))
        };
        interrupt::wait_until("a receiver to begin", Duration::from_secs(20), hearing)?;
        interrupt::sleep(Duration::from_millis(300))
    }

    fn send(&self, load: &Load) -> Result<Sent> {
        let own = std::env::current_exe().context("cannot find the linerate program")?;
        let mut command = self.sender.tied(own);
        let (verb, sent) = if load.is_long() {
            Self::by_socket(load, &mut command);
            ("linerate send", "messages")
        } else {
            self.by_live_frames(load, &mut command);
            ("linerate generate", "sent")
        };
        command.args(["--json", "--quiet", "--count", &load.messages.to_string()]);
        command.cpus([self.cores.generator]);
        let sender = Running::start(verb, &mut command)?;
        let report = sender.wait(Duration::from_secs(600))?.success()?.json()?;
        Ok(Sent {
            frames: count(&report, sent)?,
            refused: count(&report, "refused")?,
            seconds: report["seconds"].as_f64().context("the sender's report has no seconds")?,
        })
    }

    fn by_live_frames(&self, load: &Load, command: &mut linerate_testkit::Command) {
        let sizes: Vec<_> = load.sizes.iter().map(|size| (size + HEADERS).to_string()).collect();
        command.args(["generate", "-i", SENDER, "--src", THERE, "--dst", HERE]);
        command.args(["--dport", &PORT.to_string(), "--size", &sizes.join(",")]);
        command.args(["--dst-mac", &self.cable.b.mac().to_string(), "--stamp", load.stamp]);
        command.args(["--cpu", &self.cores.generator.to_string()]);
        if load.flows > 1 {
            command.args(["--sport", "1024-65535", "--flows", &load.flows.to_string()]);
        }
        if let Some(rate) = load.rate {
            command.args(["--rate", &format!("{rate}pps")]);
        }
    }

    fn by_socket(load: &Load, command: &mut linerate_testkit::Command) {
        let sizes: Vec<_> = load.sizes.iter().map(u32::to_string).collect();
        command.args(["send", &format!("{HERE}:{PORT}"), "--size", &sizes.join(",")]);
        // The cable holds 256 frames, and the receiving end has this core, too.
        command.args(["--pattern", load.stamp, "--batch", "16"]);
        if let Some(rate) = load.rate {
            command.args(["--rate", &rate.to_string()]);
        }
    }
}

impl Load {
    /// Whether there are messages too long for live frames.
    fn is_long(&self) -> bool {
        self.sizes.iter().any(|&size| size > LONGEST_LIVE)
    }
}

/// Builds quinn-udp's reader in `folder`.
///
/// # Errors
/// Why it cannot be built, in a line.
pub fn quinn(folder: &Path) -> Result<PathBuf> {
    // Cargo runs in there, and the program elsewhere.
    let source = std::path::absolute(folder)?.join("quinn-udp");
    std::fs::create_dir_all(source.join("src"))?;
    for (name, text) in QUINN {
        std::fs::write(source.join(name), text)?;
    }
    let output = Command::new("cargo")
        .args(["build", "--quiet", "--release", "--locked", "--target-dir"])
        .arg(source.join("target"))
        .current_dir(&source)
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .context("cargo")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}", said.lines().find(|line| line.contains("error")).unwrap_or("it failed"));
    }
    Ok(source.join("target/release/peer-quinn-udp"))
}

/// The bench of an experiment gives its cores; the hosts are this module's own.
///
/// # Errors
/// As [`Desk::lay`].
pub fn lay(bench: &Bench) -> Result<Desk> {
    Desk::lay(bench.cores)
}
