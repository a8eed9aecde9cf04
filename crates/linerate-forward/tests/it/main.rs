//! The accelerator, with the kernel as the oracle.

#[macro_use]
mod common;

mod changes;
mod differential;
mod endings;
mod failopen;
mod fast_path;
mod flood;
mod flowtable;
mod generators;
mod learn;
mod learning_cost;
mod pins;
mod preflight;
mod tcp;
mod unannounced;
mod verdicts;
mod watch;
