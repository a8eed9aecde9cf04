//! [`Options`]: the options of a receiver.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use linerate_ring::Delivery;

use crate::backend::{Backend, SendBackend};
use crate::group::Group;
use crate::message::Metadata;
use crate::versions::Versions;

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

/// Fragmentation and path MTU discovery (`IP_MTU_DISCOVER`, ip(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MtuDiscovery {
    /// `IP_PMTUDISC_DONT`: clears DF, and fragments if needed.
    Off,
    /// `IP_PMTUDISC_WANT`: sets DF, learns the path MTU, and fragments to it.
    Fragment,
    /// `IP_PMTUDISC_DO`: sets DF, and refuses messages that are longer than the path MTU.
    Refuse,
    /// `IP_PMTUDISC_PROBE`: sets DF, and respects only the interface's MTU. For programs that probe the path MTU
    /// themselves, such as QUIC.
    Probe,
}

/// The clock of [`Transmit::time`](crate::Transmit::time): the one that the qdisc has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransmitClock {
    /// `CLOCK_MONOTONIC`, for `fq` (tc-fq(8)).
    Monotonic,
    /// `CLOCK_TAI`, for `etf` (tc-etf(8)) and cards.
    Tai,
}

/// Options of a socket for sending; `None` keeps the system's default (ip(7), ipv6(7), socket(7)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Fragmentation.
    pub mtu_discovery: Option<MtuDiscovery>,
    /// TTL or hop limit, 1 to 255.
    pub ttl: Option<u8>,
    /// Whether messages to a broadcast address may be sent (`SO_BROADCAST`).
    pub broadcast: Option<bool>,
    /// TTL or hop limit of multicast packets; default: 1.
    pub multicast_ttl: Option<u8>,
    /// Whether members of the group on this host receive the messages (`IP_MULTICAST_LOOP`); default: yes.
    pub multicast_loop: Option<bool>,
    /// The output interface of multicast packets (`IP_MULTICAST_IF`).
    pub multicast_interface: Option<String>,
    /// The send buffer in bytes, without the kernel's overhead.
    pub buffer_size: Option<usize>,
    /// How a [`Transmitter`](crate::Transmitter) sends.
    pub backend: SendBackend,
    /// Whether the kernel segments super-datagrams (GSO), where it can; default: yes.
    pub gso: Option<bool>,
    /// Reports when each datagram left for the driver (`SO_TIMESTAMPING`): see
    /// [`Receiver::next_transmit_timestamp`](crate::Receiver::next_transmit_timestamp).
    pub timestamps: bool,
    /// Lets [`Transmit::time`](crate::Transmit::time) say when a datagram is to leave (`SO_TXTIME`). The qdisc of the
    /// output interface waits until then, if it is `fq` or `etf`; others send at once.
    pub transmit_clock: Option<TransmitClock>,
    /// The most bytes a second (`SO_MAX_PACING_RATE`). The qdisc `fq` paces; others do not.
    pub max_pacing_rate: Option<u64>,
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
    pub(crate) take_over: bool,
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
    pub(crate) only_v6: bool,
    /// A socket that the caller has bound.
    pub(crate) socket: Option<Arc<OwnedFd>>,
    pub(crate) send: SendOptions,
    pub(crate) icmp_errors: bool,
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
            take_over: false,
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
            only_v6: false,
            socket: None,
            send: SendOptions::default(),
            icmp_errors: false,
        }
    }

    /// `[::]` takes both, as IPv4-mapped addresses (RFC 4291 §2.5.5.2) do in the kernel.
    pub(crate) fn versions(&self) -> Versions {
        let ip = self.bind.ip();
        let v6 = ip.is_ipv6();
        Versions { v4: !v6 || ip.is_unspecified() && !self.only_v6, v6 }
    }
}
