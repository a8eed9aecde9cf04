//! Median and spread of a few repeats.

use linerate_net::text::plural;
use serde::{Deserialize, Serialize};

/// What several measurements of the same thing say together.
///
/// With five or so repeats on a shared machine, the mean follows the one run that a neighbour
/// disturbed; the median does not, and the quartiles show how far to trust it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Distribution {
    /// How many measurements.
    pub(crate) count: usize,
    pub(crate) min: f64,
    /// A quarter of them are below.
    pub(crate) low: f64,
    /// Half of them are below.
    pub(crate) median: f64,
    /// A quarter of them are above.
    pub(crate) high: f64,
    pub(crate) max: f64,
}

impl Distribution {
    /// Their spread as a chart says it.
    pub(crate) fn words(&self, unit: &str) -> String {
        let [median, min, max] = [self.median, self.min, self.max].map(number);
        format!("{median} {unit} (min {min}, max {max}, {})", plural(self.count as u64, "run"))
    }

    /// Sums up `values`; `None` when there is none. Values that are not finite are left out.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        Some(Self {
            count: sorted.len(),
            min,
            low: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            high: quantile(&sorted, 0.75),
            max,
        })
    }

    /// Whether more than half of the repeats are valid. What was void is not known to be like the rest.
    pub(crate) fn is_majority_of(&self, repeats: usize) -> bool {
        self.count * 2 > repeats
    }

    /// The same in another unit, by a function that rises.
    pub(crate) fn map(self, unit: impl Fn(f64) -> f64) -> Self {
        let Self { count, min, low, median, high, max } = self;
        let [min, low, median, high, max] = [min, low, median, high, max].map(unit);
        Self { count, min, low, median, high, max }
    }
}

/// Ratios of alternated pairs (A B A B …): each A over the B that ran next to it, so that what
/// changes slowly on the machine cancels out.
pub(crate) fn paired_ratio(a: &[f64], b: &[f64]) -> Option<Distribution> {
    Distribution::of(a.iter().zip(b).map(|(a, b)| a / b))
}

/// Linear interpolation between the two neighbours of the wanted rank.
pub(crate) fn quantile(sorted: &[f64], fraction: f64) -> f64 {
    let rank = fraction * (sorted.len() - 1) as f64;
    let (below, above) = (rank.floor() as usize, rank.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (rank - below as f64)
}

/// A number as people write it: three significant digits, no more zeros than needed.
pub(crate) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    grouped(&text)
}

/// Thousands set apart by a thin space.
fn grouped(text: &str) -> String {
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    if digits.len() < 5 {
        return text.to_owned();
    }
    let mut out = String::from(sign);
    for (at, c) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(c);
    }
    out
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_interpolate() {
        let spread = Distribution::of([5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((spread.min, spread.low, spread.median), (1.0, 2.0, 3.0));
        assert_eq!((spread.high, spread.max, spread.count), (4.0, 5.0, 5));
        let even = Distribution::of([1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!((even.low, even.median, even.high), (1.75, 2.5, 3.25));
        assert!(even.is_majority_of(7) && !even.is_majority_of(8));
    }

    #[test]
    fn one_value_is_its_own_spread_and_none_is_none() {
        let one = Distribution::of([7.0]).unwrap();
        assert_eq!((one.min, one.median, one.max), (7.0, 7.0, 7.0));
        assert_eq!(Distribution::of([]), None);
        assert_eq!(Distribution::of([f64::NAN]), None);
    }

    #[test]
    fn pairs_cancel_a_common_drift() {
        let ratio = paired_ratio(&[2.0, 4.0, 6.0], &[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 2.0, 2.0));
    }
}
