//! [`Process`]: what is known of a process.

use std::fmt::{self, Write};
use std::fs;
use std::sync::Arc;

use linerate_bpf::process::Process as Record;

use crate::buckets;
use crate::cgroup::ControlGroup;

/// The most characters of a command line.
const MAX_COMMAND: usize = 256;

/// A process with the program that it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number in the initial PID namespace.
    pub id: u32,
    /// When it started, in nanoseconds since boot.
    pub start: u64,
    /// Changes with the program.
    pub(crate) exec: u32,
    /// Its name (`comm`), up to 15 characters.
    pub name: String,
    /// Its arguments with spaces between them; empty if they are not known.
    pub command: String,
    /// Its effective user, as the host numbers users.
    pub uid: u32,
    /// The name of the user on the host; `None` in containers, which have their own names.
    pub user: Option<String>,
    /// Its control group, if that is known.
    pub group: Option<Arc<ControlGroup>>,
    pub(crate) cgroup: u64,
    pub(crate) bucket: u16,
}

impl Process {
    /// Whether it is still as here: its program, user and control group.
    pub(crate) fn is_as(&self, record: &Record) -> bool {
        (self.exec, self.uid, self.cgroup) == (record.exec, record.uid, record.cgroup)
    }

    /// Reads what the kernel has not said, if the process still exists.
    pub(crate) fn new(
        record: &Record,
        arguments: &[u8],
        group: Option<Arc<ControlGroup>>,
        users: &Users,
    ) -> Self {
        let is_contained = group.as_ref().is_some_and(|group| group.container.is_some());
        let mut command = shown(arguments);
        if command.is_empty() {
            command = read(record, "cmdline").map_or_else(String::new, |bytes| shown(&bytes));
        }
        Self {
            id: record.id,
            start: record.start,
            exec: record.exec,
            name: shown(record.name.as_bytes()),
            command,
            uid: record.uid,
            user: users.name(record.uid).filter(|_| !is_contained),
            group,
            cgroup: record.cgroup,
            bucket: buckets::of_process(record.id),
        }
    }
}

/// One line for a comment.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, command, uid, user, group, .. } = self;
        // A process chooses its name and its arguments.
        let name = name.replace(['(', ')', ','], "?");
        write!(f, "{name} ({id})")?;
        if !command.is_empty() {
            write!(f, ", command `{}`", command.replace('`', "'"))?;
        }
        match user {
            Some(user) => write!(f, ", user {user}")?,
            None => write!(f, ", UID {uid}")?,
        }
        let Some(group) = group else { return Ok(()) };
        if let Some(container) = &group.container {
            write!(f, ", container ")?;
            for word in [container.runtime, container.name.as_deref()].into_iter().flatten() {
                write!(f, "{word} ")?;
            }
            write!(f, "{}", container.id)?;
        }
        if group.pod.is_some() || group.pod_name.is_some() {
            write!(f, ", pod")?;
        }
        if let Some((namespace, name)) = &group.pod_name {
            write!(f, " {namespace}/{name}")?;
        }
        if let Some(pod) = &group.pod {
            write!(f, " {pod}")?;
        }
        match &group.unit {
            Some(unit) => write!(f, ", unit {unit}"),
            None => Ok(()),
        }
    }
}

/// Text of a process in one line: with a space for each zero and other control character.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end_matches('\0').chars().take(MAX_COMMAND);
    let mut line = String::new();
    text.for_each(|c| {
        let _ = line.write_char(if c.is_control() { ' ' } else { c });
    });
    line
}

/// A file of the process in `/proc`, if the process still exists.
pub(crate) fn read(record: &Record, file: &str) -> Option<Vec<u8>> {
    let bytes = fs::read(format!("/proc/{}/{file}", record.id)).ok()?;
    // Afterwards: another process with this number would have another start.
    let stat = fs::read_to_string(format!("/proc/{}/stat", record.id)).ok()?;
    // proc_pid_stat(5): the name is in parentheses; the start is field 22, the 20th behind them.
    let start: u64 = stat.rsplit_once(')')?.1.split(' ').nth(20)?.parse().ok()?;
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    (start == record.start / tick).then_some(bytes)
}

/// The names of users on the host.
#[derive(Debug, Default)]
pub(crate) struct Users(Vec<(u32, String)>);

impl Users {
    /// Reads them. Other sources of names than the file could make this wait, and send packets.
    pub(crate) fn read() -> Self {
        let file = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let user = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?.to_owned();
            Some((fields.nth(1)?.parse().ok()?, name))
        };
        Self(file.lines().filter_map(user).collect())
    }

    fn name(&self, uid: u32) -> Option<String> {
        self.0.iter().find(|(found, _)| *found == uid).map(|(_, name)| name.clone())
    }
}

#[cfg(test)]
mod tests;
