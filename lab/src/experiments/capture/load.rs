//! `capture-load`: loss and system load by packet rate, as in Alexander Fiveg, "Ringmap
//! Capturing Stack for High Performance Packet Capturing in FreeBSD" (2010).

use anyhow::Result;

use super::rate::XDP;
use super::sweep::Sweep;
use crate::experiments::context::{Context, Experiment};
use crate::peers::capture::Peer;
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim};
use crate::traffic::generated::Traffic;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-load",
    title: "Loss and system load by packet rate",
    about: "64-byte frames at a fixed rate. System load is the share of the consumer's core that \
            the kernel spends on behalf of programs, read from /proc/stat from the first frame to the \
            last; interrupts are left out, as in Fiveg 2010 (they run on the generator's core here). \
            The generic path is libpcap's packet socket, under tcpdump.",
    run,
};

/// Ringmap's headline rate.
const RINGMAP_RATE: f64 = 450_000.0;
/// Percent of a core that it may cost in system time.
const MAX_SYSTEM_PERCENT: f64 = 12.0;

fn run(context: &mut Context) -> Result<()> {
    let mut peers = vec![
        Peer::capture("xdp"),
        Peer::sockets("hugetlb"),
        Peer::capture("packet"),
        Peer::capture("tee"),
        Peer::tcpdump(),
    ];
    peers.retain(Peer::is_installed);
    let rates: &[f64] = context.quick_or_full(
        &[100_000.0, RINGMAP_RATE, 900_000.0],
        &[
            50_000.0,
            100_000.0,
            200_000.0,
            300_000.0,
            RINGMAP_RATE,
            600_000.0,
            800_000.0,
            1_000_000.0,
        ],
    );
    // /proc/stat counts in hundredths of a second.
    let seconds = context.quick_or_full(3.0, 6.0);
    let places: Vec<_> = rates
        .iter()
        .map(|&rate| (rate, Traffic::smallest((rate * seconds) as u64, Some(rate as u64))))
        .collect();
    let sweep = Sweep::run(context, peers, &places)?;
    let in_thousands = |mut lines: Vec<crate::report::summary::Line>| {
        lines.iter_mut().flat_map(|line| &mut line.points).for_each(|point| point.x /= 1000.0);
        lines
    };
    let x = || Axis::linear("packet rate", "thousand frames a second");
    let charts = [
        Chart::lines(
            "system",
            "System load of the consumer's core",
            "Lower is better.",
            x(),
            Axis::linear("system time", "% of a core"),
            in_thousands(sweep.lines(|measured| Some(measured.share?.system * 100.0))),
        ),
        Chart::lines(
            "busy",
            "System and user load of the consumer's core",
            "Lower is better. What a program does for itself is in it too.",
            x(),
            Axis::linear("system and user time", "% of a core"),
            in_thousands(
                sweep.lines(|measured| measured.share.map(|s| (s.system + s.user) * 100.0)),
            ),
        ),
        Chart::lines(
            "loss",
            "Frames lost",
            "Lower is better.",
            x(),
            Axis::linear("lost", "%"),
            in_thousands(sweep.lines(|measured| Some(measured.loss() * 100.0))),
        ),
    ];
    context.charts.extend(charts);

    let counted = sweep.counted(RINGMAP_RATE, XDP);
    let (claim, bound) = ("450,000 64-byte frames a second, xdp", "0 lost, system under 12%");
    let lost = counted.iter().map(|one| one.lost()).max();
    let system = Distribution::of(counted.iter().filter_map(|one| Some(one.share?.system * 100.0)));
    // /proc/stat samples; what the scheduler adds up for the program itself cannot miss short naps.
    let own = Distribution::of(counted.iter().map(|one| one.cpu_share()))
        .map_or(f64::NAN, |own| own.median);
    let repeats = context.options.repeats;
    context.claims.push(match (lost, system) {
        (Some(lost), Some(system)) if system.is_majority_of(repeats) => Claim::new(
            claim,
            format!(
                "{lost} lost at most; system {:.1}% (min {:.1}, max {:.1}, {} runs); the program's \
                 whole CPU time, start and end too, is {:.1}% of the time of sending",
                system.median,
                system.min,
                system.max,
                system.count,
                own * 100.0
            ),
            bound,
            lost == 0 && system.median < MAX_SYSTEM_PERCENT,
        )
        .with_spread_across_bound(
            lost == 0 && system.min < MAX_SYSTEM_PERCENT && system.max >= MAX_SYSTEM_PERCENT,
        ),
        _ => Claim::open(claim, "too few runs counted", bound),
    });
    Ok(())
}
