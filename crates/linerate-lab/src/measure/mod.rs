//! What the machine can tell: CPU time, counters, processes.

pub mod cgroup;
pub mod cores;
pub mod cpu;
pub mod huge_pages;
pub mod napi;
pub mod process;
pub mod tlb;
