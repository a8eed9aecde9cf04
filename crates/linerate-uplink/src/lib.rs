#![doc = include_str!("../README.md")]
//!
//! ```text
//!   stack, namespace or VM                                              wire
//!      queue --read--> tx: (Encapsulator,) Segments, checksums --write--> FramePort (UMEM or transmit ring)
//!      queue <-write-- rx: (ReceiveFilter,) Coalescer          <--lend--- FramePort (UMEM or receive ring)
//! ```
//!
//! [`Uplink::open`] takes what needs privileges; [`Uplink::start`] runs a thread a queue, each with a
//! queue of the device and its share of the interface's, so that nothing is shared on the way of a
//! packet.
#![forbid(unsafe_code)]

mod device;
mod error;
mod listener;
mod neighbour;
mod open;
mod options;
mod port;
mod run;
mod rx;
mod statistics;
mod tx;
mod vhost_user;
mod worker;

pub use error::{Error, Result};
pub use open::{Config, Uplink};
pub use options::{Backend, Device, Options};
pub use run::{Event, Outcome, Report, Running};
pub use statistics::{Drops, RxStatistics, Statistics, TxStatistics, UnsplitCounts};

/// For the fuzz target.
#[doc(hidden)]
pub use vhost_user::ring as virtqueue;
