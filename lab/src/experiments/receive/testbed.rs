//! The two hosts of the `receive-*` experiments: one sends messages to a program on the other.

use std::time::Duration;

use anyhow::Result;

use crate::interrupt;
use crate::measure::process::Running;
use crate::programs::{self, words};
use crate::topology::pair::{Pair, RECEIVER_ADDRESS, SENDER, SENDER_ADDRESS};
use crate::traffic::generated::SendReport;

/// The port, as it is and as `/proc/net/udp` has it.
pub(super) const PORT: u16 = 7000;
const PORT_IN_TABLE: &str = ":1B58 ";
/// Ethernet, IPv4 and UDP headers.
const HEADERS: u32 = 42;

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

/// Two hosts, one of which receives messages.
#[derive(Debug)]
pub(super) struct Testbed(pub(super) Pair);

impl Testbed {
    pub(super) fn build() -> Result<Self> {
        let pair = Pair::build()?;
        pair.add_receiver_address()?;
        Ok(Self(pair))
    }

    /// Waits until a program receives: `is_xdp` programs are attached then, and `is_bound` sockets bound.
    pub(super) fn wait_until_receiving(
        &self,
        running: &mut Running,
        is_xdp: bool,
        is_bound: bool,
    ) -> Result<()> {
        let Pair { receiver, cable, .. } = &self.0;
        let receiving = || {
            let table = receiver.run(|| std::fs::read_to_string("/proc/thread-self/net/udp"))??;
            Ok((!is_bound || table.contains(PORT_IN_TABLE)) && (!is_xdp || cable.b.has_xdp()?))
        };
        running.wait_until("a receiver to begin", Duration::from_secs(20), receiving)?;
        interrupt::sleep(Duration::from_millis(300))
    }

    /// Sends messages from one host to the other.
    pub(super) fn send(&self, load: &Load) -> Result<SendReport> {
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

/// What came of a load.
pub(super) struct Attempt {
    /// Messages a second that were sent.
    pub(super) sent: f64,
    /// Messages a second that were received or answered.
    pub(super) answered: f64,
    /// Whether these are all.
    pub(super) whole: bool,
}

/// The most messages a second of which none is lost, to some percent, by halving from `above` times the rate at full
/// speed. The lowest rate that was tried if messages were lost at each.
pub(super) fn highest_without_loss(
    load: &Load,
    steps: u32,
    above: f64,
    attempt: impl Fn(&Load) -> Result<Attempt>,
) -> Result<std::result::Result<f64, f64>> {
    let full = attempt(load)?;
    if full.whole {
        return Ok(Ok(full.answered));
    }
    let (mut good, mut bad) = (0.0, full.answered * above);
    for _ in 0..steps {
        let rate = if good == 0.0 { bad * 0.75 } else { (good + bad) / 2.0 };
        let seen = attempt(&Load { rate: Some(rate as u64), ..load.clone() })?;
        // What was sent more slowly than asked for says nothing of the rate.
        if seen.whole && seen.sent > rate * 0.9 {
            good = seen.answered;
        } else {
            bad = rate;
        }
    }
    Ok((good > 0.0).then_some(good).ok_or(bad))
}
