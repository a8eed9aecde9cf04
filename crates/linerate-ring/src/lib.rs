//! Rings shared with the kernel: memory regions, AF_PACKET rings, AF_XDP sockets, the tee, the
//! XDP programs that steer frames to them, mapped BPF arrays, and TUN and TAP devices.

pub mod addresses;
pub mod error;
pub mod filter;
pub mod guard;
pub mod hook;
pub mod live;
pub mod map;
pub mod packet;
pub mod region;
pub mod run;
pub mod seqlock;
pub mod steer;
pub mod tee;
pub mod tun;
pub mod xdp;

pub use error::{Error, Result};
pub use linerate_wire::frame::{Direction, Frame, Timestamp};
pub use region::Region;
