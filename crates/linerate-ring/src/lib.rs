//! Rings shared with the kernel: memory regions, AF_PACKET rings, AF_XDP sockets, the tee, and the
//! XDP programs that steer frames to them.

pub mod frame;

pub use frame::{Direction, Frame, Timestamp};
