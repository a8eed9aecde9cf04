//! Learning, with the kernel as the one that decides: hosts in namespaces talk through a router that
//! forwards, translates and filters by itself, and what was learned is held against what it did.

/// Returns from a test without root, or on a kernel that no session can be learned on, and says so.
macro_rules! learner_or_skip {
    ($name:expr) => {
        linerate_testkit::root_or_skip!($name);
        linerate_testkit::probe_or_skip!($name, linerate_forward::program::unavailable());
    };
}

mod generation;
mod judged;
pub(crate) mod lab;
mod nat;
mod plain;
mod tags;
mod tcp;
