//! [`Owner`]: what keeps an XDP program attached, and so what detaches it.

use std::fmt;

use linerate_net::process::Process;

/// What keeps an XDP program attached to an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// These processes, by a BPF link: it goes when they close it or end.
    Processes(Vec<Process>),
    /// The BPF link of this id, which no visible process holds: it is pinned.
    PinnedLink(u32),
    /// The interface: the program was attached without a link, and stays until it is detached.
    Interface,
    /// Unknown: this process may not query it.
    Unknown,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Processes(processes) => {
                for (index, process) in processes.iter().enumerate() {
                    write!(f, "{}{process}", if index == 0 { "" } else { ", " })?;
                }
                Ok(())
            }
            Self::PinnedLink(id) => write!(f, "the pinned BPF link {id}"),
            Self::Interface => f.write_str("no process"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}
