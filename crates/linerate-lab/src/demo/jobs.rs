//! The other jobs beside comparable tools: a few points of their experiments, once each.

use std::path::Path;

use anyhow::{Context, Result};
use linerate::cli::stdio;

use crate::experiments;
use crate::experiments::context::Options;
use crate::experiments::selection::Selection;
use crate::report::summary::Summary;

/// A job, and what is measured for it.
pub(super) struct Job {
    pub(super) experiment: &'static str,
    only: &'static [&'static str],
}

/// A minute in total.
pub(super) const JOBS: &[Job] = &[
    Job {
        experiment: "forward-size",
        only: &["Linux at 64", "nft flowtable at 64", "Linerate at 64"],
    },
    Job { experiment: "receive-rate", only: &["recvmmsg at 1", "auto at 1"] },
    Job {
        experiment: "segment-tcp",
        only: &["uplink at 100", "no offload at 100", "kernel GSO at 100"],
    },
];

impl Job {
    fn options(&self) -> Options {
        let only = self.only.iter().map(|&name| name.to_owned()).collect();
        Options { quick: true, repeats: 1, only: Selection::new(only) }
    }

    pub(super) fn run(&self, out: &Path) -> Result<Summary> {
        let experiments = experiments::find(&[self.experiment.to_owned()])?;
        let experiment = experiments.first().context("no such experiment")?;
        let options = self.options();
        let plan = experiments::plan(experiment, &options)?;
        experiments::prepare(experiment)?;
        stdio::println(format_args!("{}: {}", experiment.name, experiment.title))?;
        let (mut summary, _) = experiments::run(experiment, out, &options, &plan)?;
        summary.notes.push(format!(
            "One measurement of each line: a look. `linerate lab run {}` is the experiment.",
            experiment.name
        ));
        Ok(summary)
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
