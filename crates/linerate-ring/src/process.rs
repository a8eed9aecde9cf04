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

/// Processes with a descriptor for which `is_it` holds, each once, this one included. `is_it` is given
/// the folder of a process in `/proc`, the number of a descriptor and what it is a descriptor of.
pub(crate) fn holding(mut is_it: impl FnMut(&Path, &str, &str) -> bool) -> Vec<Process> {
    let mut found = Vec::new();
    for folder in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = folder.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let folder = folder.path();
        // Processes of others are not to be looked into without privilege; some have ended by now.
        let mut descriptors = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
        let holds = descriptors.any(|descriptor| {
            let target = fs::read_link(descriptor.path()).unwrap_or_default();
            let number = descriptor.file_name();
            match (number.to_str(), target.to_str()) {
                (Some(number), Some(target)) => is_it(&folder, number, target),
                _ => false,
            }
        });
        if holds {
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            found.push(Process { id, name: name.trim_end().to_owned() });
        }
    }
    found
}
