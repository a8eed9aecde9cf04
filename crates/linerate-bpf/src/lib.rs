#![doc = include_str!("../README.md")]
//!
//! Only this crate calls libbpf's low-level functions; it uses libbpf-rs where that has a wrapper.

// Generated code has this name here, too.
extern crate self as linerate_bpf;

pub mod addresses;
mod bypassed;
mod error;
pub mod filter;
pub mod ingress_drop;
pub mod link;
pub mod live_frames;
pub mod map;
pub mod netfilter;
pub mod process;
mod program;
pub mod rcu;
mod rings;
pub mod seqlock;
pub mod steer;
mod sys;
pub mod tee;
pub mod test_run;
pub mod trace;
pub mod verifier;
pub mod xdp;

pub use bypassed::bypassed;
pub use error::{Error, Result};
pub use program::{LoadedProgram, decompress, log_to_tracing};
pub use rings::RingLayout;

/// Flags of maps and programs, for those who read them from an object.
pub mod flags {
    pub use libbpf_sys::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, BPF_F_XDP_HAS_FRAGS};
}
