//! The highest rate without loss.

use anyhow::Result;

use crate::experiments::capture::measurement::Measurement;
use crate::experiments::context::Context;
use crate::peers::capture::Peer;
use crate::report::distribution::{Distribution, paired_ratio};
use crate::report::summary::{Line, Point};
use crate::traffic::generated::Traffic;

/// What is tried, as parts of the rate at which the peer received at full speed.
const STEPS: [f64; 9] = [0.99, 0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5];

/// The loss-free rates of several peers, in rounds, each first at full speed and, where frames were
/// lost there, at ever lower rates until none is. One entry a repeat: 0 where frames were lost at
/// every rate, so that a capture which never gets there cannot hide behind its better repeats; NaN
/// where no try counted.
pub(crate) struct LossFreeRates {
    peers: Vec<Peer>,
    rates: Vec<Vec<f64>>,
}

impl LossFreeRates {
    /// Searches with `frames` 64-byte frames a try; `prepare` runs before every try.
    pub(crate) fn search(
        context: &mut Context,
        peers: Vec<Peer>,
        frames: u64,
        mut prepare: impl FnMut() -> Result<()>,
    ) -> Result<Self> {
        let peers = context.wanted(peers, 64.0)?;
        let mut rates = vec![Vec::new(); peers.len()];
        for repeat in 1..=context.options.repeats {
            for (peer, found) in peers.iter().zip(&mut rates) {
                let mut reached = 0.0;
                let mut best = f64::NAN;
                for step in std::iter::once(None).chain(STEPS.map(Some)) {
                    let rate = step.map(|step| (reached * step) as u64);
                    let traffic = Traffic::smallest(frames, rate);
                    prepare()?;
                    let tried = context.point(peer, &traffic, 64.0, repeat)?;
                    if step.is_none() {
                        reached = tried.as_ref().map_or(0.0, Measurement::rate);
                    }
                    if let Some(tried) = tried.filter(Measurement::counts) {
                        best = if tried.lost() == 0 { tried.rate() } else { 0.0 };
                    }
                    if best > 0.0 || reached == 0.0 {
                        break;
                    }
                }
                found.push(best);
            }
        }
        prepare()?;
        Ok(Self { peers, rates })
    }

    /// A bar for each peer, in millions a second.
    pub(crate) fn bars(&self) -> Vec<Line> {
        let bar = |(peer, rates): (&Peer, &Vec<f64>)| {
            let spread = Distribution::of(rates.iter().copied()).map(|spread| spread.scaled(1e-6));
            let void = rates.iter().filter(|rate| rate.is_nan()).count();
            let never = rates.iter().filter(|rate| **rate == 0.0).count();
            let remark = (never > 0).then(|| format!("lost frames at every rate in {never} runs"));
            let points = vec![Point { x: 0.0, spread, void, remark }];
            Line { name: peer.name.clone(), role: peer.role, points }
        };
        self.peers.iter().zip(&self.rates).map(bar).collect()
    }

    /// Ours over theirs, repeat by repeat; where theirs is 0 there is no ratio.
    pub(crate) fn ratio(&self, ours: &str, theirs: &str) -> Option<Distribution> {
        paired_ratio(self.rates(ours)?, self.rates(theirs)?)
    }

    fn rates(&self, name: &str) -> Option<&[f64]> {
        let at = self.peers.iter().position(|peer| peer.name == name)?;
        Some(&self.rates[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_was_never_found_counts_against_who_did_not_find_it() {
        let peers = vec![Peer::capture("xdp"), Peer::tcpdump()];
        let rates = vec![vec![3.0, 0.0, 0.0, f64::NAN], vec![1.0, 1.0, 0.0, 1.0]];
        let free = LossFreeRates { peers, rates };
        let ours = free.ratio("xdp", "tcpdump").unwrap();
        assert_eq!((ours.count, ours.min, ours.max), (2, 0.0, 3.0));
        let theirs = free.ratio("tcpdump", "xdp").unwrap();
        assert_eq!((theirs.count, theirs.median), (1, 1.0 / 3.0));
        let bars = free.bars();
        assert_eq!((bars[0].points[0].void, bars[1].points[0].void), (1, 0));
        assert!(bars[0].points[0].remark.as_ref().unwrap().contains("in 2 runs"));
    }
}
