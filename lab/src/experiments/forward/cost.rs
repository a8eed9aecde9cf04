//! Who forwards × places × repeats, in alternation with the same frames without a router.

use anyhow::Result;

use crate::experiments::context::Context;
use crate::experiments::samples::{SampleKey, Samples};
use crate::report::summary::{Axis, Chart, Claim, Line, Role};
use crate::topology::routed::{
    Datapath, ForwardOutcome, RoutedPair, Rules, SessionTraffic, TALK, end_datapath, without_router,
};
use crate::traffic::generated::{Headers, Order, Sessions};

/// Seconds that building the topology, starting and ending take beside the sending.
const OVERHEAD: f64 = 4.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarder {
    pub(super) name: &'static str,
    pub(super) role: Role,
    pub(super) datapath: Datapath,
    /// The router's.
    pub(super) rules: Rules,
    /// Of the frames, with and without a router.
    pub(super) headers: Headers,
    /// Frames are of sessions by Zipf's law.
    pub(super) zipf: bool,
}

impl Forwarder {
    pub(super) const fn new(name: &'static str, role: Role, datapath: Datapath) -> Self {
        Self { name, role, datapath, rules: Rules::None, headers: Headers::Ipv4, zipf: false }
    }

    /// Plain Linux with these rules and frames.
    pub(super) const fn linux(name: &'static str, rules: Rules, headers: Headers) -> Self {
        Self { rules, headers, ..Self::new(name, Role::Peer, Datapath::Linux) }
    }

    /// Linerate with these rules and frames.
    pub(super) const fn linerate(name: &'static str, rules: Rules, headers: Headers) -> Self {
        Self { rules, headers, ..Self::new(name, Role::Ours, Datapath::Linerate("slot")) }
    }
}

pub(super) const LINUX: Forwarder = Forwarder::linux("Linux", Rules::None, Headers::Ipv4);
pub(super) const FLOW_TABLE: Forwarder =
    Forwarder::new("nft flowtable", Role::Peer, Datapath::FlowTable);
pub(super) const FIB: Forwarder = Forwarder::new("fib mode", Role::Peer, Datapath::Fib);
pub(super) const LINERATE: Forwarder = Forwarder::linerate("Linerate", Rules::None, Headers::Ipv4);
pub(super) const REDIRECT: Forwarder =
    Forwarder::new("plain redirect", Role::Limit, Datapath::Redirect);

/// Traffic at a place on the axis.
pub(super) type Place = (f64, SessionTraffic);

/// One measurement, with the same traffic without a router right before it.
#[derive(Clone, Debug)]
pub(super) struct PairedRun {
    with: ForwardOutcome,
    without: ForwardOutcome,
}

impl PairedRun {
    /// Nanoseconds that forwarding adds to a frame; NaN where one of the two does not count.
    fn cost(&self) -> f64 {
        if self.with.void.is_some() || self.without.void.is_some() {
            return f64::NAN;
        }
        1e9 / self.with.rate() - 1e9 / self.without.rate()
    }
}

pub(super) struct Costs(Samples<PairedRun>);

impl Costs {
    pub(super) fn measure(
        context: &mut Context,
        forwarders: &[Forwarder],
        places: &[Place],
        both: bool,
    ) -> Result<Self> {
        let lines = forwarders.iter().map(|one| (one.name.to_owned(), one.role)).collect();
        let xs: Vec<f64> = places.iter().map(|(x, _)| *x).collect();
        Samples::collect(context, lines, &xs, |context, one, place, repeat| {
            measure(context, &forwarders[one], &places[place], repeat, both)
        })
        .map(Self)
    }

    /// The lines of a chart of costs, in nanoseconds a frame.
    pub(super) fn costs(&self) -> Vec<Line> {
        self.0.lines(PairedRun::cost)
    }

    /// The lines of a chart of rates, in million frames a second.
    pub(super) fn rates(&self) -> Vec<Line> {
        self.0.lines(|one| match one.with.void {
            Some(_) => f64::NAN,
            None => one.with.rate() / 1e6,
        })
    }

