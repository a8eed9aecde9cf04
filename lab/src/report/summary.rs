//! What a run says, in the form that is stored and drawn.

use serde::{Deserialize, Serialize};

use crate::report::distribution::Distribution;
use crate::report::environment::Environment;

/// The JSON summary of one run; the report needs nothing else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The experiment's name on the command line.
    pub(crate) experiment: String,
    pub(crate) title: String,
    /// What is measured and how, in a paragraph.
    pub(crate) about: String,
    /// When it began, local time.
    pub(crate) started: String,
    pub(crate) seconds: f64,
    /// A shortened run: fewer points and frames, as many repeats.
    pub(crate) quick: bool,
    pub(crate) environment: Environment,
    pub(crate) charts: Vec<Chart>,
    pub(crate) claims: Vec<Claim>,
    /// What a reader must know: peers left out, stand-ins, surprises.
    pub(crate) notes: Vec<String>,
    /// Runs that did not count, each with its reason.
    pub(crate) void: Vec<String>,
}

impl Summary {
    /// Whether no claim failed.
    pub(crate) fn all_claims_hold(&self) -> bool {
        self.claims.iter().all(|claim| claim.holds != Some(false))
    }
}

/// One chart: lines (or bars, where x is a name) of medians with their spread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Chart {
    /// Unique within the run; part of the element's id on the page.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) caption: String,
    /// The horizontal axis; `None` for bars, which are named.
    pub(crate) x: Option<Axis>,
    /// The vertical axis (the bars' axis).
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
}

impl Chart {
    /// Lines, along a horizontal axis.
    pub(crate) fn lines(
        id: impl Into<String>,
        title: impl Into<String>,
        caption: impl Into<String>,
        x: Axis,
        y: Axis,
        lines: Vec<Line>,
    ) -> Self {
        Self { x: Some(x), ..Self::bars(id, title, caption, y, lines) }
    }

    /// A bar for each line.
    pub(crate) fn bars(
        id: impl Into<String>,
        title: impl Into<String>,
        caption: impl Into<String>,
        y: Axis,
        lines: Vec<Line>,
    ) -> Self {
        let (id, title, caption) = (id.into(), title.into(), caption.into());
        Self { id, title, caption, x: None, y, lines }
    }
}

/// An axis.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Axis {
    pub(crate) label: String,
    /// Its unit, as printed after a number.
    pub(crate) unit: String,
    /// Powers of two or ten are evenly spaced.
    #[serde(default)]
    pub(crate) logarithmic: bool,
}

impl Axis {
    pub(crate) fn linear(label: &str, unit: &str) -> Self {
        Self { label: label.to_owned(), unit: unit.to_owned(), logarithmic: false }
    }

    /// An axis on which doubling is a step.
    pub(crate) fn logarithmic(label: &str, unit: &str) -> Self {
        Self { logarithmic: true, ..Self::linear(label, unit) }
    }
}

/// The kind of a line, which decides how it is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Ours,
    /// A program that people use today.
    Peer,
    /// An upper bound: a plain loop, the generator itself.
    Limit,
}

/// One line or bar.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Its points by rising x; one point for a bar.
    pub(crate) points: Vec<Point>,
}

/// One point with its repeats.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Point {
    /// Where it is on the horizontal axis; 0 for a bar.
    pub(crate) x: f64,
    /// Median and spread of the repeats that count; `None` when all were void.
    pub(crate) spread: Option<Distribution>,
    /// Repeats that did not count.
    #[serde(default)]
    pub(crate) void: usize,
    /// What to say beside the number in the table ("0.3% lost").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) remark: Option<String>,
}

/// A claim, the figure that was measured and the bound it must keep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) claim: String,
    /// What was measured, with its spread.
    pub(crate) figure: String,
    pub(crate) bound: String,
    /// Whether it held; `None` where it could not be judged (a peer is missing, too many runs void).
    pub(crate) holds: Option<bool>,
    /// The median decided, but single runs are on the other side of the bound.
    #[serde(default)]
    pub(crate) straddles: bool,
}

/// The ratio of two peers in each repeat; `None` if no pair of runs counts.
type Ratio = Option<Distribution>;

impl Claim {
    /// A figure against its bound.
    pub(crate) fn new(claim: &str, figure: String, bound: &str, holds: bool) -> Self {
        let (claim, bound) = (claim.to_owned(), bound.to_owned());
        Self { claim, figure, bound, holds: Some(holds), straddles: false }
    }

    /// A claim that this run cannot judge, and why.
    pub(crate) fn open(claim: &str, why: &str, bound: &str) -> Self {
        let (claim, bound) = (claim.to_owned(), bound.to_owned());
        Self { claim, figure: why.to_owned(), bound, holds: None, straddles: false }
    }

    /// A ratio of `repeats` that must be at least `bound`.
    pub(crate) fn at_least(claim: &str, ratio: Ratio, bound: f64, repeats: usize) -> Self {
        Self::ratio(claim, ratio, &format!("at least {bound}"), repeats, |value| value >= bound)
    }

    /// A ratio of `repeats` that must be at most `bound`.
    pub(crate) fn at_most(claim: &str, ratio: Ratio, bound: f64, repeats: usize) -> Self {
        Self::ratio(claim, ratio, &format!("at most {bound:.3}"), repeats, |value| value <= bound)
    }

