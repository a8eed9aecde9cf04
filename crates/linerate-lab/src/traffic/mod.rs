//! What is sent: generated frames, replayed files, and exchanges of real programs.

pub mod exchange;
pub mod generated;
