//! Servers of UDP, and what asks them: the testbed of `receive-echo` and `receive-dns`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use linerate_testkit::Command;

use super::messages::HEADERS;
use crate::interrupt;
use crate::measure::process::{Running, count};
use crate::programs::{self, words};
use crate::topology::pair::{Pair, RECEIVER_ADDRESS, SENDER, SENDER_ADDRESS};
use crate::traffic::generated::SendReport;

const PORT: u16 = 7000;
const PORT_IN_TABLE: &str = ":1B58 ";
/// Bytes of a message that is sent back.
const ECHO_SIZE: u32 = 64;
/// How long answers may take after the last message.
const DRAIN_TIME: Duration = Duration::from_millis(300);
const LIMIT: Duration = Duration::from_secs(600);

/// A server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    /// `None` is a plain socket, a message a call.
    pub(super) backend: Option<&'static str>,
    pub(super) send_backend: &'static str,
    pub(super) gso: bool,
    pub(super) dns: bool,
}

/// What came of messages that were sent back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Echoed {
    pub(super) sent: u64,
    pub(super) answers: u64,
    /// Answers that bypassed the stack.
    pub(super) ring: u64,
    pub(super) calls: u64,
    /// How long messages were sent.
    pub(super) seconds: f64,
    /// CPU time of the server.
    pub(super) cpu: f64,
}

/// What dnsperf said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) completed: u64,
    /// Without an answer, or with another than NOERROR.
    pub(super) wrong: u64,
    pub(super) per_second: f64,
    /// CPU time of the server.
    pub(super) cpu: f64,
    /// The share of its core that dnsperf used; on a veth with the server's receive interrupts.
    pub(super) client_load: f64,
}

/// Two hosts, one of which serves.
#[derive(Debug)]
pub(super) struct ServerBed(Pair);

impl ServerBed {
    pub(super) fn build() -> Result<Self> {
        let pair = Pair::build()?;
        pair.add_receiver_address()?;
        Ok(Self(pair))
    }

    /// Has `server` send back this many messages of these flows, at a rate or as fast as they come.
    pub(super) fn echo(
        &self,
        server: &Server,
        messages: u64,
        flows: u64,
        rate: Option<f64>,
    ) -> Result<Echoed> {
        let Pair { sender, cable, cores, .. } = &self.0;
        let serving = self.start(server)?;
        let mut sink = programs::helper(sender, cores.consumer, ["sink", "-i", SENDER])?;
        let mut sink = Running::start("the sink", &mut sink)?;
        sink.wait_until("the sink", Duration::from_secs(20), || Ok(cable.a.has_xdp()?))?;
        let (core, mac) = (cores.generator, cable.b.mac());
        let mut arguments = words(&format!(
            "generate -i {SENDER} --src {SENDER_ADDRESS} --dst {RECEIVER_ADDRESS} --dport {PORT} --size {} \
             --dst-mac {mac} --count {messages} --cpu {core} --json --quiet",
            ECHO_SIZE + HEADERS
        ));
        if flows > 1 {
            arguments.extend(words(&format!("--sport 1024-65535 --flows {flows}")));
        }
        if let Some(rate) = rate {
            arguments.extend(words(&format!("--rate {rate:.0}pps")));
        }
        let generate =
            Running::start("generate", &mut programs::linerate(sender, core, arguments)?)?;
        let sent = SendReport::read(&generate.wait(LIMIT)?.success()?.json()?, "sent")?;
        interrupt::sleep(DRAIN_TIME)?;
        let answers = count(&sink.stop(LIMIT)?.success()?.json()?, "captured")?;
        let served = serving.stop(LIMIT)?.success()?;
        let report = served.json()?;
        let [answered, ring, calls] = ["answered", "ring", "calls"].map(|key| count(&report, key));
        let answered = answered?;
        // Other frames come to the interface, too: neighbour discovery, and that at the start only.
        ensure!(
            answers <= answered + 16,
            "{answers} answers came where the server sent {answered}"
        );
        Ok(Echoed {
            sent: sent.frames,
            answers: answers.min(answered),
            ring: ring?,
            calls: calls?,
            seconds: sent.seconds,
            cpu: served.cpu.user + served.cpu.system,
        })
    }

