//! Who forwards × places × repeats, in alternation with the routed without a router.

use anyhow::Result;

use crate::baseline::forward::Baseline;
use crate::experiments::context::Context;
use crate::report::distribution::{Distribution, paired_ratio};
use crate::report::summary::{Claim, Line, Point, Role};
use crate::topology::routed::{ForwardOutcome, RoutedPair, Traffic, Way, without};

/// Seconds that laying the routed, starting and ending take beside the sending.
const AROUND: f64 = 4.0;

const COLUMNS: [&str; 13] = [
    "line",
    "x",
    "repeat",
    "size",
    "sessions",
    "sent",
    "arrived",
    "dropped",
    "seconds",
    "arrived_per_second",
    "cost_ns",
    "kernel_share",
    "void",
];

/// Who is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarder {
    pub(super) name: &'static str,
    pub(super) role: Role,
    pub(super) way: Way,
}

pub(super) const LINUX: Forwarder = Forwarder { name: "Linux", role: Role::Peer, way: Way::Linux };
pub(super) const FLOW_TABLE: Forwarder =
    Forwarder { name: "nft flowtable", role: Role::Peer, way: Way::FlowTable };
pub(super) const FIB: Forwarder =
    Forwarder { name: "fib mode", role: Role::Peer, way: Way::Baseline(Baseline::Fib) };
pub(super) const LINERATE: Forwarder =
    Forwarder { name: "Linerate", role: Role::Ours, way: Way::Linerate("slot") };
pub(super) const REDIRECT: Forwarder =
    Forwarder { name: "plain redirect", role: Role::Limit, way: Way::Redirect };

/// One place on the axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) x: f64,
    pub(super) traffic: Traffic,
}

/// One measurement, with the routed without a router right before it.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) with: ForwardOutcome,
    pub(super) without: ForwardOutcome,
}

impl Cell {
    /// Nanoseconds that forwarding adds to a frame; NaN where one of the two does not count.
    fn cost(&self) -> f64 {
        if self.with.void.is_some() || self.without.void.is_some() {
            return f64::NAN;
        }
        1e9 / self.with.rate() - 1e9 / self.without.rate()
    }
}

/// All measurements.
pub(super) struct Crossing {
    forwarders: Vec<Forwarder>,
    places: Vec<Place>,
    /// By place, forwarder, repeat.
    cells: Vec<Vec<Vec<Option<Cell>>>>,
}

impl Crossing {
    /// Measures everybody everywhere, round after round.
    pub(super) fn run(
        context: &mut Context,
        forwarders: &[Forwarder],
        places: &[Place],
        both: bool,
    ) -> Result<Self> {
        let repeats = context.options.repeats;
        let mut cells = Vec::with_capacity(places.len());
        for place in places {
            let wanted: Vec<_> =
                forwarders.iter().map(|one| context.wants(one.name, place.x)).collect();
            let mut here = vec![Vec::with_capacity(repeats); forwarders.len()];
            for repeat in 1..=repeats {
                for (number, one) in forwarders.iter().enumerate().filter(|(at, _)| wanted[*at]) {
                    here[number].push(measure(context, one, place, repeat, both)?);
                }
            }
            cells.push(here);
        }
        Ok(Self { forwarders: forwarders.to_vec(), places: places.to_vec(), cells })
    }

    /// The lines of a chart of `value`; what is not finite does not count.
    pub(super) fn lines(&self, value: impl Fn(&Cell) -> f64) -> Vec<Line> {
        let line = |(number, one): (usize, &Forwarder)| {
            let here =
                self.places.iter().zip(&self.cells).map(|(place, here)| (place, &here[number]));
            let points = here.filter(|(_, cells)| !cells.is_empty()).map(|(place, cells)| {
                let spread = Distribution::of(cells.iter().flatten().map(&value));
                let void = cells.len() - spread.map_or(0, |spread| spread.count);
                Point { x: place.x, spread, void, remark: None }
            });
            Line { name: one.name.to_owned(), role: one.role, points: points.collect() }
        };
        let lines = self.forwarders.iter().enumerate().map(line);
        lines.filter(|line| !line.points.is_empty()).collect()
    }

    /// Costs, in nanoseconds a frame.
    pub(super) fn costs(&self) -> Vec<Line> {
        self.lines(Cell::cost)
    }

