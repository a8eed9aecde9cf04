//! Measurements of the machine: CPU time, counters, processes.

pub mod cgroup;
pub(crate) mod conntrack;
pub(crate) mod cores;
pub(crate) mod cpu;
pub(crate) mod huge_pages;
pub(crate) mod napi;
pub(crate) mod process;
