//! The experiments: one registry, one file each.

pub(crate) mod capture;
pub(crate) mod context;
mod flows;
mod forward;
mod receive;
mod replay;
pub(crate) mod samples;
mod segment;
pub(crate) mod selection;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use linerate_forward::runtime::pins::{BPFFS, is_bpffs};

use crate::measure::cgroup::CpuGroup;
use crate::mounts;
use crate::report::summary::Summary;
use context::{Context, Experiment, Options, Plan};

/// All of them, in the order of the report.
pub(crate) const ALL: [Experiment; 25] = [
    capture::rate::EXPERIMENT,
    capture::stage::EXPERIMENT,
    capture::write::EXPERIMENT,
    capture::stall::EXPERIMENT,
    capture::pages::EXPERIMENT,
    capture::pcap::EXPERIMENT,
    capture::trace::EXPERIMENT,
    capture::queues::EXPERIMENT,
    forward::size::EXPERIMENT,
    forward::statistics::EXPERIMENT,
    forward::sessions::EXPERIMENT,
    forward::ageing::EXPERIMENT,
    forward::changes::EXPERIMENT,
    forward::uplink::EXPERIMENT,
    segment::rate::EXPERIMENT,
    segment::tcp::EXPERIMENT,
    segment::udp::EXPERIMENT,
    receive::rate::EXPERIMENT,
    receive::latency::EXPERIMENT,
    receive::echo::EXPERIMENT,
    receive::dns::EXPERIMENT,
    receive::quic::EXPERIMENT,
    replay::gaps::EXPERIMENT,
    flows::rate::EXPERIMENT,
    flows::meter::EXPERIMENT,
];

/// Finds experiments by name; `all` stands for each of them.
pub(crate) fn find(names: &[String]) -> Result<Vec<Experiment>> {
    if names.iter().any(|name| name == "all") {
        return Ok(ALL.to_vec());
    }
    let known = || ALL.map(|experiment| experiment.name).join(", ");
    names
        .iter()
        .map(|name| match ALL.iter().find(|experiment| experiment.name == name) {
            Some(experiment) => Ok(*experiment),
            None => bail!("there is no experiment {name:?}; choose of {}, or all", known()),
        })
        .collect()
}

/// What a run will be: the experiment is gone through without measuring.
pub(crate) fn plan(experiment: &Experiment, options: &Options) -> Result<Plan> {
    let mut context = Context::dry_run(options.clone());
    (experiment.run)(&mut context)?;
    Ok(context.plan())
}

/// The message if `--only` selects no measurement: lists the existing names.
pub(crate) fn nothing_selected(
    experiment: &Experiment,
    options: &Options,
    plan: &Plan,
) -> Option<String> {
    (plan.measurements == 0).then(|| {
        format!(
            "no measurement of {} is called {}; there are: {}",
            experiment.name,
            options.only.words(),
            plan.names.join("; ")
        )
    })
}

/// Prepares the host for an experiment.
///
/// # Errors
/// What the host lacks, so that no measurement could succeed.
pub(crate) fn prepare(experiment: &Experiment) -> Result<()> {
    // `linerate forward` pins its programs. Without a place for them it would not start in any measurement.
    if experiment.name.starts_with(FORWARD) {
        ensure_bpffs().with_context(|| {
            format!("{} cannot run: linerate forward would not start", experiment.name)
        })?;
    }
    // An experiment that needs one says that it is missing.
    let _ = CpuGroup::ensure_hierarchy();
    Ok(())
}

/// Mounts a BPF file system where there is none.
fn ensure_bpffs() -> Result<()> {
    let at = Path::new(BPFFS);
    if is_bpffs(at) {
        return Ok(());
    }
    mounts::become_private()?;
    if !at.exists() {
        mounts::mount("sysfs", Path::new("/sys"), "")?;
    }
    mounts::mount("bpf", at, "")
}

/// The prefix of the names of the experiments on forwarding.
const FORWARD: &str = "forward-";

/// Runs one, stores it, and returns its summary and folder.
pub(crate) fn run(
    experiment: &Experiment,
    out: &Path,
    options: &Options,
    plan: &Plan,
) -> Result<(Summary, PathBuf)> {
    let mut context = Context::begin(experiment, out, options.clone(), plan)?;
    let outcome = (experiment.run)(&mut context);
    if let Err(error) = &outcome {
        context.notes.push(format!("This run failed, and its results are incomplete: {error:#}"));
    }
    let finished = context.finish(experiment)?;
    outcome?;
    let Some((summary, folder)) = finished else { bail!("a dry run is no run") };
    Ok((summary, folder))
}

#[cfg(test)]
mod tests {
    use super::selection::Selection;
    use super::*;

    #[test]
    fn every_experiment_can_be_planned_without_measuring() {
        for experiment in &ALL {
            let quick = Options { quick: true, ..Options::default() };
            let (quick, full) =
                (plan(experiment, &quick).unwrap(), plan(experiment, &Options::default()).unwrap());
            assert!(quick.measurements > 0 && quick.seconds > 1.0, "{}", experiment.name);
            assert!(full.seconds > quick.seconds, "{}", experiment.name);
            assert!(full.names.iter().all(|name| name.contains(" at ")), "{:?}", full.names);
        }
    }

    #[test]
    fn a_plan_is_as_narrow_as_it_is_asked_to_be() {
        let only = |pattern: &str| Options {
            only: Selection::new(vec![pattern.into()]),
            repeats: 3,
            ..Options::default()
        };
        let narrow = plan(&capture::rate::EXPERIMENT, &only("xdp at 64")).unwrap();
        assert_eq!(narrow.measurements, 3 + 3, "the sweep and the search");
        assert_eq!(nothing_selected(&capture::rate::EXPERIMENT, &only("xdp at 64"), &narrow), None);
        let nothing = plan(&capture::rate::EXPERIMENT, &only("nothing")).unwrap();
        let said =
            nothing_selected(&capture::rate::EXPERIMENT, &only("nothing"), &nothing).unwrap();
        assert!(said.contains("called nothing") && said.contains("xdp at 64; "), "{said}");
    }

    #[test]
    fn names_are_unique_and_found() {
        let mut names: Vec<_> = ALL.iter().map(|experiment| experiment.name.to_owned()).collect();
        assert_eq!(find(&names).unwrap().len(), ALL.len());
        names.sort();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert_eq!(find(&["all".into()]).unwrap().len(), ALL.len());
        let Err(error) = find(&["capture-nothing".into()]) else { panic!("found nothing") };
        assert!(error.to_string().contains("capture-rate"), "{error}");
    }
}
