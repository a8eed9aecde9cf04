//! Capabilities of the calling thread (capabilities(7)).

use std::{fmt, io};

pub use rustix::thread::CapabilitySet;
use rustix::thread::{CapabilitySets, capabilities, set_capabilities};

/// Whether the calling thread has all of these capabilities in its effective set.
pub fn has(needed: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// Whether the calling thread has one of these capabilities in its effective set.
pub fn has_any(needed: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.intersects(needed))
}

/// Whether the calling thread lacks one of these capabilities, by their names with commas between them; so that is why
/// the kernel refused. CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON.
#[must_use]
pub fn lacks(names: &str) -> bool {
    let Ok(sets) = capabilities(None) else { return true };
    let mut held = sets.effective;
    if held.contains(CapabilitySet::SYS_ADMIN) {
        held |= CapabilitySet::BPF | CapabilitySet::PERFMON;
    }
    let one = |name: &str| CapabilitySet::from_name(name.trim_start_matches("CAP_"));
    names.split(',').any(|name| one(name).is_none_or(|one| !held.contains(one)))
}

/// Drops all capabilities of the calling thread except these, permanently. Open sockets and files keep
/// working.
///
/// # Errors
/// `EPERM` if the thread lacks one of these.
pub fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    let inheritable = CapabilitySet::empty();
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable };
    Ok(set_capabilities(None, sets)?)
}

/// What sources in XDP need.
pub const XDP_CAPABILITIES: &str = "CAP_NET_RAW,CAP_NET_ADMIN,CAP_BPF,CAP_PERFMON";

/// Capabilities that a process lacks, with commas between them, and how to grant them.
#[derive(Clone, Copy, Debug)]
pub struct MissingCapabilities<'a>(pub &'a str);

impl fmt::Display for MissingCapabilities<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut missing: Vec<_> = self.0.split(',').collect();
        if lacks(self.0) {
            missing.retain(|name| lacks(name));
        }
        let word = if missing.len() > 1 { "capabilities" } else { "capability" };
        let program = std::env::current_exe().unwrap_or_else(|_| "PROGRAM".into());
        write!(f, "the {word} {}; run ", missing.join(", "))?;
        // setcap(8) replaces what a program had: it takes all of them at once.
        let all = match self.0 {
            alone @ ("CAP_NET_RAW" | "CAP_NET_ADMIN" | "CAP_NET_BIND_SERVICE") => alone.to_owned(),
            // Its group is to have no more than this.
            _ if program.ends_with("linerate-capture") => {
                return f.write_str("`linerate capture` as root");
            }
            bpf if bpf.split(',').all(|one| XDP_CAPABILITIES.contains(one)) => {
                XDP_CAPABILITIES.to_owned()
            }
            more => format!("{XDP_CAPABILITIES},{more}"),
        };
        let them = if all.contains(',') { "them" } else { "it" };
        let all = all.to_ascii_lowercase();
        write!(f, "as root, or grant {them} with `sudo setcap {all}+ep {}`", program.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_what_it_is_told_to_keep() {
        let both = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
        if !has(both) {
            linerate_testkit::skip!("needs root");
        }
        let inside = move || {
            keep_only(CapabilitySet::NET_ADMIN).unwrap();
            assert!(!lacks("CAP_NET_ADMIN") && lacks("CAP_NET_ADMIN,CAP_NET_RAW"));
            (has(CapabilitySet::NET_ADMIN), has(both), has_any(both), keep_only(both).is_err())
        };
        assert_eq!(std::thread::spawn(inside).join().unwrap(), (true, false, true, true));
        assert!(has(both), "another thread has kept all");
    }
}
