//! The capture engine on real interfaces.

mod filter;
mod open;
mod panic;
