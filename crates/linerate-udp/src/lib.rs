//! UDP messages by the batch.
//!
//! A [`Receiver`] prepares its memory and its message headers once, and each call lends a [`Batch`]
//! of messages. How they get here is the business of a back end ([`Backend`]): `recvmmsg`, UDP GRO,
//! io_uring or AF_XDP. The messages are the same whichever it is. A [`Sender`] is the mirror, and
//! [`feed`] puts sequence-numbered messages of one or two lines in order.
//!
//! ```no_run
//! # fn main() -> linerate_udp::Result<()> {
//! let mut receiver = linerate_udp::Receiver::builder("0.0.0.0:7000".parse().unwrap())
//!     .join(linerate_udp::Group::any_source("239.1.1.1".parse().unwrap()).on("eth1"))
//!     .build()?;
//! loop {
//!     let mut batch = receiver.receive(None)?;
//!     while let Some(message) = batch.next() {
//!         println!("{} bytes from {}", message.payload.len(), message.source);
//!     }
//! }
//! # }
//! ```
//!
//! `unsafe` is allowed in the layer of sockets (`socket`, `uring`) alone.
#![deny(unsafe_code)]

mod backend;
mod builder;
mod error;
pub mod feed;
mod group;
mod interface;
mod message;
pub mod pattern;
mod receiver;
mod sender;
#[allow(unsafe_code)]
mod socket;
#[allow(unsafe_code)]
mod uring;
pub mod xdp;

pub use backend::{Backend, Obstacle, probe};
pub use builder::{Builder, LARGEST_BATCH, LONGEST_MESSAGE, Steering};
pub use error::{Error, Result};
pub use group::Group;
pub use linerate_ring::xdp::Through;
pub use message::{Details, Losses, Message};
pub use receiver::{Batch, Receiver, Trial};
pub use sender::{Sender, SenderBuilder, Sent};
