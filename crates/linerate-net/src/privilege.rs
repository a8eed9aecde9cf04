//! Capabilities of the calling thread (capabilities(7)).

use std::io;

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
            (has(CapabilitySet::NET_ADMIN), has(both), has_any(both), keep_only(both).is_err())
        };
        assert_eq!(std::thread::spawn(inside).join().unwrap(), (true, false, true, true));
        assert!(has(both), "another thread has kept all");
    }
}