    /// The most messages a second that are all answered, to some percent, by halving; the lowest rate that was tried if
    /// answers were lost at each.
    pub(super) fn without_loss(
        &self,
        server: &Server,
        messages: u64,
        flows: u64,
        steps: u32,
    ) -> Result<std::result::Result<f64, f64>> {
        let rate_of = |seen: &Echoed| seen.sent as f64 / seen.seconds.max(1e-9);
        let full = self.echo(server, messages, flows, None)?;
        if full.answers == full.sent {
            return Ok(Ok(rate_of(&full)));
        }
        let (mut good, mut bad) = (0.0, (full.answers as f64 / full.seconds.max(1e-9)) * 1.3);
        for _ in 0..steps {
            let rate = if good == 0.0 { bad * 0.75 } else { (good + bad) / 2.0 };
            let seen = self.echo(server, messages, flows, Some(rate))?;
            if seen.answers == seen.sent && rate_of(&seen) > rate * 0.9 {
                good = rate_of(&seen);
            } else {
                bad = rate;
            }
        }
        Ok((good > 0.0).then_some(good).ok_or(bad))
    }

    /// Has dnsperf query `server` for this many seconds, with the queries of a file.
    pub(super) fn dns(&self, server: &Server, questions: &Path, seconds: u32) -> Result<Answered> {
        let Pair { sender, cores, .. } = &self.0;
        let serving = self.start(server)?;
        let mut dnsperf = sender.command_killed_with_parent("dnsperf");
        let arguments = format!(
            "-s {RECEIVER_ADDRESS} -p {PORT} -l {seconds} -c 16 -T 1 -q 1000 -t 2 -d {}",
            questions.display()
        );
        dnsperf.args(words(&arguments)).cpus([cores.generator]);
        let asked = Running::start("dnsperf", &mut dnsperf)?.wait(LIMIT)?.success()?;
        let served = serving.stop(LIMIT)?.success()?;
        let number = |name: &str| -> Result<f64> {
            let line = asked.stdout.lines().find_map(|line| line.trim().strip_prefix(name));
            let word = line.and_then(|rest| rest.split_whitespace().next());
            word.and_then(|word| word.parse().ok())
                .with_context(|| format!("dnsperf says no `{name}`: {}", asked.stdout))
        };
        let (sent, completed) = (number("Queries sent:")?, number("Queries completed:")?);
        let codes =
            asked.stdout.lines().find_map(|line| line.trim().strip_prefix("Response codes:"));
        let right = codes.and_then(|codes| codes.trim().strip_prefix("NOERROR "));
        let right = right.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        let right = right.unwrap_or(0.0);
        if completed == 0.0 {
            bail!("no question was answered: {}", asked.stdout);
        }
        Ok(Answered {
            completed: completed as u64,
            wrong: (sent - right) as u64,
            per_second: number("Queries per second:")?,
            cpu: served.cpu.user + served.cpu.system,
            client_load: (asked.cpu.user + asked.cpu.system) / f64::from(seconds),
        })
    }

    fn start(&self, server: &Server) -> Result<Running> {
        let mut running = Running::start("the server", &mut self.command(server)?)?;
        let serving = || {
            let table =
                self.0.receiver.run(|| std::fs::read_to_string("/proc/thread-self/net/udp"))?;
            let is_xdp = server.backend == Some("xdp");
            Ok(table?.contains(PORT_IN_TABLE) && (!is_xdp || self.0.cable.b.has_xdp()?))
        };
        running.wait_until("a server to begin", Duration::from_secs(20), serving)?;
        interrupt::sleep(Duration::from_millis(300))?;
        Ok(running)
    }

    fn command(&self, server: &Server) -> Result<Command> {
        let mut arguments = words(&format!("datagram-server --address {RECEIVER_ADDRESS}:{PORT}"));
        if let Some(backend) = server.backend {
            let send_backend = server.send_backend;
            arguments.extend(words(&format!("--backend {backend} --send-backend {send_backend}")));
            arguments.extend((!server.gso).then(|| "--no-gso".to_owned()));
        }
        arguments.extend(server.dns.then(|| "--dns".to_owned()));
        programs::helper(&self.0.receiver, self.0.cores.consumer, arguments)
    }
}
