//! The highest rate without loss.

use anyhow::Result;

use super::Context;
use crate::measure::Measured;
use crate::peer::Peer;
use crate::statistics::Spread;
use crate::traffic::Traffic;

/// What is tried, as parts of the rate at which the peer received at full speed.
const STEPS: [f64; 9] = [0.99, 0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5];

/// The loss-free rates of several peers, in rounds, each first at full speed and, where frames were
/// lost there, at ever lower rates until none is. One entry a repeat, NaN where none was found.
pub(crate) struct LossFree {
    names: Vec<String>,
    rates: Vec<Vec<f64>>,
}

impl LossFree {
    /// Searches with `frames` 64-byte frames a try; `prepare` runs before every try.
    pub(crate) fn search(
        context: &mut Context,
        peers: &[Peer],
        frames: u64,
        mut prepare: impl FnMut() -> Result<()>,
    ) -> Result<Self> {
        let repeats = context.options.repeats;
        context.expect(peers.len() * repeats);
        let mut rates = vec![Vec::new(); peers.len()];
        for repeat in 1..=repeats {
            for (peer, found) in peers.iter().zip(&mut rates) {
                prepare()?;
                let full = context.point(peer, &Traffic::smallest(frames, None), 64.0, repeat)?;
                let mut best = full.as_ref().and_then(clean);
                let reached = full.as_ref().map_or(0.0, Measured::rate);
                for step in STEPS {
                    if best.is_some() || reached == 0.0 {
                        break;
                    }
                    prepare()?;
                    let rate = Some((reached * step) as u64);
                    let traffic = Traffic::smallest(frames, rate);
                    best = context.point(peer, &traffic, 64.0, repeat)?.as_ref().and_then(clean);
                }
                found.push(best.unwrap_or(f64::NAN));
            }
        }
        prepare()?;
        Ok(Self { names: peers.iter().map(|peer| peer.name.clone()).collect(), rates })
    }

    /// The rates of one peer.
    pub(crate) fn of(&self, name: &str) -> Option<Spread> {
        Spread::of(self.rates(name)?.iter().copied())
    }

    /// Ours over theirs, repeat by repeat.
    pub(crate) fn ratio(&self, ours: &str, theirs: &str) -> Option<Spread> {
        crate::statistics::paired_ratio(self.rates(ours)?, self.rates(theirs)?)
    }

    fn rates(&self, name: &str) -> Option<&[f64]> {
        let at = self.names.iter().position(|known| known == name)?;
        Some(&self.rates[at])
    }
}

/// Its rate, if not a frame was lost.
fn clean(measured: &Measured) -> Option<f64> {
    (measured.counts() && measured.lost() == 0).then(|| measured.rate())
}