    /// The claim that `ours` costs at most `bound` times what `theirs` does.
    pub(super) fn claim(
        &self,
        claim: &str,
        ours: SampleKey<'_>,
        theirs: SampleKey<'_>,
        bound: f64,
        repeats: usize,
    ) -> Claim {
        // Against a rival that seems to cost nothing there is no ratio.
        let positive = |one: &PairedRun| {
            let cost = one.cost();
            if cost > 0.0 { cost } else { f64::NAN }
        };
        let median = |at| self.0.median(at, PairedRun::cost);
        Claim::at_most(claim, self.0.ratio(ours, theirs, positive), bound, repeats)
            .adding(&format!("; {:.0} against {:.0} ns a frame", median(ours), median(theirs)))
    }
}

/// The charts of costs and rates, both by `x`.
pub(super) fn charts(costs: &Costs, x: &Axis, of: &str, rate_caption: &str) -> [Chart; 2] {
    [
        Chart::lines(
            "cost",
            format!("Cost of forwarding {of}"),
            "Lower is better.",
            x.clone(),
            Axis::linear("added to each frame", "ns"),
            costs.costs(),
        ),
        Chart::lines(
            "rate",
            "Frames forwarded a second",
            rate_caption,
            x.clone(),
            Axis::linear("rate", "million frames a second"),
            costs.rates(),
        ),
    ]
}

/// A place for each frame size: frames of one session at full speed.
pub(super) fn by_size(sizes: &[u32], frames: u64) -> Vec<Place> {
    let place = |&size: &u32| {
        let sessions = Sessions::uniform(1);
        (f64::from(size), SessionTraffic { size, frames, sessions, rate: None })
    };
    sizes.iter().map(place).collect()
}

/// Those of `forwarders` that this machine has.
pub(super) fn available(context: &mut Context, forwarders: &[Forwarder]) -> Result<Vec<Forwarder>> {
    let mut available = forwarders.to_vec();
    let cores = context.cores();
    if let Some(cores) = cores
        && available.iter().any(|one| one.datapath == Datapath::FlowTable)
        && let Some(why) = RoutedPair::flowtable_unavailable(cores)?
    {
        context.notes.push(format!("skipped: {}: {why}", FLOW_TABLE.name));
        available.retain(|one| one.datapath != Datapath::FlowTable);
    }
    Ok(available)
}

fn measure(
    context: &mut Context,
    one: &Forwarder,
    place: &Place,
    repeat: usize,
    both: bool,
) -> Result<Option<PairedRun>> {
    let (x, traffic) = *place;
    let order = if one.zipf { Order::Zipf } else { Order::Turns };
    let sessions = Sessions { headers: one.headers, order, ..traffic.sessions };
    let traffic = SessionTraffic { sessions, ..traffic };
    let slowest = 1e6;
    let talk = if one.rules == Rules::None { 0.0 } else { TALK.as_secs_f64() };
    let seconds = OVERHEAD + talk + (traffic.frames + 4 * sessions.count) as f64 / slowest;
    let done = context.try_measure(one.name, x, repeat, seconds, |pair| {
        let without = without_router(pair, &traffic)?;
        let routed = RoutedPair::build(pair.cores)?
            .with_headers(one.headers)?
            .with_rules(one.rules, sessions.count)?;
        let running = routed.start_datapath(one.datapath, sessions.count)?;
        let reports =
            matches!(one.datapath, Datapath::Linerate(_) | Datapath::LinerateTc | Datapath::Fib);
        let with = routed.measure(&traffic, both, reports.then_some(0.01))?;
        end_datapath(running)?;
        Ok(PairedRun { with, without })
    })?;
    let Some(done) = done else { return Ok(None) };
    for void in [&done.with.void, &done.without.void].into_iter().flatten() {
        context.record_void(one.name, x, repeat, void);
    }
    let ForwardOutcome { sent, arrived, dropped, seconds, kernel_share, ref void, .. } = done.with;
    let cells = [
        ("size", traffic.size.to_string()),
        ("sessions", sessions.count.to_string()),
        ("sent", sent.to_string()),
        ("arrived", arrived.to_string()),
        ("dropped", dropped.to_string()),
        ("seconds", format!("{seconds:.6}")),
        ("arrived_per_second", format!("{:.0}", done.with.rate())),
        ("cost_ns", format!("{:.2}", done.cost())),
        (
            "kernel_share",
            kernel_share.map(|kernel_share| format!("{kernel_share:.6}")).unwrap_or_default(),
        ),
        ("void", void.clone().unwrap_or_default()),
    ];
    context.row("raw", (one.name, x, repeat), &cells)?;
    Ok(Some(done))
}
