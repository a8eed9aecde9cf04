//! Peers × points × repeats, in alternation: what drifts on the machine drifts for everybody.

use anyhow::Result;

use super::Context;
use crate::measure::Measured;
use crate::model::{Line, Point};
use crate::peer::Peer;
use crate::statistics::{Spread, paired_ratio};
use crate::traffic::Traffic;

/// What one peer did at one place in one repeat; `None` when it failed.
pub(crate) type Cell = Option<Measured>;

/// All measurements of a sweep.
pub(crate) struct Sweep {
    pub(crate) peers: Vec<Peer>,
    pub(crate) xs: Vec<f64>,
    /// By place, peer, repeat.
    cells: Vec<Vec<Vec<Cell>>>,
}

impl Sweep {
    /// Measures `peers` at each of `places`, round after round.
    pub(crate) fn run(
        context: &mut Context,
        peers: Vec<Peer>,
        places: &[(f64, Traffic)],
    ) -> Result<Self> {
        let repeats = context.options.repeats;
        context.expect(peers.len() * places.len() * repeats);
        let mut cells = Vec::with_capacity(places.len());
        for (x, traffic) in places {
            let mut here = vec![Vec::with_capacity(repeats); peers.len()];
            for repeat in 1..=repeats {
                for (peer, done) in peers.iter().zip(&mut here) {
                    done.push(context.point(peer, traffic, *x, repeat)?);
                }
            }
            cells.push(here);
        }
        Ok(Self { peers, xs: places.iter().map(|(x, _)| *x).collect(), cells })
    }

    /// The lines of a chart of `value`.
    pub(crate) fn lines(&self, value: impl Fn(&Measured) -> f64) -> Vec<Line> {
        let line = |(number, peer): (usize, &Peer)| {
            let points = self.xs.iter().zip(&self.cells).map(|(x, here)| {
                let cells = &here[number];
                let counted = || cells.iter().flatten().filter(|cell| cell.counts());
                let loss = Spread::of(counted().map(Measured::loss)).map_or(0.0, |s| s.median);
                Point {
                    x: *x,
                    spread: Spread::of(counted().map(&value)),
                    void: cells.len() - counted().count(),
                    remark: (loss > 0.0).then(|| format!("{:.3}% lost", loss * 100.0)),
                }
            });
            Line { name: peer.name.clone(), role: peer.role, points: points.collect() }
        };
        self.peers.iter().enumerate().map(line).collect()
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

    /// The ratio of one peer to another in the repeats where both count.
    pub(crate) fn ratio(
        &self,
        x: f64,
        ours: &str,
        theirs: &str,
        value: impl Fn(&Measured) -> f64,
    ) -> Option<Spread> {
        let pairs = self.cells(x, ours).iter().zip(self.cells(x, theirs));
        let pairs = pairs.filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?)));
        let counted = pairs.filter(|(a, b)| a.counts() && b.counts());
        let (a, b): (Vec<f64>, Vec<f64>) = counted.map(|(a, b)| (value(a), value(b))).unzip();
        paired_ratio(&a, &b)
    }
}
