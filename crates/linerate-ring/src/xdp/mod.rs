//! AF_XDP: frames straight from the driver's receive loop into memory of this process.
//!
//! [`Sockets`] are all queues of an interface behind one reader, [`Socket`] is one queue, to receive from, to send on, or
//! both, and [`TxSocket`] a socket that only sends. [`Receiver`](crate::receiver::Receiver) chooses between [`Sockets`]
//! and the BPF ring buffer of a [`Tee`](crate::tee::Tee).

mod batch;
mod metadata;
mod probe;
pub(crate) mod queue;
mod ring;
mod socket;
mod sockets;
mod statistics;
mod transmit;
mod umem;

pub use batch::Batch;
pub use linerate_bpf::xdp::AttachMode;
pub use probe::{Probe, probe};
pub use socket::{CopyMode, Mode, Socket};
pub use sockets::{DEFAULT_BUFFER, DEFAULT_CHUNK_SIZE, Sockets};
pub use statistics::Statistics;
pub use transmit::{TxFrame, TxSocket};
pub use umem::{HEADROOM, Umem};
