//! Segmentation and coalescing, against packets that others build and against the kernel.

mod allocations;
mod coalesce;
mod coalesce_allocations;
mod example;
mod gro;
mod kernel;
mod policy;
mod segment;
