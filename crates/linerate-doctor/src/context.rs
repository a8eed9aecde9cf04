//! [`examine`]: runs the checks on what was asked once.

use linerate_net::link::{self, Link};

use crate::checks::{CHECKS, Check, Scope, Verdict};
use crate::finding::{Finding, Job, Remedy, Severity};
use crate::host::Host;
use crate::{Error, Result};

/// What to examine.
#[derive(Clone, Debug)]
pub struct Options {
    /// For these jobs.
    pub jobs: Vec<Job>,
    /// These interfaces; none: all hardware and veth interfaces that are up.
    pub interfaces: Vec<String>,
    /// Only these checks, by their ids; none: all.
    pub checks: Vec<String>,
    /// Attach an XDP program to each interface for a moment.
    pub attach: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { jobs: Job::ALL.to_vec(), interfaces: Vec::new(), checks: Vec::new(), attach: true }
    }
}

/// What a check may use.
pub(crate) struct Context<'a> {
    pub(crate) options: &'a Options,
    pub(crate) host: &'a Host,
}

impl Context<'_> {
    /// Whether the check is asked for, by its id and by one of its jobs.
    fn wants(&self, check: &Check) -> bool {
        let Options { jobs, checks, .. } = self.options;
        let is_named = checks.is_empty() || checks.iter().any(|id| id == check.id);
        is_named && check.jobs.iter().any(|job| jobs.contains(job))
    }

    /// Whether only this job is asked for.
    pub(crate) fn is_only(&self, job: Job) -> bool {
        self.options.jobs.iter().all(|one| *one == job)
    }
}

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
    for check in CHECKS.iter().filter(|check| context.wants(check)) {
        if let Scope::Host(run) = check.scope {
            add(&mut findings, &context, check, None, run(&context));
        }
    }
    for link in &links {
        for check in CHECKS.iter().filter(|check| context.wants(check)) {
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
    verdicts: Vec<Verdict>,
) {
    for Verdict { severity, jobs, what, remedy } in verdicts {
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
