//! Learning, with the kernel as the one that decides: hosts in namespaces talk through a router that
//! forwards, translates and filters on its own, and what was learned is compared with what it did.

mod generation;
mod nat;
mod plain;
mod refused;
mod routes;
mod tags;
mod tcp;
