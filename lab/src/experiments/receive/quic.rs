//! `receive-quic`: one QUIC connection, by the sockets beneath quinn.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::readers::{BACKENDS, QUINN};
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::measure::process::{Running, count};
use crate::programs::{self, words};
use crate::report::summary::{Axis, Chart, Claim, Role};
use crate::topology::pair::{Pair, RECEIVER_ADDRESS, SENDER_ADDRESS};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "receive-quic",
    title: "Throughput of QUIC, by the sockets beneath quinn",
    about: "One stream of one QUIC connection over a veth with an MTU of 1500, a quinn endpoint of one thread on each \
            core, for some seconds, until the server has acknowledged all of it. Both endpoints have sockets of the \
            same kind: quinn-udp's own, or Linerate's with a backend. Encryption takes most of the time.",
    run,
};

const PORT: u16 = 4433;
const LIMIT: Duration = Duration::from_secs(120);

/// Bytes a second, and CPU seconds for each gigabyte.
struct Throughput {
    rate: f64,
    client: f64,
    server: f64,
}

/// What one transfer took.
struct Transfer {
    bytes: u64,
    seconds: f64,
    client_cpu: f64,
    server_cpu: f64,
}

fn run(context: &mut Context) -> Result<()> {
    let seconds = context.quick_or_full(1.0, 10.0);
    // Its own sockets, and those of linerate-udp.
    let sockets: Vec<_> = [None].into_iter().chain(BACKENDS.map(Some)).collect();
    let line = |backend: &Option<&str>| match backend {
        Some(backend) => ((*backend).to_owned(), Role::Ours),
        None => (QUINN.to_owned(), Role::Peer),
    };
    let lines = sockets.iter().map(line).collect();
    let folder = context.folder().map(std::path::absolute).transpose()?.unwrap_or_default();
    let samples = Samples::collect(context, lines, &[1.0], |context, at, _, repeat| {
        let (backend, name) = (sockets[at], sockets[at].unwrap_or(QUINN));
        let certificate = folder.join(format!("{name}-{repeat}.der"));
        let seen = context.try_measure(name, 1.0, repeat, seconds + 1.5, |_| {
            measure(backend, &certificate, seconds)
        })?;
        let Some(Transfer { bytes, seconds, client_cpu, server_cpu }) = seen else {
            return Ok(None);
        };
        let cells = [
            ("bytes", bytes.to_string()),
            ("seconds", format!("{seconds:.6}")),
            ("client_cpu_seconds", format!("{client_cpu:.6}")),
            ("server_cpu_seconds", format!("{server_cpu:.6}")),
        ];
        context.row("raw", (name, 1.0, repeat), &cells)?;
        let [client, server] = [client_cpu, server_cpu].map(|cpu| cpu * 1e9 / bytes as f64);
        Ok(Some(Throughput { rate: bytes as f64 / seconds, client, server }))
    })?;
    context.charts.extend([
        Chart::bars(
            "rate".to_owned(),
            "Throughput of one connection".to_owned(),
            "Longer is better.",
            Axis::linear("throughput", "MB/s"),
            samples.bars(1.0, |one| one.rate / 1e6),
        ),
        Chart::bars(
            "server-cpu".to_owned(),
            "CPU of the server, which receives".to_owned(),
            "Shorter is better.",
            Axis::linear("CPU", "s/GB"),
            samples.bars(1.0, |one| one.server),
        ),
        Chart::bars(
            "client-cpu".to_owned(),
            "CPU of the client, which sends; on a veth with the server's receive interrupts"
                .to_owned(),
            "Shorter is better.",
            Axis::linear("CPU", "s/GB"),
            samples.bars(1.0, |one| one.client),
        ),
    ]);
    let peer = (QUINN, 1.0);
    let rate = |name| samples.median((name, 1.0), |one| one.rate);
    let stock = if rate("gro") > rate("recvmmsg") { "gro" } else { "recvmmsg" };
    let ratio = |name| samples.ratio((name, 1.0), peer, |one: &Throughput| one.rate);
    let repeats = context.options.repeats;
    context.claims.extend([
        Claim::at_least(
            &format!("throughput of quinn: {stock} over quinn-udp"),
            ratio(stock),
            1.0,
            repeats,
        ),
        Claim::at_least("throughput of quinn: xdp over quinn-udp", ratio("xdp"), 1.3, repeats),
    ]);
    let server = samples.ratio(("xdp", 1.0), peer, |one: &Throughput| one.server);
    let client = samples.ratio(("xdp", 1.0), peer, |one: &Throughput| one.client);
    if let (Some(server), Some(client)) = (server, client) {
        context.notes.push(format!(
            "CPU of xdp over quinn-udp, for each byte: {:.3} at the server, {:.3} at the client",
            server.median, client.median
        ));
    }
    Ok(())
}

fn measure(backend: Option<&str>, certificate: &Path, seconds: f64) -> Result<Transfer> {
    let pair = Pair::build()?;
    pair.add_receiver_address()?;
    let Pair { sender, receiver, cores, .. } = &pair;
    let with = |words: Vec<String>| {
        let backend = backend.map(|backend| ["--backend".to_owned(), backend.to_owned()]);
        let certificate = ["--certificate".to_owned(), certificate.display().to_string()];
        words.into_iter().chain(certificate).chain(backend.into_iter().flatten())
    };
    let serve = with(words(&format!("quic --address {RECEIVER_ADDRESS}:{PORT}")));
    let mut serve = programs::helper(receiver, cores.consumer, serve)?;
    let mut server = Running::start("the server", &mut serve)?;
    server.wait_until("a server to begin", Duration::from_secs(20), || Ok(certificate.exists()))?;
    let send = with(words(&format!(
        "quic --address {SENDER_ADDRESS}:0 --to {RECEIVER_ADDRESS}:{PORT} --seconds {seconds}"
    )));
    let mut send = programs::helper(sender, cores.generator, send)?;
    let client = Running::start("the client", &mut send)?.wait(LIMIT)?.success();
    // If the server has failed, the client only says that no answer came.
    if client.is_err() {
        server.check()?;
    }
    let client = client?;
    let server = server.wait(LIMIT)?.success()?;
    let (sent, came) = (client.json()?, server.json()?);
    let bytes = count(&sent, "bytes")?;
    ensure!(bytes == count(&came, "bytes")?, "{bytes} bytes were sent, and others came: {came}");
    let seconds = sent["seconds"].as_f64().unwrap_or(f64::NAN);
    let [client_cpu, server_cpu] = [client.cpu, server.cpu].map(|cpu| cpu.user + cpu.system);
    Ok(Transfer { bytes, seconds, client_cpu, server_cpu })
}
