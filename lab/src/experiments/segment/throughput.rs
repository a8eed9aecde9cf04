//! Throughput by CPU share, through the uplink and through the kernel.

use std::time::Duration;

use anyhow::Result;

use crate::experiments::context::Context;
use crate::experiments::samples::Samples;
use crate::measure::napi;
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim, Line, Point, Role};
use crate::topology::uplink::{EgressPath, Scenario, UplinkOutcome, Workload, deliver};

/// Seconds that building the hosts, starting and ending take beside the sending.
const OVERHEAD: f64 = 1.0;

/// One line of the charts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) name: &'static str,
    pub(super) role: Role,
    pub(super) egress: EgressPath,
    pub(super) checksum_offload: bool,
    pub(super) workload: Workload,
}

impl Path {
    pub(super) const fn new(
        name: &'static str,
        role: Role,
        egress: EgressPath,
        workload: Workload,
    ) -> Self {
        Self { name, role, egress, checksum_offload: false, workload }
    }

    pub(super) const fn leaving_checksums(self, name: &'static str) -> Self {
        Self { name, checksum_offload: true, ..self }
    }
}

/// The definition of an experiment: its paths and their texts.
pub(super) struct Description<'a> {
    /// What is sent, as the title of a chart has it.
    pub(super) of: &'a str,
    /// What the lines are, beside those that every such experiment has.
    pub(super) lines: &'a str,
    /// The largest gain of Garzarella 2013.
    pub(super) published: &'a str,
    pub(super) paths: &'a [Path],
    /// Paths whose gain over another is drawn; the first is the one that the claim is about.
    pub(super) gains: &'a [(Path, Path)],
    pub(super) claim: &'a str,
    /// Times that the first of `gains` is to gain at least.
    pub(super) bound: f64,
}

/// Measures everything, draws it and judges the claim.
pub(super) fn run(context: &mut Context, plan: &Description<'_>) -> Result<()> {
    let paths = Paths::run(context, plan.paths)?;
    let gains: Vec<_> = plan.gains.iter().map(|(ours, over)| (ours.name, over.name)).collect();
    let x = || Axis::linear("CPU of the sending side", "% of a core");
    context.charts.extend([
        Chart::lines("throughput", format!("Throughput of {}", plan.of), format!(
                "Higher is better. none: packets of the MTU through the stack. no offload: the kernel \
                 splits before the uplink's device. {}",
                plan.lines
            ), x(), Axis::linear("throughput", "Gbit/s"), paths.lines(|done| done.rate() / 1e9)),
        Chart::lines("gain", "Gain of segmentation at equal CPU", format!("Higher is better; pair by pair. The largest of Garzarella 2013 is {}.", plan.published), x(), Axis::linear("gain", "%"), paths.gains(&gains)),
        Chart::lines("receiver", "Load of the receiving core", "Where it is full, the receiver is the limit, and not the path to it.", x(), Axis::linear("busy", "%"), paths.lines(|done| done.receiving_core * 100.0)),
    ]);
    let repeats = context.options.repeats;
    let (ours, over) = gains[0];
    context.claims.push(paths.claim(plan.claim, ours, over, plan.bound, repeats));
    Ok(())
}

/// Every path at every CPU share, in percent of a core.
struct Paths<'p> {
    paths: &'p [Path],
    shares: &'static [f64],
    samples: Samples<UplinkOutcome>,
}

impl<'p> Paths<'p> {
    fn run(context: &mut Context, paths: &'p [Path]) -> Result<Self> {
        let shares: &[f64] =
            context.quick_or_full(&[30.0, 100.0], &[15.0, 25.0, 35.0, 50.0, 70.0, 85.0, 100.0]);
        let time = context.quick_or_full(Duration::from_secs(1), Duration::from_secs(3));
        let lines = paths.iter().map(|path| (path.name.to_owned(), path.role)).collect();
        if !napi::are_threads_visible() {
            context.notes.push(
                "A PID namespace hides the kernel's threads, so frames are received on the sending core, \
                 which pays for it. Run this outside of the container to have them received on the other core."
                    .to_owned(),
            );
        }
        let samples = Samples::collect(context, lines, shares, |context, path, place, repeat| {
            measure(context, &paths[path], shares[place], repeat, time)
        })?;
        Ok(Self { paths, shares, samples })
    }

    /// The lines of a chart of `value`.
    fn lines(&self, value: impl Fn(&UplinkOutcome) -> f64) -> Vec<Line> {
        self.samples.lines(|one| counted(one, &value))
    }

