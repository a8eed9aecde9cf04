//! Plain implementations that production code is measured against. Only the lab loads them.

pub mod forward_fib;
pub mod xdp_loop;
