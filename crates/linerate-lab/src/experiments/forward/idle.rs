//! The second half of `forward-size`: what the router's core does at a fixed rate (seed 003, Fig. 5.3).

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::cost::Forwarder;
use crate::experiments::context::Context;
use crate::interrupt;
use crate::measure::cpu::Core;
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Line, Point};
use crate::topology::routed::{RoutedPair, Traffic};

/// Frames a second: less than plain Linux forwards on one core.
const RATE: u64 = 300_000;

/// Measures all of them, and adds a chart.
pub(super) fn run(context: &mut Context, forwarders: &[Forwarder]) -> Result<()> {
    let sizes: &[u32] = context.pick(&[64], &[64, 512, 1500]);
    let seconds = context.pick(2, 4);
    let mut lines: Vec<Line> = forwarders
        .iter()
        .map(|one| Line { name: one.name.into(), role: one.role, points: Vec::new() })
        .collect();
    for &size in sizes {
        let x = f64::from(size);
        let traffic = Traffic { size, frames: RATE * seconds, sessions: 1, rate: Some(RATE) };
        let mut shares = vec![Vec::new(); forwarders.len()];
        for repeat in 1..=context.options.repeats {
            for (one, shares) in forwarders.iter().zip(&mut shares) {
                let name = format!("{}, idle", one.name);
                if !context.wants(&name, x) {
                    continue;
                }
                let work = |cores| busy(cores, one, &traffic);
                let about = seconds as f64 + 4.0;
                let idle = context.attempt(&name, x, repeat, about, |pair| work(pair.cores))?;
                if let Some(idle) = idle {
                    let cells =
                        [one.name.into(), x.to_string(), repeat.to_string(), format!("{idle:.4}")];
                    context.row("idle", &["line", "size", "repeat", "idle_percent"], cells)?;
                    shares.push(idle);
                }
            }
        }
        for (line, shares) in lines.iter_mut().zip(shares).filter(|(_, shares)| !shares.is_empty())
        {
            let void = context.options.repeats - shares.len();
            line.points.push(Point { x, spread: Distribution::of(shares), void, remark: None });
        }
    }
    lines.retain(|line| !line.points.is_empty());
    context.charts.push(Chart {
        id: "idle".into(),
        title: format!(
            "Idle time of the router's core at {} thousand frames a second",
            RATE / 1000
        ),
        caption:
            "Higher is better. The generator has the other core; the router's receiving runs in a \
                  thread of its own (threaded NAPI), as if the sender were another machine."
                .into(),
        x: Some(Axis::logarithmic("frame size", "bytes")),
        y: Axis::linear("idle", "% of a core"),
        lines,
    });
    Ok(())
}

/// Percent of the router's core that are idle while frames pass.
fn busy(cores: crate::measure::cores::Cores, one: &Forwarder, traffic: &Traffic) -> Result<f64> {
    if cores.generator == cores.consumer {
        bail!("it takes two cores");
    }
    let routed = RoutedPair::build(cores)?;
    let running = routed.begin(one.way, traffic.sessions)?;
    routed.apart()?;
    let watch = std::thread::spawn(move || -> Result<f64> {
        // The beginning and the end of the sender are not in it.
        interrupt::sleep(Duration::from_millis(1200))?;
        let before = Core::read(cores.consumer)?;
        interrupt::sleep(Duration::from_secs(1))?;
        let share = Core::read(cores.consumer)?.since(before);
        Ok((1.0 - share.user - share.system - share.interrupt) * 100.0)
    });
    let passed = routed.pass(traffic, false, None)?;
    let idle = watch.join().ok().context("the thread that watches a core died")??;
    if let Some(running) = running {
        running.stop(Duration::from_secs(30))?.success()?;
    }
    if let Some(why) = passed.void {
        bail!("{why}");
    }
    let rate = traffic.rate.unwrap_or(0) as f64;
    if passed.rate() < 0.95 * rate {
        bail!("{:.0} frames a second came where {rate:.0} were asked for", passed.rate());
    }
    Ok(idle)
}
