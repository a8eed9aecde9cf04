//! Writing capture files without holding up whoever reads the ring.
//!
//! A reader encodes frames straight from the ring into a large buffer of its [`Feed`]; a full buffer
//! travels to the [`Writer`]'s thread, which puts it into the file with one system call and sends it
//! back empty. Nothing is allocated and no lock is taken for a packet. Rotation, size limits and
//! truncation after a full disk are the thread's business: it finds record boundaries by walking
//! over the encoded bytes, and only in the one buffer where a boundary matters.

mod encoder;
mod merge;
mod name;
pub(crate) mod pcap;
pub(crate) mod pcapng;
mod pool;
mod progress;
mod sink;
#[cfg(test)]
mod tests;
mod thread;
mod walk;

pub use encoder::{Encoder, PacketOptions};
pub use name::Rotation;
pub use pcapng::{InterfaceDescription, InterfaceTotals, Section};
pub use pool::Feed;
pub use progress::{Fate, Progress, Summary};
pub use sink::Compression;
pub(crate) use sink::Sink;
pub use thread::{Options, Totals, Writer};
