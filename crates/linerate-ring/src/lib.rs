#![doc = include_str!("../README.md")]

pub mod counters;
pub mod error;
pub mod packet;
pub mod region;
pub mod tee;
pub mod trace;
pub mod tun;
pub mod xdp;

pub use error::{Error, Result};
pub use linerate_wire::frame::{Direction, Frame, Timestamp, TraceEvent};
pub use region::Region;
