//! [`examine`]: runs the checks on what was asked once.

use linerate_net::link::{self, Link};

use crate::checks::{Answer, CHECKS, Check, Scope};
use crate::context::{Context, Options};
use crate::finding::{Finding, Remedy, Severity};
use crate::host::Host;
use crate::{Error, Result};

/// Runs all checks of the jobs, in the network namespace of the calling thread: those of the host, then those of each
/// interface.
///
/// # Errors
/// [`Error::Net`] for an interface that is not there, and when the kernel does not list its interfaces.
pub fn examine(options: &Options) -> Result<Vec<Finding>> {
    let links = interfaces(options)?;
    let host = Host::load()?;
    let context = Context { options, host: &host };
    let mut findings = Vec::new();
    for check in CHECKS.iter().filter(|check| wants(options, check)) {
        if let Scope::Host(run) = check.scope {
            add(&mut findings, &context, check, None, run(&context));
        }
    }
    for link in &links {
        for check in CHECKS.iter().filter(|check| wants(options, check)) {
            if let Scope::Interface(run) = check.scope {
                add(&mut findings, &context, check, Some(&link.name), run(&context, link));
            }
        }
    }
    Ok(findings)
}

/// The interfaces that are asked for, or those that carry traffic.
fn interfaces(options: &Options) -> Result<Vec<Link>> {
    if options.interfaces.is_empty() {
        let mut links = link::all()?;
        links.retain(|link| link.is_up() && link.is_ethernet() && !link.is_loopback());
        links.retain(|link| link.kind.is_empty() || link.is_veth());
        return Ok(links);
    }
    options.interfaces.iter().map(|name| link::by_name(name).map_err(Error::from)).collect()
}

fn add(
    findings: &mut Vec<Finding>,
    context: &Context<'_>,
    check: &Check,
    interface: Option<&str>,
    answers: Vec<Answer>,
) {
    for Answer { severity, jobs, what, remedy } in answers {
        let of = jobs.unwrap_or(check.jobs);
        let jobs: Vec<_> =
            of.iter().copied().filter(|job| context.options.jobs.contains(job)).collect();
        if jobs.is_empty() {
            continue;
        }
        findings.push(Finding {
            id: check.id,
            severity,
            interface: interface.map(str::to_owned),
            jobs,
            what,
            measured: check.measured,
            cost: (severity != Severity::Ok && severity != Severity::Unknown).then_some(check.cost),
            fixable: matches!(remedy, Remedy::Changes(_)),
            remedy,
        });
    }
}

/// Whether the check is asked for, by its id and by one of its jobs.
fn wants(options: &Options, check: &Check) -> bool {
    let Options { jobs, checks, .. } = options;
    let is_named = checks.is_empty() || checks.iter().any(|id| id == check.id);
    is_named && check.jobs.iter().any(|job| jobs.contains(job))
}
