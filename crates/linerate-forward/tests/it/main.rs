//! The accelerator, with the kernel as the oracle.

mod changes;
mod common;
mod differential;
mod endings;
mod failopen;
mod fast_path;
mod flood;
mod flowtable;
mod learn;
mod pins;
mod preflight;
mod tcp;
mod watch;
