//! Rings shared with the kernel: memory regions, AF_PACKET rings, AF_XDP sockets, the ring buffer of the tee,
//! and TUN and TAP devices.

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
