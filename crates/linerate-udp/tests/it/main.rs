//! Receiving and sending, on every backend.

mod allocations;
mod consent;
#[path = "../../../linerate-ring/tests/it/counting.rs"]
mod counting;
mod duplex;
mod errors;
mod examples;
mod follow;
mod odd;
mod quinn;
mod readiness;
mod same;
mod sending;
mod support;
mod tokio;