    /// The lines of a chart of gains in percent, each of one path over another, pair by pair.
    fn gains(&self, pairs: &[(&'static str, &'static str)]) -> Vec<Line> {
        let line = |&(ours, theirs): &(&str, &str)| {
            let point = |&x: &f64| {
                let gains =
                    self.ratio(x, ours, theirs).map(|ratio| ratio.map(|r| (r - 1.0) * 100.0));
                let made = self.samples.at((ours, x)).len();
                let void = made - gains.map_or(0, |gains| gains.count);
                (made > 0).then_some(Point { x, spread: gains, void, remark: None })
            };
            let role = self.paths.iter().find(|path| path.name == ours).map(|path| path.role);
            Line {
                name: format!("{ours}, over {theirs}"),
                role: role.unwrap_or(Role::Ours),
                points: self.shares.iter().filter_map(point).collect(),
            }
        };
        pairs.iter().map(line).filter(|line| !line.points.is_empty()).collect()
    }

    /// The claim that `ours` is at least `bound` times as fast as `theirs`, at the share where the
    /// median says most.
    fn claim(&self, claim: &str, ours: &str, theirs: &str, bound: f64, repeats: usize) -> Claim {
        let places = self.shares.iter().map(|&x| (x, self.ratio(x, ours, theirs)));
        let judged = places.filter(|(_, r)| r.is_some_and(|r| r.is_majority_of(repeats)));
        let median = |r: &Option<Distribution>| r.map_or(f64::NEG_INFINITY, |r| r.median);
        let best = judged.max_by(|a, b| median(&a.1).total_cmp(&median(&b.1)));
        let Some((x, ratio)) = best else { return Claim::at_least(claim, None, bound, repeats) };
        let of = |name, value: fn(&UplinkOutcome) -> f64| {
            self.samples.median((name, x), |one| counted(one, value))
        };
        let used: fn(&UplinkOutcome) -> f64 = |one| one.cpu / one.wall * 100.0;
        let far: fn(&UplinkOutcome) -> f64 = |one| one.receiving_core * 100.0;
        let rate: fn(&UplinkOutcome) -> f64 = |one| one.rate() / 1e9;
        Claim::at_least(claim, ratio, bound, repeats).adding(&format!(
            " at {x}% of a core: {:.2} against {:.2} Gbit/s, CPU used {:.0}% against {:.0}%, \
             receiving core busy {:.0}% against {:.0}%",
            of(ours, rate),
            of(theirs, rate),
            of(ours, used),
            of(theirs, used),
            of(ours, far),
            of(theirs, far),
        ))
    }

    fn ratio(&self, x: f64, ours: &str, theirs: &str) -> Option<Distribution> {
        self.samples.ratio((ours, x), (theirs, x), |one| counted(one, UplinkOutcome::rate))
    }
}

fn counted(one: &UplinkOutcome, value: impl Fn(&UplinkOutcome) -> f64) -> f64 {
    if one.void.is_none() { value(one) } else { f64::NAN }
}

fn measure(
    context: &mut Context,
    path: &Path,
    share: f64,
    repeat: usize,
    time: Duration,
) -> Result<Option<UplinkOutcome>> {
    let Path { name, egress, checksum_offload, workload, .. } = *path;
    let seconds = time.as_secs_f64() + OVERHEAD;
    let done = context.try_measure(name, share, repeat, seconds, |pair| {
        let share = share / 100.0;
        deliver(pair.cores, &Scenario { egress, checksum_offload, share, workload, time })
    })?;
    let Some(done) = done else { return Ok(None) };
    if let Some(why) = &done.void {
        context.record_void(name, share, repeat, why);
    }
    let lost: Vec<_> = done.lost.iter().map(|(cause, count)| format!("{cause}: {count}")).collect();
    let said = |side: &str, key: &str| {
        done.uplink[side][key].as_u64().map(|count| count.to_string()).unwrap_or_default()
    };
    let percent = |part: f64| format!("{:.1}", part * 100.0);
    let cells = [
        ("bytes", done.bytes.to_string()),
        ("datagrams_sent", done.datagrams[0].to_string()),
        ("datagrams_received", done.datagrams[1].to_string()),
        ("seconds", format!("{:.6}", done.seconds)),
        ("gbit_per_second", format!("{:.4}", done.rate() / 1e9)),
        ("cpu_s", format!("{:.6}", done.cpu)),
        ("wall_s", format!("{:.6}", done.wall)),
        ("cpu_used_percent", percent(done.cpu / done.wall)),
        ("core_busy_percent", percent(done.core)),
        ("receiving_core_busy_percent", percent(done.receiving_core)),
        ("resent", done.again.to_string()),
        ("lost", lost.join("; ")),
        ("super_packets", said("tx", "super_packets")),
        ("segments", said("tx", "segments")),
        ("other_packets", said("tx", "packets")),
        ("frames_up", said("rx", "frames")),
        ("void", done.void.clone().unwrap_or_default()),
    ];
    context.row("raw", (name, share, repeat), &cells)?;
    Ok(Some(done))
}
