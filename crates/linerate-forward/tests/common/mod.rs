//! What the proofs of the accelerator share: two routers that are told the same, the stations around
//! them, and what leaves on every port.
#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod accelerator;
pub(crate) mod capture;
pub(crate) mod load;
#[path = "../../../linerate-segment/tests/kernel/random.rs"]
pub(crate) mod random;
pub(crate) mod router;
pub(crate) mod shell;
pub(crate) mod sink;
pub(crate) mod station;
