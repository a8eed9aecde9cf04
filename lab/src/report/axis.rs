//! Positions of values and ticks.

use crate::report::summary::Axis;

/// Maps values of an axis onto a stretch of the drawing.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    logarithmic: bool,
    /// The values that carry a label.
    pub(crate) ticks: Vec<f64>,
}

impl Scale {
    /// From zero to just above `largest`, with about `wanted` round ticks.
    pub(crate) fn from_zero(largest: f64, start: f64, end: f64, wanted: usize) -> Self {
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let step = round_step(largest / (wanted as f64 + 1.5));
        let count = (largest / step - 1e-6).ceil() as usize;
        let ticks: Vec<f64> = (0..=count).map(|tick| tick as f64 * step).collect();
        let to = count as f64 * step;
        Self { from: 0.0, to, start, end, logarithmic: false, ticks }
    }

    /// Over the values that were measured, each of them a tick while there is room for `wanted`.
    pub(crate) fn over(axis: &Axis, values: &[f64], start: f64, end: f64, wanted: usize) -> Self {
        let mut ticks = values.to_vec();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        let logarithmic = axis.logarithmic && ticks.first().is_some_and(|first| *first > 0.0);
        let (mut from, mut to) =
            (ticks.first().copied().unwrap_or(0.0), ticks.last().copied().unwrap_or(1.0));
        if from == to {
            (from, to) = if logarithmic { (from / 2.0, to * 2.0) } else { (from - 0.5, to + 0.5) };
        }
        let mut scale = Self { from, to, start, end, logarithmic, ticks: Vec::new() };
        // A tick that would overlap the previous one gets no label.
        let room = (end - start).abs() / wanted as f64;
        let mut last = f64::NEG_INFINITY;
        for tick in ticks {
            let place = scale.place(tick);
            if (place - last).abs() >= room {
                scale.ticks.push(tick);
                last = place;
            }
        }
        scale
    }

    /// The position of a value.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let bend = |value: f64| if self.logarithmic { value.log2() } else { value };
        let part = (bend(value) - bend(self.from)) / (bend(self.to) - bend(self.from));
        self.start + part * (self.end - self.start)
    }
}

/// The next of 1, 2, 2.5, 5 times a power of ten.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let fitting = steps.iter().find(|step| **step * power >= rough * 0.9999);
    fitting.unwrap_or(&10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_data() {
        let scale = Scale::from_zero(2.83, 400.0, 0.0, 6);
        assert_eq!(scale.ticks, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]);
        assert_eq!((scale.place(0.0), scale.place(3.0)), (400.0, 0.0));
        assert_eq!(Scale::from_zero(0.0, 1.0, 0.0, 5).ticks.last(), Some(&1.0));
    }

    #[test]
    fn doubling_is_a_step_on_a_logarithmic_axis() {
        let axis = Axis::logarithmic("size", "bytes");
        let scale = Scale::over(&axis, &[64.0, 128.0, 256.0], 0.0, 200.0, 10);
        assert_eq!(scale.place(128.0), 100.0);
        assert_eq!(scale.ticks, [64.0, 128.0, 256.0]);
    }

    #[test]
    fn crowded_ticks_lose_their_labels() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let scale = Scale::over(&Axis::linear("x", ""), &values, 0.0, 300.0, 6);
        assert!(scale.ticks.len() <= 7, "{:?}", scale.ticks);
    }
}
