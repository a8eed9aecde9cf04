//! [`Options`]: the options of a receiver.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_ring::xdp::Delivery;

use crate::backend::Backend;
use crate::group::Group;
use crate::message::Metadata;

/// The largest payload of a UDP datagram: 65,535 bytes less the headers of UDP and IPv4.
pub const MAX_MESSAGE_SIZE: usize = 65_507;
/// The largest batch, in messages: a larger one would take too much memory for headers alone.
pub const MAX_BATCH_SIZE: usize = 1 << 20;

/// Which of several receivers on one port gets a message (`SO_REUSEPORT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reuseport {
    /// No other receiver shares the port.
    #[default]
    Exclusive,
    /// The kernel hashes each flow to one receiver.
    Flow,
    /// The receiver whose number, in the order of binding, is that of the CPU that received the message,
    /// modulo the number of receivers (`SO_ATTACH_REUSEPORT_CBPF`).
    Cpu {
        /// Receivers that share the port.
        sockets: u32,
    },
    /// Any receiver, message by message: evenly, and out of order.
    Spread {
        /// Receivers that share the port.
        sockets: u32,
    },
}

/// The options of a receiver; the fields are documented at the builder's functions.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) bind: SocketAddr,
    pub(crate) interface: Option<String>,
    pub(crate) groups: Vec<Group>,
    pub(crate) batch: usize,
    pub(crate) message_size: usize,
    pub(crate) backend: Option<Backend>,
    pub(crate) calibrate: Option<Duration>,
    pub(crate) metadata: Metadata,
    pub(crate) recv_buffer_size: Option<usize>,
    pub(crate) busy_poll: Option<Duration>,
    pub(crate) reuseport: Reuseport,
    pub(crate) multiple_readers: bool,
    pub(crate) spin: bool,
    pub(crate) coalesce: Option<Duration>,
    pub(crate) ring_size: usize,
    pub(crate) delivery: Delivery,
}

impl Options {
    /// The defaults for a receiver at `bind`.
    pub(crate) fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            interface: None,
            groups: Vec::new(),
            batch: 256,
            message_size: 2048,
            backend: None,
            calibrate: None,
            metadata: Metadata::default(),
            recv_buffer_size: Some(8 << 20),
            busy_poll: None,
            reuseport: Reuseport::Exclusive,
            multiple_readers: false,
            spin: false,
            coalesce: None,
            ring_size: 32 << 20,
            delivery: Delivery::Auto,
        }
    }
}
