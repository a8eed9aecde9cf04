//! Learning, with the kernel as the one that decides: hosts in namespaces talk through a router that
//! forwards, translates and filters by itself, and what was learned is held against what it did.

mod designs;
mod generation;
mod judged;
mod lab;
mod nat;
mod plain;
mod tags;
mod tcp;
