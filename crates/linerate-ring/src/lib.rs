#![doc = include_str!("../README.md")]

pub mod counters;
pub mod error;
mod options;
pub mod packet;
pub mod receiver;
pub mod region;
mod ring;
pub mod ringbuf;
mod sys;
pub mod tee;
pub mod trace;
pub mod tun;
mod wait;
pub mod xdp;

pub use error::{Error, Result};
pub use linerate_bpf::steer::TimestampSource;
pub use linerate_bpf::tee::Action;
pub use linerate_wire::frame::{Direction, Frame, Timestamp, TraceEvent};
pub use options::{Delivery, Options};
pub use receiver::Receiver;
pub use region::Region;
pub use ring::{Batch, Drained, Ring, StatisticsReader};
pub use sys::poll;
pub use wait::WaitStrategy;
