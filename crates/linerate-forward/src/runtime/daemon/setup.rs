//! The preflight on behalf of a daemon: logs what it finds, and records its fixes with the instance, at whose end they are
//! undone.

use std::os::fd::AsFd;

use super::handle::{self, FIXES, InstanceHandle};
use crate::config::Config;
use crate::datapath::Mode;
use crate::runtime::preflight::{self, Options, Outcome, Report};
use crate::{Error, Result};

/// Checks all interfaces before programs are attached to the new ones; `adopted` have them.
pub(super) fn prepare(
    names: &[String],
    adopted: Vec<u32>,
    config: &Config,
    handle: &mut InstanceHandle,
) -> Result<Report> {
    let options = Options {
        fix: config.fix,
        tc: config.datapath != Mode::Xdp,
        probe: config.probe,
        multi_buffer: handle.state.multi_buffer,
        adopted,
    };
    let report = preflight::prepare(names, &options)?;
    // Before anything else can fail: whoever undoes the fixes must know them.
    let mut fixes = handle::recorded_fixes(&handle.state);
    for fix in &report.fixes {
        let fix = serde_json::to_value(fix).map_err(|error| Error::Invalid(error.to_string()))?;
        if !fixes.contains(&fix) {
            fixes.push(fix);
        }
    }
    if !fixes.is_empty() {
        handle.state.others.insert(FIXES.to_owned(), fixes.into());
        handle.pins.save_state(&handle.lock, &handle.state)?;
    }
    for program in &report.peer_programs {
        // bpffs has no dots in names.
        let name = format!("stub-{}", program.interface.replace('.', "_"));
        handle.pins.pin_object(&handle.lock, &name, program.link.as_fd())?;
    }
    say(&report);
    Ok(report)
}

/// Checks an interface again after programs were attached.
pub(super) fn verify_transmit(
    name: &str,
    probe: bool,
    meanwhile: &mut dyn FnMut() -> Result<()>,
) -> Result<Report> {
    let report = preflight::verify_transmit(name, probe, meanwhile)?;
    say(&report);
    Ok(report)
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

fn say(report: &Report) {
    for finding in report.problems() {
        match finding.outcome {
            Outcome::Fixed(_) => tracing::info!("{finding}"),
            // A refusal ends in an error that says it.
            Outcome::Refused { .. } | Outcome::Fine => {}
            Outcome::Warning { .. } => tracing::warn!("{finding}"),
        }
    }
}
