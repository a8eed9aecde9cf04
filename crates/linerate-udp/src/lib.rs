#![doc = include_str!("../README.md")]
//!
//! A [`Receiver`] prepares its memory and its message headers once, and each call lends a [`Batch`] of
//! messages. A [`Backend`] brings them: `recvmmsg`, UDP GRO, io_uring or AF_XDP. The messages are the same
//! with each. A [`Sender`] is the counterpart.
//!
//! `unsafe` is allowed in `socket` and `uring` alone.
#![deny(unsafe_code)]

#[cfg(feature = "tokio")]
mod asynchronous;
mod backend;
mod caller_socket;
mod duplex;
mod error;
mod group;
mod interface;
mod message;
mod open;
mod options;
mod outgoing;
pub mod pattern;
mod probe;
mod queue;
#[cfg(feature = "quinn")]
mod quinn;
mod receiver;
mod sender;
#[allow(unsafe_code)]
mod socket;
mod transmit;
mod transmitter;
#[allow(unsafe_code)]
mod uring;
mod versions;
mod watch;
pub mod xdp;

#[cfg(feature = "tokio")]
pub use asynchronous::{AsyncReceiver, AsyncTransmitter};
pub use backend::{Backend, SendBackend};
pub use duplex::Socket;
pub use error::{Error, Result};
pub use group::Group;
pub use linerate_ring::Delivery;
pub use message::{Drops, Message, Metadata};
pub use options::{
    MAX_BATCH_SIZE, MAX_MESSAGE_SIZE, MtuDiscovery, Options, Reuseport, SendOptions, TransmitClock,
};
pub use outgoing::SendStatistics;
pub use probe::probe;
pub use receiver::{Batch, CalibrationRun, Receiver};
pub use sender::{Sender, SenderOptions};
pub use socket::icmp::{IcmpError, TransmitTimestamp};
pub use transmit::Transmit;
pub use transmitter::Transmitter;
