//! What the preflight finds, mends and proves, on behalf of a daemon: said in the log, kept with the instance, and
//! undone with its end.

use std::os::fd::AsFd;

use super::owned::Owned;
use crate::pins::{Lock, Pins};
use crate::preflight::{self, Mend, Options, Outcome, Report};
use crate::{Error, Result};

/// Where mends are in the record of the instance.
const MENDS: &str = "preflight";

/// Looks at all interfaces before programs are attached to those that are new; `adopted` have them.
pub(super) fn prepare(
    names: &[String],
    adopted: Vec<u32>,
    mend: bool,
    owned: &mut Owned,
) -> Result<Report> {
    let options = Options { mend, multi_buffer: owned.state.multi_buffer, adopted };
    let report = preflight::prepare(names, &options)?;
    // Before anything else can fail: what was changed must be known to whoever changes it back.
    let mut mends = mends(&owned.pins);
    mends.extend(
        report.mends.iter().filter(|mend| !mends.contains(mend)).cloned().collect::<Vec<_>>(),
    );
    if !mends.is_empty() {
        let value =
            serde_json::to_value(&mends).map_err(|error| Error::Invalid(error.to_string()))?;
        owned.state.others.insert(MENDS.to_owned(), value);
        owned.pins.save(&owned.lock, &owned.state)?;
    }
    for stub in &report.stubs {
        // bpffs has no dots in names.
        let name = format!("stub-{}", stub.interface.replace('.', "_"));
        owned.pins.keep(&owned.lock, &name, stub.link.as_fd())?;
    }
    say(&report);
    Ok(report)
}

/// Looks again at one that programs were attached to.
pub(super) fn prove(
    name: &str,
    probe: bool,
    meanwhile: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let report = preflight::prove(name, probe, meanwhile)?;
    say(&report);
    refuse(&report, None)
}

/// The first refusal: of this interface or of the host, of any without a name.
pub(super) fn refuse(report: &Report, name: Option<&str>) -> Result<()> {
    let concerns = |interface: Option<&str>| match (interface, name) {
        (Some(interface), Some(name)) => interface == name,
        _ => true,
    };
    let refusal = report.refusals().find(|finding| concerns(finding.interface.as_deref()));
    refusal.map_or(Ok(()), |finding| Err(Error::Invalid(finding.to_string())))
}

/// Detaches the instance and undoes what was mended for it: mends come after, since the programs rely on them.
pub(super) fn detach(pins: &Pins, lock: Lock) -> Result<()> {
    let mends = mends(pins);
    let detached = pins.detach(lock);
    for error in preflight::restore(&mends) {
        tracing::warn!(%error, "not as it was before");
    }
    detached
}

fn mends(pins: &Pins) -> Vec<Mend> {
    let state = pins.state().ok();
    let value = state.and_then(|mut state| state.others.remove(MENDS));
    value.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
}

fn say(report: &Report) {
    for finding in report.notable() {
        match finding.outcome {
            Outcome::Mended(_) => tracing::info!("{finding}"),
            // A refusal ends in an error that says it.
            Outcome::Refused { .. } | Outcome::Fine => {}
            Outcome::Warning { .. } => tracing::warn!("{finding}"),
        }
    }
}
