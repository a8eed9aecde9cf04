//! The other jobs beside comparable tools: a few points of their experiments, once each.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::experiments;
use crate::experiments::context::Options;
use crate::experiments::selection::Selection;
use crate::report::summary::{Claim, Summary};

/// A job, what is measured for it, and where its figures are.
pub(super) struct Job {
    /// The verb.
    name: &'static str,
    pub(super) experiment: &'static str,
    only: &'static [&'static str],
    /// The chart that the report shows.
    chart: &'static str,
    /// Lines of the chart.
    ours: &'static str,
    rival: &'static str,
}

/// A minute in total.
pub(super) const JOBS: &[Job] = &[
    Job {
        name: "forward",
        experiment: "forward-size",
        only: &["Linux at 64", "nft flowtable at 64", "Linerate at 64"],
        chart: "rate",
        ours: "Linerate",
        rival: "Linux",
    },
    Job {
        name: "receive",
        experiment: "receive-rate",
        only: &["recvmmsg at 1", "xdp at 1"],
        chart: "rate-one",
        ours: "xdp",
        rival: "recvmmsg",
    },
    Job {
        name: "segment",
        experiment: "segment-tcp",
        only: &["uplink at 100", "no offload at 100", "kernel GSO at 100"],
        chart: "throughput",
        ours: "uplink",
        rival: "no offload",
    },
];

/// A virtual machine may give no time to the measurement, which then does not count.
const TRIES: usize = 3;

impl Job {
    fn options(&self) -> Options {
        let only = self.only.iter().map(|&name| name.to_owned()).collect();
        Options { quick: true, repeats: 1, only: Selection::new(only) }
    }

    /// Measures the job. The summary has one chart and one claim: what Linerate did beside the rival.
    ///
    /// # Errors
    /// Why there is no figure of one of them.
    pub(super) fn run(&self, out: &Path) -> Result<Summary> {
        let experiments = experiments::find(&[self.experiment.to_owned()])?;
        let experiment = experiments.first().context("no such experiment")?;
        let options = self.options();
        let plan = experiments::plan(experiment, &options)?;
        experiments::prepare(experiment)?;
        let mut void = Vec::new();
        for _ in 0..TRIES {
            let (mut summary, _) = experiments::run(experiment, out, &options, &plan)?;
            if let Some(claim) = self.keep_chart(&mut summary) {
                summary.claims = vec![claim];
                summary.notes.push(format!(
                    "One measurement of each line: a look. `linerate lab run {}` is the experiment.",
                    experiment.name
                ));
                return Ok(summary);
            }
            void = summary.void;
        }
        bail!("no figure of {} and {} in {TRIES} runs: {}", self.ours, self.rival, void.join("; "))
    }

    /// Leaves the job's chart and no other, and compares both lines where it ends; `None` if one was not measured.
    fn keep_chart(&self, summary: &mut Summary) -> Option<Claim> {
        let charts = std::mem::take(&mut summary.charts);
        let chart = charts.into_iter().find(|chart| chart.id == self.chart)?;
        let last = |name: &str| {
            let line = chart.lines.iter().find(|line| line.name == name)?;
            line.points.last()?.spread.map(|spread| spread.median)
        };
        let (ours, rival) = (last(self.ours)?, last(self.rival)?);
        let unit = &chart.y.unit;
        let claim = Claim::new(
            &format!("{}: {}, beside {}", self.name, self.ours, self.rival),
            format!("{ours:.2} and {rival:.2} {unit}: {:.2} times", ours / rival),
            "measured",
            ours > 0.0,
        );
        summary.charts.push(chart);
        Some(claim)
    }

    /// The claim of a job without figures, which fails.
    pub(super) fn failure(&self, error: &anyhow::Error) -> Claim {
        Claim::new(&format!("{}: measured", self.name), format!("{error:#}"), "measured", false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_have_the_names_of_measurements_and_take_a_minute() {
        let mut seconds = 0.0;
        for job in JOBS {
            let experiment = experiments::find(&[job.experiment.to_owned()]).unwrap()[0];
            for name in job.only {
                let only = Selection::new(vec![(*name).to_owned()]);
                let plan =
                    experiments::plan(&experiment, &Options { only, ..job.options() }).unwrap();
                assert!(plan.measurements > 0, "{name}");
            }
            seconds += experiments::plan(&experiment, &job.options()).unwrap().seconds;
        }
        assert!(seconds < 75.0, "{seconds} s");
    }
}
