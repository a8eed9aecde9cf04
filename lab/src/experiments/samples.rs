//! Lines × places × repeats: what several programs did at several places of an axis.

use anyhow::Result;

use super::context::Context;
use crate::report::distribution::{Distribution, paired_ratio};
use crate::report::summary::{Line, Point, Role};

/// What the line `name` did at `x` in each repeat: a pair to compare.
pub(crate) type SampleKey<'n> = (&'n str, f64);

/// All measurements.
///
/// A value that is taken from a measurement is not a number where the measurement does not count.
#[derive(Debug)]
pub(crate) struct Samples<T> {
    lines: Vec<(String, Role)>,
    xs: Vec<f64>,
    /// By line, place, repeat: `None` where the measurement failed, no repeats where `--only` excludes it.
    values: Vec<Vec<Vec<Option<T>>>>,
}

impl<T> Samples<T> {
    /// Measures each of `lines` at each of `xs` with `measure`, which gets the line, the place and the
    /// repeat. Lines take turns: what drifts on the machine drifts for all of them.
    pub(crate) fn collect(
        context: &mut Context,
        lines: Vec<(String, Role)>,
        xs: &[f64],
        measure: impl FnMut(&mut Context, usize, usize, usize) -> Result<Option<T>>,
    ) -> Result<Self> {
        Self::collect_named(context, lines, xs, str::to_owned, measure)
    }

    /// The same; `--only` knows the measurements of a line by the name that `selected` gives it.
    pub(crate) fn collect_named(
        context: &mut Context,
        lines: Vec<(String, Role)>,
        xs: &[f64],
        selected: impl Fn(&str) -> String,
        mut measure: impl FnMut(&mut Context, usize, usize, usize) -> Result<Option<T>>,
    ) -> Result<Self> {
        let repeats = context.options.repeats;
        let mut values: Vec<Vec<Vec<_>>> = Vec::new();
        values.resize_with(lines.len(), || xs.iter().map(|_| Vec::new()).collect());
        for (place, &x) in xs.iter().enumerate() {
            let wanted: Vec<_> =
                lines.iter().map(|(name, _)| context.is_selected(&selected(name), x)).collect();
            for repeat in 1..=repeats {
                for line in (0..lines.len()).filter(|line| wanted[*line]) {
                    values[line][place].push(measure(context, line, place, repeat)?);
                }
            }
        }
        Ok(Self { lines, xs: xs.to_vec(), values })
    }

    /// The repeats of a line at a place.
    pub(crate) fn at(&self, (name, x): SampleKey<'_>) -> &[Option<T>] {
        let line = self.lines.iter().position(|(line, _)| line == name);
        let place = self.xs.iter().position(|place| *place == x);
        line.zip(place).map_or(&[], |(line, place)| &self.values[line][place])
    }

    /// A value of each repeat.
    pub(crate) fn values(&self, at: SampleKey<'_>, value: impl Fn(&T) -> f64) -> Vec<f64> {
        self.at(at).iter().map(|one| one.as_ref().map_or(f64::NAN, &value)).collect()
    }

    /// Median and spread of a value; `None` where no repeat counts.
    pub(crate) fn distribution(
        &self,
        at: SampleKey<'_>,
        value: impl Fn(&T) -> f64,
    ) -> Option<Distribution> {
        Distribution::of(self.values(at, value))
    }

    /// The median of a value; not a number where no repeat counts.
    pub(crate) fn median(&self, at: SampleKey<'_>, value: impl Fn(&T) -> f64) -> f64 {
        self.distribution(at, value).map_or(f64::NAN, |values| values.median)
    }

    /// Ours over theirs, repeat by repeat.
    pub(crate) fn ratio(
        &self,
        ours: SampleKey<'_>,
        theirs: SampleKey<'_>,
        value: impl Fn(&T) -> f64,
    ) -> Option<Distribution> {
        paired_ratio(&self.values(ours, &value), &self.values(theirs, &value))
    }

    pub(crate) fn lines(&self, value: impl Fn(&T) -> f64) -> Vec<Line> {
        self.lines_with(value, |_| None)
    }

    /// The same with a remark on each point.
    pub(crate) fn lines_with(
        &self,
        value: impl Fn(&T) -> f64,
        remark: impl Fn(&[Option<T>]) -> Option<String>,
    ) -> Vec<Line> {
        let point = |(&x, repeats): (&f64, &Vec<Option<T>>)| {
            let spread = Distribution::of(repeats.iter().flatten().map(&value));
            let void = repeats.len() - spread.map_or(0, |spread| spread.count);
            (!repeats.is_empty()).then(|| Point { x, spread, void, remark: remark(repeats) })
        };
        let line = |((name, role), values): (&(String, Role), &Vec<Vec<Option<T>>>)| Line {
            name: name.clone(),
            role: *role,
            points: self.xs.iter().zip(values).filter_map(point).collect(),
        };
        let lines = self.lines.iter().zip(&self.values).map(line);
        lines.filter(|line| !line.points.is_empty()).collect()
    }

    /// A bar for each line of its value at `x`.
    pub(crate) fn bars(&self, x: f64, value: impl Fn(&T) -> f64) -> Vec<Line> {
        bars(self.lines(value), x)
    }
}

/// The points at `x` as bars.
pub(crate) fn bars(mut lines: Vec<Line>, x: f64) -> Vec<Line> {
    for line in &mut lines {
        line.points.retain(|point| point.x == x);
        line.points.iter_mut().for_each(|point| point.x = 0.0);
    }
    lines.retain(|line| !line.points.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Samples<f64> {
        let lines = [("ours", Role::Ours), ("theirs", Role::Peer)];
        Samples {
            lines: lines.map(|(name, role)| (name.to_owned(), role)).into(),
            xs: vec![1.0, 2.0],
            values: vec![
                vec![vec![Some(4.0), None, Some(9.0)], Vec::new()],
                vec![vec![Some(2.0), Some(1.0), Some(3.0)], vec![Some(f64::NAN)]],
            ],
        }
    }

    #[test]
    fn pairs_count_where_both_do() {
        let ratio = samples().ratio(("ours", 1.0), ("theirs", 1.0), |value| *value).unwrap();
        assert_eq!((ratio.count, ratio.min, ratio.max), (2, 2.0, 3.0));
        assert_eq!(samples().ratio(("ours", 2.0), ("theirs", 2.0), |value| *value), None);
        assert_eq!(samples().at(("nobody", 1.0)), &[]);
        assert_eq!(samples().median(("theirs", 1.0), |value| value * 2.0), 4.0);
    }

    #[test]
    fn points_without_repeats_are_left_out_and_failures_are_void() {
        let lines = samples().lines(|value| *value);
        let points = |line: &Line| -> Vec<_> {
            line.points.iter().map(|point| (point.x, point.spread.is_some(), point.void)).collect()
        };
        assert_eq!(points(&lines[0]), [(1.0, true, 1)]);
        assert_eq!(points(&lines[1]), [(1.0, true, 0), (2.0, false, 1)]);
        let bars = samples().bars(2.0, |value| *value);
        assert_eq!((bars.len(), bars[0].points[0].x), (1, 0.0));
    }
}
