//! [`Context`]: what is asked, and of which host.

use crate::finding::Job;
use crate::host::Host;

/// What to examine.
#[derive(Clone, Debug)]
pub struct Options {
    /// For these jobs.
    pub jobs: Vec<Job>,
    /// These interfaces; none: all hardware and veth interfaces that are up.
    pub interfaces: Vec<String>,
    /// Only these checks, by their ids; none: all.
    pub checks: Vec<String>,
    /// Attach an XDP program to each interface, and a tracing program, for a moment.
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
    /// Whether only this job is asked for.
    pub(crate) fn is_only(&self, job: Job) -> bool {
        self.options.jobs.iter().all(|one| *one == job)
    }
}
