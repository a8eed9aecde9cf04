//! AF_XDP: frames straight from the driver's receive loop into memory of this process.
//!
//! [`Receiver`] takes the frames of an interface: it chooses between [`Sockets`], all queues of the interface behind
//! one reader, and the BPF ring buffer of a [`Tee`](crate::tee::Tee). [`Socket`] is one queue, to receive from, to
//! send on, or both. [`TxSocket`] is a socket that only sends.
//!
//! ```no_run
//! # fn main() -> linerate_ring::Result<()> {
//! use std::time::Duration;
//!
//! use linerate_ring::xdp::{Options, Receiver};
//!
//! let mut receiver = Receiver::open("eth1", &Options::default(), |_| Ok::<_, linerate_ring::Error>(None))?;
//! println!("{}", receiver.config());
//! while receiver.wait(Duration::from_secs(1))? {
//!     while let Some(mut batch) = receiver.next_batch() {
//!         while let Some(frame) = batch.next() {
//!             println!("{} bytes", frame.len());
//!         }
//!     }
//! }
//! println!("{:?}", receiver.statistics()?);
//! # Ok(())
//! # }
//! ```

mod batch;
mod delivery;
mod metadata;
mod probe;
pub(crate) mod queue;
mod receiver;
mod ring;
mod rx_options;
mod socket;
mod sockets;
mod statistics;
pub(crate) mod sys;
mod transmit;
mod umem;
pub(crate) mod wait;

pub use batch::Batch;
pub use delivery::Delivery;
pub use linerate_bpf::steer::TimestampSource;
pub use linerate_bpf::xdp::AttachMode;
pub use probe::{Probe, probe};
pub use receiver::{Config, Frames, Options, Receiver, ReceiverStatisticsReader, Share};
pub use socket::{Builder as SocketBuilder, BusyPoll, CopyMode, Mode, Socket};
pub use sockets::{Builder as SocketsBuilder, DEFAULT_BUFFER, DEFAULT_CHUNK_SIZE, Sockets};
pub use statistics::{Statistics, StatisticsReader};
pub use transmit::{TxFrame, TxSocket};
pub use umem::{HEADROOM, Umem};
pub use wait::WaitStrategy;
