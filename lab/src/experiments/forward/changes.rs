//! `forward-changes`: forwarding while routes and neighbours change that have nothing to do with it.

use std::io::{BufWriter, Write};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use linerate_testkit::Namespace;

use super::cost::{Forwarder, LINERATE, LINUX};
use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::measure::cores::Cores;
use crate::programs;
use crate::report::summary::{Axis, Chart, Claim};
use crate::topology::pair::Pair;
use crate::topology::routed::{
    Datapath, ForwardOutcome, LEFT_INTERFACE, RIGHT_INTERFACE, RoutedPair, SessionTraffic,
    end_datapath,
};
use crate::traffic::generated::Sessions;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "forward-changes",
    title: "Forwarding while routes and neighbours change",
    about: "64-byte UDP frames of 1,000 sessions at full speed through a router, on the core of the generator. \
            Meanwhile the other core adds and removes routes that none of the sessions takes, or has one other host \
            of the local network change its MAC address, so many times a second.",
    run,
};

const SESSIONS: u64 = 1000;
/// Where the claims are: changes a second.
const STORM: f64 = 10_000.0;
/// Changes that one write to `ip` asks for, at the highest rate.
const WRITES_A_SECOND: u64 = 200;

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Route,
    Neighbour,
}

impl Change {
    /// The command for `ip -batch` that makes the change of this number.
    fn command(self, number: u64) -> String {
        match self {
            Self::Route => {
                let action = if number.is_multiple_of(2) { "add" } else { "del" };
                let network = number / 2 % 65536;
                let (high, low) = (network / 256, network % 256);
                format!("route {action} 203.{high}.{low}.0/24 dev {RIGHT_INTERFACE}")
            }
            Self::Neighbour => {
                let host = number % 250;
                format!(
                    "neigh replace 198.18.7.7 lladdr 02:00:00:00:77:{host:02x} dev {LEFT_INTERFACE}"
                )
            }
        }
    }
}

const LINES: [(&str, Forwarder, Change); 4] = [
    ("Linux, routes", LINUX, Change::Route),
    ("Linerate, routes", LINERATE, Change::Route),
    ("Linux, a neighbour", LINUX, Change::Neighbour),
    ("Linerate, a neighbour", LINERATE, Change::Neighbour),
];

/// Makes changes in a thread until it is stopped.
struct Changer {
    ip: Child,
    stop: Arc<AtomicBool>,
    feeder: JoinHandle<Result<f64>>,
}

impl Changer {
    fn start(router: &Namespace, core: usize, change: Change, rate: u64) -> Result<Self> {
        let mut command = programs::on_core(router, core, "ip".into(), ["-force", "-batch", "-"]);
        let mut ip = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run ip")?;
        let mut input = BufWriter::new(ip.stdin.take().context("ip has no input")?);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let feeder = std::thread::spawn(move || {
            let (begun, mut number) = (Instant::now(), 0);
            while !stopped.load(Ordering::Relaxed) {
                let due = (begun.elapsed().as_secs_f64() * rate as f64) as u64;
                // A pipe is full after some thousand lines: who is behind does not catch up.
                let end = due.min(number + 4 * rate / WRITES_A_SECOND + 1);
                while number < end {
                    writeln!(input, "{}", change.command(number)).context("ip ended")?;
                    number += 1;
                }
                input.flush().context("ip ended")?;
                std::thread::sleep(Duration::from_secs(1) / WRITES_A_SECOND as u32);
            }
            Ok(number as f64 / begun.elapsed().as_secs_f64())
        });
        Ok(Self { ip, stop, feeder })
    }

    /// The changes a second that were made.
    fn stop(mut self) -> Result<f64> {
        self.stop.store(true, Ordering::Relaxed);
        let rate = self.feeder.join().ok().context("the thread that asks for changes died")?;
        self.ip.wait().context("cannot wait for ip")?;
        rate
    }
}

struct Storm {
    outcome: ForwardOutcome,
    changes: f64,
}

