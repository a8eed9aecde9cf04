//! [`Options`]: the options of a receiver.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use linerate_ring::Delivery;

use crate::backend::{Backend, SendBackend};
use crate::group::Group;
use crate::message::Metadata;
use crate::versions::Versions;
use crate::{Result, socket};

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

/// The options of a receiver ([`Receiver::open`](crate::Receiver::open)) or of a [`Socket`](crate::Socket).
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to bind to; port 0 lets the kernel choose one. `[::]` receives IPv4 too (see [`Options::only_v6`])
    /// and reports IPv4 senders by their IPv4 addresses. The IPv4-mapped address `::ffff:a.b.c.d` is the IPv4 address
    /// a.b.c.d. Default: port 0 of `0.0.0.0`.
    pub bind: SocketAddr,
    /// Receives only messages that arrive on this interface (`SO_BINDTODEVICE`); `xdp` attaches to it.
    /// Default: any interface; `xdp` attaches to the interface that has the address, or that a group names.
    pub interface: Option<String>,
    /// Joins these groups. Only joined groups are received, regardless of other sockets.
    pub groups: Vec<Group>,
    /// The most datagrams taken from the kernel at once; default: 256. The kernel's own limit for one
    /// `recvmmsg` is 1024; a larger batch takes several calls. A datagram of the `gro` backend holds up to
    /// 64 messages, of which there are at most 64 in a batch.
    pub batch: usize,
    /// The longest message in bytes, 1 to 65,507; default: 2048. A longer one is delivered truncated, with
    /// its flag set, and counted.
    pub message_size: usize,
    /// The backend; default: `None`, the first of `gro` and `recvmmsg` that [`crate::probe`] finds available. These
    /// leave each packet to the host.
    pub backend: Option<Backend>,
    /// Consent for [`Backend::Xdp`] where no backend was requested: it is selected where it is available. Its
    /// messages bypass the host's network stack ([`crate::xdp`]). Default: no.
    pub take_over: bool,
    /// Selects the backend by measurement, if none was requested: every available one receives for this time,
    /// one after the other; `xdp` only with [`Options::take_over`]. The one wins whose thread spends the
    /// least CPU time per message and loses nothing (up to a thousandth; otherwise the one that loses least).
    /// Without traffic the selection is the usual one.
    ///
    /// The opening takes as long as all of them together, or until a signal arrives. What arrives in this time is
    /// counted ([`crate::Receiver::calibration_runs`]) and discarded; between two backends there is no socket for a moment.
    /// So calibrate before the messages matter.
    pub calibrate: Option<Duration>,
    /// What to learn of each message; default: nothing but its source.
    pub metadata: Metadata,
    /// The socket's receive buffer in bytes (`SO_RCVBUF`); default: 8 MiB, as far as `net.core.rmem_max` or
    /// CAP_NET_ADMIN allows. `None` leaves the system's default. The kernel counts its overhead, several
    /// hundred bytes a message, twice over.
    pub recv_buffer_size: Option<usize>,
    /// Makes the kernel poll the driver for this long in a wait, instead of sleeping (`SO_BUSY_POLL`).
    pub busy_poll: Option<Duration>,
    /// Shares the port with other receivers that set this option too (`SO_REUSEPORT`).
    pub reuseport: Reuseport,
    /// Announces several readers: threads of the one socket ([`crate::Receiver::try_clone`]), or another receiver on
    /// the same interface. The selection of a backend then leaves out `xdp`, whose rings have one reader.
    pub multiple_readers: bool,
    /// Never sleeps while it waits: the lowest latency, at the price of a core.
    pub spin: bool,
    /// Interrupt coalescing in software: how long a wait sleeps at a time while 640,000 messages a second or
    /// more arrive. Zero turns it off.
    ///
    /// Messages accumulate in that time, so that a call returns more of them and nothing has to wake the
    /// reader, which would cost the receiving core more than the message does. They wait up to this long, and
    /// the slack of the thread's timers (50 µs for most; `PR_SET_TIMERSLACK` of prctl(2)). Default: what with
    /// that slack makes 250 µs for `xdp`, 20 µs for `gro` and 100 µs for `recvmmsg`, and no less than 1 µs.
    /// At lower rates a wait sleeps until the next message arrives. `uring` does not coalesce.
    pub coalesce: Option<Duration>,
    /// Bytes of memory for the frames that `xdp` receives; default: 32 MiB. A ring buffer, rounded up to a
    /// power of two, holds 200,000 messages of 64 bytes in it; AF_XDP sockets hold 16,384 of any size, in
    /// chunks of 2048 bytes (4096 where the interface's MTU needs it). A reader that is delayed for longer
    /// than it takes to fill it loses messages. At most 2 GiB. A larger one survives longer delays, but memory that
    /// does not fit into the cache is slower ([`linerate_ring::xdp::DEFAULT_BUFFER`] says by how much).
    pub ring_size: usize,
    /// How `xdp` delivers frames; default: AF_XDP sockets if the driver has zero-copy or
    /// [`Options::busy_poll`] was requested, otherwise a BPF ring buffer, to which the program
    /// copies.
    pub delivery: Delivery,
    /// Whether a receiver bound to `[::]` leaves IPv4 to others (`IPV6_V6ONLY`); default: no.
    pub only_v6: bool,
    /// Options of the socket for sending ([`crate::Receiver::transmitter`]).
    pub send: SendOptions,
    /// Reports ICMP errors that answer messages of this socket ([`crate::Receiver::next_error`]); default: no.
    pub icmp_errors: bool,
    /// A UDP socket that is bound already ([`Options::from_socket`]); default: none.
    pub socket: Option<Arc<OwnedFd>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bind: (Ipv4Addr::UNSPECIFIED, 0).into(),
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
}

impl Options {
    /// The defaults for a receiver at `bind`.
    pub fn new(bind: SocketAddr) -> Self {
        Self { bind, ..Self::default() }
    }

    /// The defaults for a receiver on a UDP socket that is already bound: by systemd, or before privileges were dropped.
    /// Options that are set on it stay, except those that the backend needs.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for anything but a bound UDP socket.
    pub fn from_socket(socket: impl Into<OwnedFd>) -> Result<Self> {
        let socket = socket.into();
        let (bound, only_v6) = socket::bound(socket.as_fd())?;
        Ok(Self { only_v6, socket: Some(Arc::new(socket)), ..Self::new(bound) })
    }

    /// `[::]` takes both, as IPv4-mapped addresses (RFC 4291 §2.5.5.2) do in the kernel.
    pub(crate) fn versions(&self) -> Versions {
        let ip = self.bind.ip();
        let v6 = ip.is_ipv6();
        Versions { v4: !v6 || ip.is_unspecified() && !self.only_v6, v6 }
    }
}
