//! [`Process`]: who holds a socket or a BPF link, as far as `/proc` lets this process see.

use std::fmt;
use std::fs;
use std::path::Path;

/// A process of this PID namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub id: u32,
    /// Its name (`comm`), up to 15 characters.
    pub name: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.id)
    }
}

impl Process {
    fn numbered(id: u32) -> Self {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        Self { id, name: name.trim_end().to_owned() }
    }
}

/// An open file of a process.
pub(crate) struct Descriptor<'a> {
    /// The folder of the process in `/proc`.
    pub(crate) process: &'a Path,
    /// Its number there.
    pub(crate) number: &'a str,
    /// What it is a descriptor of.
    pub(crate) target: &'a str,
}

/// The processes, this one included, that hold what is looked for, for each of `count` things.
/// `which` says which of them a descriptor is of.
pub(crate) fn holding(
    count: usize,
    which: impl Fn(&Descriptor<'_>) -> Option<usize>,
) -> Vec<Vec<Process>> {
    let mut found = vec![Vec::<Process>::new(); count];
    if count == 0 {
        return found;
    }
    for folder in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = folder.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let process = folder.path();
        // Processes of others are not to be looked into without privilege; some have ended by now.
        for descriptor in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            let target = fs::read_link(descriptor.path()).unwrap_or_default();
            let number = descriptor.file_name();
            let (Some(number), Some(target)) = (number.to_str(), target.to_str()) else { continue };
            if let Some(thing) = which(&Descriptor { process: &process, number, target })
                && found[thing].last().is_none_or(|last| last.id != id)
            {
                found[thing].push(Process::numbered(id));
            }
        }
    }
    found
}
