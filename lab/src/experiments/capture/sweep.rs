//! Peers × places × repeats, each with all that was measured.

use anyhow::Result;

use super::measurement::{Measurement, measure};
use crate::experiments::context::Context;
use crate::experiments::samples::Samples;
use crate::peers::capture::Peer;
use crate::report::distribution::Distribution;
use crate::report::summary::Line;
use crate::traffic::generated::Traffic;

pub(crate) struct Sweep {
    pub(crate) peers: Vec<Peer>,
    samples: Samples<Measurement>,
}

impl Sweep {
    /// Measures `peers` at each of `places`. Traffic with a rate must reach it.
    pub(crate) fn run(
        context: &mut Context,
        peers: Vec<Peer>,
        places: &[(f64, Traffic)],
    ) -> Result<Self> {
        let peers = context.runnable_peers(peers)?;
        let lines = peers.iter().map(Peer::line).collect();
        let xs: Vec<f64> = places.iter().map(|(x, _)| *x).collect();
        let samples = Samples::collect(context, lines, &xs, |context, peer, place, repeat| {
            let (peer, (x, traffic)) = (&peers[peer], &places[place]);
            let seconds = peer.expected_seconds(traffic);
            context.keep(&peer.name, *x, repeat, seconds, |pair| {
                Ok(measure(pair, peer, traffic)?.void_below_rate(traffic.rate()))
            })
        })?;
        Ok(Self { peers, samples })
    }

    /// The lines of a chart of `value`; a measurement that has none (`None`) is as good as void.
    pub(crate) fn lines(&self, value: impl Fn(&Measurement) -> Option<f64>) -> Vec<Line> {
        let remark = |repeats: &[Option<Measurement>]| {
            let lost = repeats.iter().flatten().filter(|one| one.counts()).map(Measurement::loss);
            let lost = Distribution::of(lost).map_or(0.0, |lost| lost.median);
            (lost > 0.0).then(|| format!("{:.3}% lost", lost * 100.0))
        };
        let value = |one: &Measurement| value(one).unwrap_or(f64::NAN);
        self.samples.lines_with(|one| counted(one, value), remark)
    }

    /// The measurements of one peer at one place that count.
    pub(crate) fn counted(&self, x: f64, name: &str) -> Vec<&Measurement> {
        let repeats = self.samples.at((name, x)).iter().flatten();
        repeats.filter(|one| one.counts()).collect()
    }

    /// What each of two peers lost of its frames, for the reader of a ratio of their rates; empty where
    /// neither lost any.
    pub(crate) fn losses(&self, x: f64, names: [&str; 2]) -> String {
        let loss = |name| {
            let lost = self.counted(x, name).into_iter().map(|one| one.loss() * 100.0);
            Distribution::of(lost).map_or(0.0, |lost| lost.median)
        };
        match names.map(loss) {
            [0.0, 0.0] => String::new(),
            [ours, theirs] => format!("; lost {ours:.2}% against {theirs:.2}%"),
        }
    }

    /// The ratio of one peer to another in the repeats where both count.
    pub(crate) fn ratio(
        &self,
        x: f64,
        ours: &str,
        theirs: &str,
        value: impl Fn(&Measurement) -> f64,
    ) -> Option<Distribution> {
        self.samples.ratio((ours, x), (theirs, x), |one| counted(one, &value))
    }

    /// By how much one peer is above another in the repeats where both count.
    pub(crate) fn difference(
        &self,
        x: f64,
        ours: &str,
        theirs: &str,
        value: impl Fn(&Measurement) -> f64,
    ) -> Option<Distribution> {
        let of = |name| self.samples.values((name, x), |one| counted(one, &value));
        Distribution::of(of(ours).into_iter().zip(of(theirs)).map(|(ours, theirs)| ours - theirs))
    }
}

fn counted(one: &Measurement, value: impl Fn(&Measurement) -> f64) -> f64 {
    if one.counts() { value(one) } else { f64::NAN }
}
