//! [`Selection`]: the processes whose packets are wanted.

use crate::process::Process;

/// Which processes are wanted: those that have one of each kind that is given. Without any, all are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Numbers of processes.
    pub pids: Vec<u32>,
    /// Names of processes (`comm`). Longer ones are compared with the 15 characters that the kernel keeps.
    pub names: Vec<String>,
    /// Names of containers, ids, or the beginnings of ids.
    pub containers: Vec<String>,
    /// Units of systemd, with or without `.service`.
    pub units: Vec<String>,
}

/// The characters of a name that the kernel keeps (`TASK_COMM_LEN`).
const NAME_LEN: usize = 15;

impl Selection {
    /// Whether all processes are wanted, and packets of none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this process is.
    pub fn has(&self, process: &Process) -> bool {
        let Self { pids, names, containers, units } = self;
        let group = process.group.as_deref();
        let container = group.and_then(|group| group.container.as_ref());
        let unit = group.and_then(|group| group.unit.as_deref());
        let is_name = |name: &String| {
            let kept = name.char_indices().map(|(at, c)| at + c.len_utf8());
            let kept = kept.take_while(|end| *end <= NAME_LEN).last().unwrap_or(0);
            process.name == name[..kept]
        };
        let is_container = |text: &String| {
            container.is_some_and(|one| one.id.starts_with(text) || one.name.as_ref() == Some(text))
        };
        let is_unit = |name: &String| {
            unit.is_some_and(|unit| unit == name || unit.strip_suffix(".service") == Some(name))
        };
        (pids.is_empty() || pids.contains(&process.id))
            && (names.is_empty() || names.iter().any(is_name))
            && (containers.is_empty() || containers.iter().any(is_container))
            && (units.is_empty() || units.iter().any(is_unit))
    }
}

#[cfg(test)]
mod tests;
