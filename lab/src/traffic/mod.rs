//! What is sent: generated frames, replayed files, and exchanges of real programs.

pub(crate) mod exchange;
pub(crate) mod generated;
pub(crate) mod recorded;
