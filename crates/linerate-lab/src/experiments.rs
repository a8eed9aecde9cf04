//! The experiments: one registry, one file each.

mod context;
mod load;
mod loss;
mod rate;
mod search;
mod soak;
mod stage;
mod stall;
mod sweep;
mod tlb;
mod write;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

pub use context::{Context, Options};
pub(crate) use sweep::{Cell, Sweep};

use crate::model::{Summary, claim_table};

/// One experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title for people.
    pub title: &'static str,
    /// What is measured and how.
    pub about: &'static str,
    run: fn(&mut Context) -> Result<()>,
}

/// All of them, in the order of the report.
pub const ALL: [Experiment; 8] = [
    rate::EXPERIMENT,
    stage::EXPERIMENT,
    write::EXPERIMENT,
    stall::EXPERIMENT,
    load::EXPERIMENT,
    loss::EXPERIMENT,
    tlb::EXPERIMENT,
    soak::EXPERIMENT,
];

/// Finds experiments by name; `all` stands for each of them.
///
/// # Errors
/// When there is none of a name.
pub fn find(names: &[String]) -> Result<Vec<Experiment>> {
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

/// Runs one, stores it, prints its claims, and returns its summary and folder.
///
/// # Errors
/// When it cannot be run or stored, or a signal asks for the end.
pub fn run(experiment: Experiment, out: &Path, options: Options) -> Result<(Summary, PathBuf)> {
    let mut context = Context::begin(&experiment, out, options)?;
    let outcome = (experiment.run)(&mut context);
    if let Err(error) = &outcome {
        context.notes.push(format!("This run broke off, and what it has is not all: {error:#}"));
    }
    let (summary, folder) = context.finish(&experiment)?;
    outcome?;
    if !summary.claims.is_empty() {
        println!("{}", claim_table(&summary.claims));
    }
    Ok((summary, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

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
