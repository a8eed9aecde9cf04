//! The generator and the replay.

mod common;
mod frames;
mod generate;
mod replay;
