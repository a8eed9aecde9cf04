//! An order of flows by Zipf's law: the flow of rank r has 1/r^s times the frames of the first.

use std::sync::Arc;

use crate::options::RandomFields;
use crate::random::Random;
use crate::{Error, Result};

/// Frames after which the order starts again: most of the sessions of a tail of millions have one of them.
const LENGTHS: std::ops::RangeInclusive<usize> = 1 << 12..=1 << 22;
/// Frames of each flow in an order, on the average, where there is room.
const FRAMES: usize = 64;

/// An order of numbers from 0 on, a power of two of them.
pub(crate) fn order(
    exponent: f64,
    flows: Option<u64>,
    random: RandomFields,
    seed: u64,
) -> Result<Arc<[u32]>> {
    let refused = |reason: &str| Error::argument(format!("zipf {exponent}"), reason);
    if !(exponent > 0.0 && exponent.is_finite()) {
        return Err(refused("must be a number above 0"));
    }
    if random.varies_by_flow() {
        return Err(refused("says which flow each frame is of: no field of it can be random"));
    }
    let flows = flows.ok_or_else(|| refused("needs a number of flows"))?;
    let flows = u32::try_from(flows).map_err(|_| refused("takes at most 2^32 - 1 flows"))?;
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=flows)
        .map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        })
        .collect();
    let length = (flows as usize).saturating_mul(FRAMES).clamp(*LENGTHS.start(), *LENGTHS.end());
    let mut random = Random::for_flows(seed);
    let mut draw = || {
        let at = random.unit() * sum;
        sums.partition_point(|sum| *sum <= at).min(sums.len() - 1) as u32
    };
    Ok((0..length.next_power_of_two()).map(|_| draw()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_their_shares() {
        for (exponent, flows) in [(1.1, 1000), (0.5, 50), (2.0, 3), (1.1, 1)] {
            let order = order(exponent, Some(flows), RandomFields::default(), 1).unwrap();
            assert!(order.len().is_power_of_two());
            let weight = |rank: u64| (rank as f64).powf(-exponent);
            let sum: f64 = (1..=flows).map(weight).sum();
            for rank in [1, 2, 3, flows].into_iter().filter(|rank| *rank <= flows) {
                let count =
                    order.iter().filter(|flow| u64::from(**flow) + 1 == rank).count() as f64;
                let expected = weight(rank) / sum * order.len() as f64;
                let bound = 5.0 * expected.sqrt().max(1.0);
                assert!(
                    (count - expected).abs() <= bound,
                    "{exponent} {rank}: {count}, {expected}"
                );
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let none = RandomFields::default();
        let ports = RandomFields { source_port: true, ..none };
        for (exponent, flows, random) in [
            (0.0, Some(5), none),
            (f64::NAN, Some(5), none),
            (1.1, None, none),
            (1.1, Some(1 << 32), none),
            (1.1, Some(5), ports),
        ] {
            assert!(order(exponent, flows, random, 1).is_err(), "{exponent} {flows:?}");
        }
    }
}
