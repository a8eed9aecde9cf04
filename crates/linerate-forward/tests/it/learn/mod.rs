//! Learning, with the kernel as the one that decides: hosts in namespaces talk through a router that
//! forwards, translates and filters on its own, and what was learned is compared with what it did.

/// Returns from a test without root, or on a kernel that no session can be learned on, and says so.
macro_rules! learner_or_skip {
    () => {
        linerate_testkit::root_or_skip!();
        linerate_testkit::probe_or_skip!(linerate_forward::runtime::program::unavailable());
    };
}

mod generation;
mod nat;
mod plain;
mod refused;
mod routes;
mod tags;
mod tcp;
