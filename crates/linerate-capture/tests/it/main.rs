//! The capture engine on real interfaces, and on files.

mod filter;
mod meaning;
mod open;
mod panic;
mod split;
