//! Servers of UDP, and what asks them: `receive-echo` and `receive-dns`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::testbed::{Attempt, Load, PORT, Testbed, highest_without_loss};
use crate::interrupt;
use crate::measure::process::{Running, count};
use crate::programs::{self, words};
use crate::report::summary::Role;
use crate::topology::pair::{Pair, RECEIVER_ADDRESS, SENDER};

/// How long answers may take after the last message.
const DRAIN_TIME: Duration = Duration::from_millis(300);
const LIMIT: Duration = Duration::from_secs(600);

/// A server and its line in a chart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) role: Role,
    /// `None` is a plain socket, a message a call.
    backend: Option<&'static str>,
    send_backend: &'static str,
    gso: bool,
}

/// A server with the sockets of linerate-udp.
const fn ours(name: &'static str, backend: &'static str, send_backend: &'static str) -> Server {
    Server { name, role: Role::Ours, backend: Some(backend), send_backend, gso: true }
}

/// All servers: two peers, a plain socket and the careful program of today without GSO, and ours.
pub(super) const SERVERS: [Server; 7] = [
    Server { role: Role::Peer, backend: None, ..ours("plain sockets", "", "") },
    Server { role: Role::Peer, gso: false, ..ours("recvmmsg/sendmmsg", "recvmmsg", "sendmmsg") },
    ours("recvmmsg", "recvmmsg", "sendmmsg"),
    ours("gro", "gro", "sendmmsg"),
    ours("uring both ways", "uring", "uring"),
    ours("xdp", "xdp", "sendmmsg"),
    ours("xdp both ways", "xdp", "xdp"),
];

pub(super) fn lines(servers: &[Server]) -> Vec<(String, Role)> {
    servers.iter().map(|one| (one.name.to_owned(), one.role)).collect()
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

impl Testbed {
    /// Has `server` send these messages back.
    pub(super) fn echo(&self, server: &Server, load: &Load) -> Result<Echoed> {
        let Pair { sender, cable, cores, .. } = &self.0;
        let serving = self.serve(server, false)?;
        let mut sink = programs::helper(sender, cores.consumer, ["sink", "-i", SENDER])?;
        let mut sink = Running::start("the sink", &mut sink)?;
        sink.wait_until("the sink", Duration::from_secs(20), || Ok(cable.a.has_xdp()?))?;
        let sent = self.send(load)?;
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

    /// The most messages a second that are all answered; the lowest rate that was tried if answers were lost at each.
    pub(super) fn echo_without_loss(
        &self,
        server: &Server,
        load: &Load,
        steps: u32,
    ) -> Result<std::result::Result<f64, f64>> {
        highest_without_loss(load, steps, 1.3, |load| {
            let seen = self.echo(server, load)?;
            Ok(Attempt {
                sent: seen.sent as f64 / seen.seconds.max(1e-9),
                answered: seen.answers as f64 / seen.seconds.max(1e-9),
                whole: seen.answers == seen.sent,
            })
        })
    }

    /// Has dnsperf query `server` for this many seconds, with the queries of a file.
    pub(super) fn dns(&self, server: &Server, questions: &Path, seconds: u32) -> Result<Answered> {
        let Pair { sender, cores, .. } = &self.0;
        let serving = self.serve(server, true)?;
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

    fn serve(&self, server: &Server, dns: bool) -> Result<Running> {
        let mut arguments = words(&format!("datagram-server --address {RECEIVER_ADDRESS}:{PORT}"));
        if let Some(backend) = server.backend {
            let send_backend = server.send_backend;
            arguments.extend(words(&format!("--backend {backend} --send-backend {send_backend}")));
            arguments.extend((!server.gso).then(|| "--no-gso".to_owned()));
        }
        arguments.extend(dns.then(|| "--dns".to_owned()));
        let mut command = programs::helper(&self.0.receiver, self.0.cores.consumer, arguments)?;
        let mut running = Running::start("the server", &mut command)?;
        self.wait_until_receiving(&mut running, server.backend == Some("xdp"), true)?;
        Ok(running)
    }
}
