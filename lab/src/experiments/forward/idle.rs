//! The second half of `forward-size`: idle time of the router's core at a fixed rate, as in figure 5.3 of
//! Giraudo 2022.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::cost::Forwarder;
use crate::experiments::context::Context;
use crate::experiments::samples::Samples;
use crate::interrupt;
use crate::measure::cpu::Core;
use crate::report::summary::{Axis, Chart};
use crate::topology::pair::Pair;
use crate::topology::routed::{RoutedPair, SessionTraffic, end_datapath};
use crate::traffic::generated::Sessions;

/// Frames a second: less than plain Linux forwards on one core.
const RATE: u64 = 300_000;

/// Measures all of them, and adds a chart.
pub(super) fn run(context: &mut Context, forwarders: &[Forwarder]) -> Result<()> {
    let sizes: &[u32] = context.quick_or_full(&[64], &[64, 512, 1500]);
    let seconds = context.quick_or_full(2, 4);
    let xs: Vec<f64> = sizes.iter().map(|&size| f64::from(size)).collect();
    let lines = forwarders.iter().map(|one| (one.name.to_owned(), one.role)).collect();
    let selected = |name: &str| format!("{name}, idle");
    let idle =
        Samples::collect_named(context, lines, &xs, selected, |context, one, place, repeat| {
            let (one, size, x) = (&forwarders[one], sizes[place], xs[place]);
            let traffic = SessionTraffic {
                size,
                frames: RATE * seconds,
                sessions: Sessions::uniform(1),
                rate: Some(RATE),
            };
            let about = seconds as f64 + 4.0;
            let work = |pair: &Pair| idle_percent(pair.cores, one, &traffic);
            let idle = context.try_measure(&selected(one.name), x, repeat, about, work)?;
            if let Some(idle) = idle {
                let cells = [("idle_percent", format!("{idle:.4}"))];
                context.row("idle", (one.name, x, repeat), &cells)?;
            }
            Ok(idle)
        })?;
    context.charts.push(Chart::lines(
        "idle",
        format!("Idle time of the router's core at {} thousand frames a second", RATE / 1000),
        "Higher is better. The generator has the other core; the router's receiving runs in a \
                  thread of its own (threaded NAPI), as if the sender were another machine.",
        Axis::logarithmic("frame size", "bytes"),
        Axis::linear("idle", "% of a core"),
        idle.lines(|idle| *idle),
    ));
    Ok(())
}

/// Percent of the router's core that are idle while frames pass.
fn idle_percent(
    cores: crate::measure::cores::Cores,
    one: &Forwarder,
    traffic: &SessionTraffic,
) -> Result<f64> {
    if cores.generator == cores.consumer {
        bail!("it takes two cores");
    }
    let routed = RoutedPair::build(cores)?;
    let running = routed.start_datapath(one.datapath, traffic.sessions.count)?;
    routed.receive_on_other_core()?;
    let watch = std::thread::spawn(move || -> Result<f64> {
        // The beginning and the end of the sender are not in it.
        interrupt::sleep(Duration::from_millis(1200))?;
        let before = Core::read(cores.consumer)?;
        interrupt::sleep(Duration::from_secs(1))?;
        let share = Core::read(cores.consumer)?.since(before);
        Ok((1.0 - share.user - share.system - share.interrupt) * 100.0)
    });
    let passed = routed.measure(traffic, false, None)?;
    let idle = watch.join().ok().context("the thread that watches a core died")??;
    end_datapath(running)?;
    if let Some(why) = passed.void {
        bail!("{why}");
    }
    let rate = traffic.rate.unwrap_or(0) as f64;
    if passed.rate() < 0.95 * rate {
        bail!("{:.0} frames a second came where {rate:.0} were asked for", passed.rate());
    }
    Ok(idle)
}
