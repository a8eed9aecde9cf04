//! Peers × points × repeats, in alternation: what drifts on the machine drifts for everybody.

use anyhow::Result;

use crate::experiments::capture::measurement::{Measurement, measure};
use crate::experiments::context::Context;
use crate::peers::capture::Peer;
use crate::report::distribution::{Distribution, paired_ratio};
use crate::report::summary::{Line, Point};
use crate::traffic::generated::Traffic;

/// What one peer did at one place in one repeat; `None` when it failed.
pub(crate) type Cell = Option<Measurement>;

/// All measurements of a sweep.
pub(crate) struct Sweep {
    pub(crate) peers: Vec<Peer>,
    pub(crate) xs: Vec<f64>,
    /// By place, peer, repeat; without repeats where the run was told to leave them out.
    cells: Vec<Vec<Vec<Cell>>>,
}

impl Sweep {
    /// Measures `peers` at each of `places`, round after round. Traffic with a rate must reach it.
    pub(crate) fn run(
        context: &mut Context,
        peers: Vec<Peer>,
        places: &[(f64, Traffic)],
    ) -> Result<Self> {
        let peers = context.able(peers)?;
        let repeats = context.options.repeats;
        let mut cells = Vec::with_capacity(places.len());
        for (x, traffic) in places {
            let wanted: Vec<_> = peers.iter().map(|peer| context.wants(&peer.name, *x)).collect();
            let mut here = vec![Vec::with_capacity(repeats); peers.len()];
            for repeat in 1..=repeats {
                let all = peers.iter().zip(&mut here).zip(&wanted);
                for ((peer, done), _) in all.filter(|(_, wanted)| **wanted) {
                    let seconds = peer.expected_seconds(traffic);
                    done.push(context.keep(&peer.name, *x, repeat, seconds, |pair| {
                        Ok(measure(pair, peer, traffic)?.held_to(traffic.rate()))
                    })?);
                }
            }
            cells.push(here);
        }
        Ok(Self { peers, xs: places.iter().map(|(x, _)| *x).collect(), cells })
    }

    /// The lines of a chart of `value`; what has none (`None`) is as good as void.
    pub(crate) fn lines(&self, value: impl Fn(&Measurement) -> Option<f64>) -> Vec<Line> {
        let line = |(number, peer): (usize, &Peer)| {
            let places = self.xs.iter().zip(&self.cells).map(|(x, here)| (x, &here[number]));
            let points = places.filter(|(_, cells)| !cells.is_empty()).map(|(x, cells)| {
                let counted = || cells.iter().flatten().filter(|cell| cell.counts());
                let spread = Distribution::of(counted().filter_map(&value));
                let loss =
                    Distribution::of(counted().map(Measurement::loss)).map_or(0.0, |s| s.median);
                Point {
                    x: *x,
                    spread,
                    void: cells.len() - spread.map_or(0, |spread| spread.count),
                    remark: (loss > 0.0).then(|| format!("{:.3}% lost", loss * 100.0)),
                }
            });
            Line { name: peer.name.clone(), role: peer.role, points: points.collect() }
        };
        let lines = self.peers.iter().enumerate().map(line);
        lines.filter(|line| !line.points.is_empty()).collect()
    }

    /// The repeats of one peer at one place.
    pub(crate) fn cells(&self, x: f64, name: &str) -> &[Cell] {
        let place = self.xs.iter().position(|place| *place == x);
        let peer = self.peers.iter().position(|peer| peer.name == name);
        match (place, peer) {
            (Some(place), Some(peer)) => &self.cells[place][peer],
            _ => &[],
        }
    }

    /// What each of two peers lost of its frames, for whoever reads a ratio of their rates; empty
    /// where neither lost any.
    pub(crate) fn losses(&self, x: f64, names: [&str; 2]) -> String {
        let loss = |name: &str| {
            let counted = self.cells(x, name).iter().flatten().filter(|cell| cell.counts());
            Distribution::of(counted.map(|cell| cell.loss() * 100.0))
                .map_or(0.0, |spread| spread.median)
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
        let (a, b): (Vec<f64>, Vec<f64>) = self.pairs(x, ours, theirs, value).unzip();
        paired_ratio(&a, &b)
    }

    /// By how much one peer is above another in the repeats where both count.
    pub(crate) fn difference(
        &self,
        x: f64,
        ours: &str,
        theirs: &str,
        value: impl Fn(&Measurement) -> f64,
    ) -> Option<Distribution> {
        Distribution::of(self.pairs(x, ours, theirs, value).map(|(ours, theirs)| ours - theirs))
    }

    fn pairs(
        &self,
        x: f64,
        ours: &str,
        theirs: &str,
        value: impl Fn(&Measurement) -> f64,
    ) -> impl Iterator<Item = (f64, f64)> {
        let pairs = self.cells(x, ours).iter().zip(self.cells(x, theirs));
        let pairs = pairs.filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?)));
        let counted = pairs.filter(|(a, b)| a.counts() && b.counts());
        counted.map(move |(a, b)| (value(a), value(b)))
    }
}
