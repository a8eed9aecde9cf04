//! The capture engine on real interfaces.

mod filter;
mod meaning;
mod open;
mod panic;
