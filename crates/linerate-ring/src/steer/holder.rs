//! [`Holder`]: what keeps somebody else's XDP program on an interface, and so what takes it off.

use std::fs;

use linerate_net::process::{self, Process};

use super::attach::link_of;

/// What keeps an XDP program on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// These processes, by a BPF link: it goes when they close it or end.
    Processes(Vec<Process>),
    /// The BPF link of this id, which no process that can be seen holds: it is pinned.
    Link(u32),
    /// The interface itself: the program was attached without a link, and stays until it is detached.
    Interface,
    /// This process may not know.
    Unknown,
}

impl Holder {
    /// The holder of the XDP program with this id. Looks through `/proc`: for errors, not for loops.
    pub(crate) fn of(program: u32) -> Self {
        let wanted = format!("prog_id:\t{program}");
        let mut found = process::holders(1, |descriptor| {
            // Not every link of the system is worth a read.
            let target = descriptor.target;
            let link = target.starts_with("anon_inode:bpf") && target.ends_with("link");
            let path = descriptor.process.join("fdinfo").join(descriptor.number);
            let info = link.then(|| fs::read_to_string(path).unwrap_or_default())?;
            let has = |wanted: &str| info.lines().any(|line| line == wanted);
            (has("link_type:\txdp") && has(&wanted)).then_some(0)
        });
        let processes = found.remove(0);
        if !processes.is_empty() {
            return Self::Processes(processes);
        }
        match link_of(program) {
            Ok(Some((_, id))) => Self::Link(id),
            Ok(None) => Self::Interface,
            Err(_) => Self::Unknown,
        }
    }

    /// It in words, `tcpdump (process 7)` for instance.
    pub fn names(&self) -> String {
        match self {
            Self::Processes(processes) => {
                processes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            }
            Self::Link(id) => format!("the pinned BPF link {id}"),
            Self::Interface => "no process".to_owned(),
            Self::Unknown => "unknown".to_owned(),
        }
    }
}
