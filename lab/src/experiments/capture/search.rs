//! The highest rate without loss.

use anyhow::Result;

use crate::experiments::capture::measurement::Measurement;
use crate::experiments::context::Context;
use crate::experiments::samples::{Samples, bars};
use crate::peers::capture::Peer;
use crate::report::distribution::Distribution;
use crate::report::summary::Line;
use crate::traffic::generated::Traffic;

/// What is tried, as parts of the rate at which the peer received at full speed.
const STEPS: [f64; 9] = [0.99, 0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5];

/// Bytes of a frame.
const X: f64 = 64.0;

/// The loss-free rates of several peers, in rounds, each first at full speed and, where frames were
/// lost there, at ever lower rates until none is. One entry a repeat: 0 where frames were lost at
/// every rate, so that a capture which never gets there cannot hide behind its better repeats; NaN
/// where no try counted.
pub(crate) struct LossFreeRates(Samples<f64>);

impl LossFreeRates {
    /// Searches with `frames` 64-byte frames a try; `prepare` runs before every try.
    pub(crate) fn search(
        context: &mut Context,
        peers: Vec<Peer>,
        frames: u64,
        mut prepare: impl FnMut() -> Result<()>,
    ) -> Result<Self> {
        let peers = context.select_peers(peers, X)?;
        let lines = peers.iter().map(Peer::line).collect();
        let samples = Samples::collect(context, lines, &[X], |context, peer, _, repeat| {
            let (mut reached, mut best) = (0.0, f64::NAN);
            for step in std::iter::once(None).chain(STEPS.map(Some)) {
                let rate = step.map(|step| (reached * step) as u64);
                prepare()?;
                let traffic = Traffic::smallest(frames, rate);
                let tried = context.point(&peers[peer], &traffic, X, repeat)?;
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
            Ok(Some(best))
        })?;
        prepare()?;
        Ok(Self(samples))
    }

    /// A bar for each peer, in millions a second.
    pub(crate) fn bars(&self) -> Vec<Line> {
        let remark = |rates: &[Option<f64>]| {
            let never = rates.iter().filter(|rate| **rate == Some(0.0)).count();
            (never > 0).then(|| format!("lost frames at every rate in {never} runs"))
        };
        bars(self.0.lines_with(|rate| rate / 1e6, remark), X)
    }

    /// Ours over theirs, repeat by repeat; where theirs is 0 there is no ratio.
    pub(crate) fn ratio(&self, ours: &str, theirs: &str) -> Option<Distribution> {
        self.0.ratio((ours, X), (theirs, X), |rate| *rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::context::Options;

    #[test]
    fn a_rate_that_was_never_found_counts_against_who_did_not_find_it() {
        let mut context = Context::dry_run(Options { repeats: 4, ..Options::default() });
        let lines = [Peer::capture("xdp"), Peer::tcpdump()].map(|peer| peer.line()).into();
        let rates = [[3.0, 0.0, 0.0, f64::NAN], [1.0, 1.0, 0.0, 1.0]];
        let samples = Samples::collect(&mut context, lines, &[X], |_, line, _, repeat| {
            Ok(Some(rates[line][repeat - 1]))
        });
        let free = LossFreeRates(samples.unwrap());
        let ours = free.ratio("xdp", "tcpdump").unwrap();
        assert_eq!((ours.count, ours.min, ours.max), (2, 0.0, 3.0));
        let theirs = free.ratio("tcpdump", "xdp").unwrap();
        assert_eq!((theirs.count, theirs.median), (1, 1.0 / 3.0));
        let bars = free.bars();
        assert_eq!((bars[0].points[0].void, bars[1].points[0].void), (1, 0));
        assert!(bars[0].points[0].remark.as_ref().unwrap().contains("in 2 runs"));
    }
}
