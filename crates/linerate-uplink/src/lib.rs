//! A TAP or TUN device joined to an interface: super-packets cross the stack once and are split on their way
//! to the wire; received frames are joined on their way up.
//!
//! ```text
//!   stack, namespace or VM                                              wire
//!      queue --read--> Down: (Heads,) Segments, checksums --write--> Port (UMEM or transmit ring)
//!      queue <-write-- Up: (Admission,) Coalescer         <--lend--- Port (UMEM or receive ring)
//! ```
//!
//! [`Uplink::open`] takes what needs privileges; [`Uplink::start`] runs a thread a queue, each with a
//! queue of the device and its share of the interface's, so that nothing is shared on the way of a
//! packet.
#![forbid(unsafe_code)]

mod counts;
mod down;
mod error;
mod open;
mod port;
mod run;
mod settings;
mod tun;
mod up;
mod worker;

pub use counts::{Counts, Down, Drops, Unsplit, Up};
pub use error::{Error, Result};
pub use open::Uplink;
pub use run::{Event, Facts, Outcome, Report, Running};
pub use settings::{Backend, Device, Settings};