    /// Rates, in million frames a second.
    pub(super) fn rates(&self) -> Vec<Line> {
        self.lines(|cell| match cell.with.void {
            Some(_) => f64::NAN,
            None => cell.with.rate() / 1e6,
        })
    }

    /// The cost of `ours` over that of `theirs`, pair by pair.
    pub(super) fn ratio(&self, ours: (&str, f64), theirs: (&str, f64)) -> Option<Distribution> {
        let costs = |(name, x): (&str, f64)| -> Vec<f64> {
            // Against a rival that seems to cost nothing there is no ratio.
            let cost = |cell: &Option<Cell>| cell.as_ref().map_or(f64::NAN, Cell::cost);
            let cost = |cell| Some(cost(cell)).filter(|cost| *cost > 0.0).unwrap_or(f64::NAN);
            self.cells(name, x).iter().map(cost).collect()
        };
        paired_ratio(&costs(ours), &costs(theirs))
    }

    /// The claim that `ours` costs at most `bound` times what `theirs` does.
    pub(super) fn claim(
        &self,
        claim: &str,
        ours: (&str, f64),
        theirs: (&str, f64),
        bound: f64,
        repeats: usize,
    ) -> Claim {
        let cost = |(name, x): (&str, f64)| {
            let cells = self.cells(name, x).iter().flatten();
            Distribution::of(cells.map(Cell::cost)).map_or(f64::NAN, |spread| spread.median)
        };
        Claim::at_most(claim, self.ratio(ours, theirs), bound, repeats).adding(&format!(
            "; {:.0} against {:.0} ns a frame",
            cost(ours),
            cost(theirs)
        ))
    }

    fn cells(&self, name: &str, x: f64) -> &[Option<Cell>] {
        let place = self.places.iter().position(|place| place.x == x);
        let one = self.forwarders.iter().position(|one| one.name == name);
        match (place, one) {
            (Some(place), Some(one)) => &self.cells[place][one],
            _ => &[],
        }
    }
}

/// The frames and what the kernel makes of them beside, for `forwarders` that this machine has.
pub(super) fn able(context: &mut Context, forwarders: &[Forwarder]) -> Result<Vec<Forwarder>> {
    let mut able = forwarders.to_vec();
    let cores = context.cores();
    if let Some(cores) = cores
        && able.iter().any(|one| one.way == Way::FlowTable)
        && let Some(why) = RoutedPair::flow_table_obstacle(cores)?
    {
        context.notes.push(format!("skipped: {}: {why}", FLOW_TABLE.name));
        able.retain(|one| one.way != Way::FlowTable);
    }
    Ok(able)
}

fn measure(
    context: &mut Context,
    one: &Forwarder,
    place: &Place,
    repeat: usize,
    both: bool,
) -> Result<Option<Cell>> {
    let Place { x, traffic } = *place;
    let slowest = 1e6;
    let seconds = AROUND + (traffic.frames + 4 * traffic.sessions) as f64 / slowest;
    let done = context.attempt(one.name, x, repeat, seconds, |pair| {
        let without = without(pair, &traffic)?;
        let routed = RoutedPair::build(pair.cores)?;
        let running = routed.begin(one.way, traffic.sessions)?;
        let with = routed.pass(&traffic, both, Some(one.way))?;
        if let Some(running) = running {
            running.stop(std::time::Duration::from_secs(30))?.success()?;
        }
        Ok(Cell { with, without })
    })?;
    let Some(done) = done else { return Ok(None) };
    for void in [&done.with.void, &done.without.void].into_iter().flatten() {
        context.void(one.name, x, repeat, void);
    }
    let ForwardOutcome { sent, arrived, dropped, seconds, slow, ref void, .. } = done.with;
    let cells = [
        one.name.to_owned(),
        x.to_string(),
        repeat.to_string(),
        traffic.size.to_string(),
        traffic.sessions.to_string(),
        sent.to_string(),
        arrived.to_string(),
        dropped.to_string(),
        format!("{seconds:.6}"),
        format!("{:.0}", done.with.rate()),
        format!("{:.2}", done.cost()),
        slow.map(|slow| format!("{slow:.6}")).unwrap_or_default(),
        void.clone().unwrap_or_default(),
    ];
    context.row("raw", &COLUMNS, cells)?;
    Ok(Some(done))
}