    /// A ratio of `repeats` that must be at least `bound` in every pair.
    pub(crate) fn all_at_least(claim: &str, ratio: Ratio, bound: f64, repeats: usize) -> Self {
        let judged = Self::at_least(claim, ratio, bound, repeats);
        let (Some(_), Some(spread)) = (judged.holds, ratio) else { return judged };
        Self { holds: Some(spread.min >= bound), straddles: false, ..judged }
    }

    /// A figure of `repeats` runs, in `unit`, whose median decides.
    pub(crate) fn of_runs(
        claim: &str,
        runs: Option<Distribution>,
        bound: &str,
        repeats: usize,
        unit: &str,
        holds: impl Fn(f64) -> bool,
    ) -> Self {
        let Some(spread) = runs.filter(|runs| runs.is_majority_of(repeats)) else {
            return Self::open(claim, "too few runs counted", bound);
        };
        let Distribution { count, min, median, max, .. } = spread;
        let figure = format!("{median:.2} {unit} (min {min:.2}, max {max:.2}, {count} runs)");
        let straddles = holds(min) != holds(max);
        Self { straddles, ..Self::new(claim, figure, bound, holds(median)) }
    }

    /// The most of each run's figure, which must be under 0.02.
    pub(crate) fn most_is_few(claim: &str, runs: Option<Distribution>) -> Self {
        let bound = "under 0.02";
        let Some(Distribution { max, median, count, .. }) = runs else {
            return Self::open(claim, "no run counted", bound);
        };
        let figure = format!("{max:.4} (median {median:.4}, {count} runs)");
        Self::new(claim, figure, bound, max < 0.02)
    }

    fn ratio(
        claim: &str,
        ratio: Ratio,
        bound: &str,
        repeats: usize,
        holds: impl Fn(f64) -> bool,
    ) -> Self {
        let Some(spread) = ratio else {
            return Self::open(claim, "no pair of runs counted", bound);
        };
        let Distribution { count, min, median, max, .. } = spread;
        let figure = format!("{median:.3} (min {min:.3}, max {max:.3}, {count} pairs)");
        if !spread.is_majority_of(repeats) {
            return Self::open(claim, &format!("{figure}: too few of {repeats}"), bound);
        }
        let straddles = holds(min) != holds(max);
        Self { straddles, ..Self::new(claim, figure, bound, holds(median)) }
    }

    /// The same with more words after its figure.
    #[must_use]
    pub(crate) fn adding(mut self, words: &str) -> Self {
        self.figure += words;
        self
    }

    pub(crate) fn words(&self) -> &'static str {
        match (self.holds, self.straddles) {
            (Some(true), true) => "median holds; spread on both sides",
            (Some(false), true) => "median does not; spread on both sides",
            _ => self.verdict(),
        }
    }

    /// "yes", "no" or "open".
    pub(crate) fn verdict(&self) -> &'static str {
        match self.holds {
            Some(true) => "yes",
            Some(false) => "no",
            None => "open",
        }
    }
}

/// The closing table of a run, as text.
pub(crate) fn claim_table(claims: &[Claim]) -> String {
    let mut rows = vec![["claim", "figure", "bound", "holds"].map(str::to_owned)];
    rows.extend(claims.iter().map(|claim| {
        [claim.claim.clone(), claim.figure.clone(), claim.bound.clone(), claim.words().to_owned()]
    }));
    text_table(&rows)
}

/// Rows under each other, columns as wide as they need.
pub(crate) fn text_table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let line: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += line.join("  ").trim_end();
        text.push('\n');
        if number == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text += &rule.join("  ");
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_judged_by_its_median_and_says_where_the_rest_lies() {
        let ratio = Distribution::of([2.6, 2.8, 2.9]);
        let least = |bound| Claim::at_least("a", ratio, bound, 5);
        assert_eq!((least(2.5).holds, least(2.5).words()), (Some(true), "yes"));
        let both = least(2.7);
        assert_eq!((both.holds, both.words()), (Some(true), "median holds; spread on both sides"));
        let both = least(2.85);
        assert_eq!((both.verdict(), both.straddles), ("no", true));
        assert_eq!(least(3.0).words(), "no");
        assert_eq!(Claim::at_most("a", ratio, 2.5, 5).words(), "no");
        assert_eq!(Claim::at_most("a", None, 2.7, 5).words(), "open");
        let all = |bound| Claim::all_at_least("a", ratio, bound, 5);
        assert_eq!((all(2.6).words(), all(2.7).words()), ("yes", "no"));
        assert_eq!(Claim::all_at_least("a", None, 2.7, 5).words(), "open");
        let few = Claim::at_least("a", ratio, 2.5, 6);
        assert_eq!((few.holds, few.figure.contains("too few of 6")), (None, true));
    }

    #[test]
    fn the_table_lines_its_columns_up() {
        let text = text_table(&[["a", "bb"].map(str::to_owned), ["ccc", "d"].map(str::to_owned)]);
        assert_eq!(text, "a    bb\n---  --\nccc  d\n");
    }
}
