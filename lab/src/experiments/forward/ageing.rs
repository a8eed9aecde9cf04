//! `forward-ageing`: what ageing the sessions costs, as in Niccolò Giraudo, "Prototipazione di un
//! acceleratore di traffico per dispositivi embedded basato su eBPF/XDP" (2022), figure 5.7.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::interrupt;
use crate::measure::cores::Cores;
use crate::measure::process::count;
use crate::report::summary::{Axis, Chart, Claim, Role};
use crate::topology::pair::Pair;
use crate::topology::routed::{Datapath, EAST_INTERFACE, RoutedPair, SessionTraffic};
use crate::traffic::generated::Sessions;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "forward-ageing",
    title: "What ageing the sessions costs",
    about: "CPU time of the daemon by the number of sessions that it holds and ages, over ten seconds in \
            which none of them ends. With one session there is nothing to age: that is the daemon without \
            ageing (heartbeat, watching the kernel).",
    run,
};

const MILLION: f64 = 1e6;
/// The line of the daemon, by its design of statistics.
const OURS: &str = "slot";

fn run(context: &mut Context) -> Result<()> {
    let all: &[u64] =
        context.quick_or_full(&[1, 1_000_000], &[1, 21_000, 100_000, 300_000, 1_000_000]);
    let time = Duration::from_secs(context.quick_or_full(5, 10));
    let xs: Vec<f64> = all.iter().map(|&sessions| sessions as f64).collect();
    let lines = vec![(OURS.to_owned(), Role::Ours)];
    let shares = Samples::collect(context, lines, &xs, |context, _, place, repeat| {
        let x = xs[place];
        let about = time.as_secs_f64() + 4.0 + 4.0 * x / 1e6;
        let work = |pair: &Pair| age(pair.cores, x as u64, time);
        let Some(share) = context.try_measure(OURS, x, repeat, about, work)? else {
            return Ok(None);
        };
        let cells = [("percent_of_a_core", format!("{share:.4}"))];
        context.row("raw", (OURS, x, repeat), &cells)?;
        Ok(Some(share))
    })?;
    context.charts.push(Chart::lines(
        "cpu",
        "CPU time of the daemon",
        "Lower is better. The cleaner of Giraudo 2022 took 2% for 21,000 sessions.",
        Axis::logarithmic("sessions", ""),
        Axis::linear("CPU", "% of a core"),
        shares.lines(|share| *share),
    ));
    let (claim, bound) = ("ageing of 1,000,000 sessions", "under 2% of a core");
    let repeats = context.options.repeats;
    let share = shares.distribution((OURS, MILLION), |share| *share);
    let claim = Claim::of_runs(claim, share, bound, repeats, "%", |share| share < 2.0);
    context.claims.push(claim.adding(", the rest of the daemon in it"));
    Ok(())
}

/// Percent of a core that the daemon uses with this many sessions.
fn age(cores: Cores, sessions: u64, time: Duration) -> Result<f64> {
    let routed = RoutedPair::build(cores)?;
    let Some(daemon) = routed.start_datapath(Datapath::Linerate(OURS), sessions)? else {
        anyhow::bail!("no daemon to measure")
    };
    let sink = routed.sink(&routed.east, EAST_INTERFACE)?;
    routed.warm_up(&SessionTraffic {
        size: 64,
        frames: 0,
        sessions: Sessions::uniform(sessions),
        rate: None,
    })?;
    // What learning left to do is done.
    interrupt::sleep(Duration::from_secs(2))?;
    let clock = daemon.clock()?;
    let (began, before) = (Instant::now(), clock.read()?);
    interrupt::sleep(time)?;
    let used = clock.read()?.saturating_sub(before);
    let share = used.as_secs_f64() / began.elapsed().as_secs_f64() * 100.0;
    let held = count(&routed.status()?["sessions"], "active")?;
    sink.stop(Duration::from_secs(20))?;
    daemon.stop(Duration::from_secs(30))?.success()?;
    anyhow::ensure!(held >= sessions - sessions / 100, "only {held} of {sessions} were held");
    Ok(share)
}