impl Storm {
    fn rate(&self) -> f64 {
        if self.outcome.void.is_some() { f64::NAN } else { self.outcome.rate() }
    }
}

fn run(context: &mut Context) -> Result<()> {
    let xs: &[f64] = context.quick_or_full(&[0.0, STORM], &[0.0, 100.0, 1000.0, STORM]);
    let frames = context.quick_or_full(2_000_000, 5_000_000);
    let lines = LINES.map(|(name, forwarder, _)| (name.to_owned(), forwarder.role)).into();
    let samples = Samples::collect(context, lines, xs, |context, line, place, repeat| {
        let ((name, forwarder, change), x) = (LINES[line], xs[place]);
        let traffic =
            SessionTraffic { size: 64, frames, sessions: Sessions::uniform(SESSIONS), rate: None };
        let about = 4.0 + frames as f64 / 1e6;
        let work =
            |pair: &Pair| forward(pair.cores, forwarder.datapath, change, x as u64, &traffic);
        let Some(done) = context.try_measure(name, x, repeat, about, work)? else {
            return Ok(None);
        };
        if let Some(void) = &done.outcome.void {
            context.record_void(name, x, repeat, void);
        }
        let kernel_share = done.outcome.kernel_share.map(|share| format!("{share:.6}"));
        let cells = [
            ("changes_made_per_second", format!("{:.0}", done.changes)),
            ("sent", done.outcome.sent.to_string()),
            ("arrived", done.outcome.arrived.to_string()),
            ("arrived_per_second", format!("{:.0}", done.outcome.rate())),
            ("kernel_share", kernel_share.unwrap_or_default()),
            ("void", done.outcome.void.clone().unwrap_or_default()),
        ];
        context.row("raw", (name, x, repeat), &cells)?;
        Ok(Some(done))
    })?;
    context.charts.push(Chart::lines(
        "rate",
        "Frames forwarded a second while routes or neighbours change",
        "Higher is better.",
        Axis::linear("changes", "a second"),
        Axis::linear("rate", "million frames a second"),
        samples.lines(|one| one.rate() / 1e6),
    ));
    for (claim, ours, theirs) in [
        (
            "rate under 10,000 route changes a second, over plain Linux under the same",
            LINES[1].0,
            LINES[0].0,
        ),
        ("the same under as many changes of one neighbour", LINES[3].0, LINES[2].0),
    ] {
        let ratio = samples.ratio((ours, STORM), (theirs, STORM), Storm::rate);
        context.claims.push(Claim::at_least(claim, ratio, 1.0, context.options.repeats));
    }
    Ok(())
}

fn forward(
    cores: Cores,
    datapath: Datapath,
    change: Change,
    rate: u64,
    traffic: &SessionTraffic,
) -> Result<Storm> {
    let routed = RoutedPair::build(cores)?;
    let running = routed.start_datapath(datapath, SESSIONS)?;
    let changer = (rate > 0)
        .then(|| Changer::start(&routed.router, cores.consumer, change, rate))
        .transpose()?;
    // What the kernel gets is part of the result here.
    let may_be_kernels = matches!(datapath, Datapath::Linerate(_)).then_some(1.0);
    let outcome = routed.measure(traffic, false, may_be_kernels);
    let changes = changer.map_or(Ok(0.0), Changer::stop)?;
    let outcome = outcome?;
    end_datapath(running)?;
    if changes < 0.9 * rate as f64 {
        bail!("{changes:.0} changes a second were made where {rate} were asked for");
    }
    ensure!(outcome.arrived > 0, "nothing arrived");
    Ok(Storm { outcome, changes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_that_is_added_is_removed_again() {
        let [add, del] = [514, 515].map(|number| Change::Route.command(number));
        assert_eq!(add, "route add 203.1.1.0/24 dev right");
        assert_eq!(del, add.replace("add", "del"));
        let [one, other] = [0, 1].map(|number| Change::Neighbour.command(number));
        assert_ne!(one, other, "each is a change");
    }
}
