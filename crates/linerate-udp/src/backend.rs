//! [`Backend`]: how messages are received; [`SendBackend`]: how they are sent.

/// How a receiver gets its messages from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// `recvmmsg` with headers prepared once.
    Recvmmsg,
    /// `recvmmsg` of super-datagrams that the kernel coalesced (UDP GRO), split in place.
    Gro,
    /// io_uring: one multishot request, whose header the kernel keeps, and a ring of buffers.
    Uring,
    /// XDP: datagrams to the receiver's addresses and port bypass the stack, everything else goes to it.
    Xdp,
}

linerate_net::named!(
    Backend, "backend":
    Recvmmsg = "recvmmsg", Gro = "gro", Uring = "uring", Xdp = "xdp"
);

/// How a [`Transmitter`](crate::Transmitter) sends its messages, whatever backend receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SendBackend {
    /// `sendmmsg`, with super-datagrams that the kernel segments (UDP GSO).
    #[default]
    Sendmmsg,
    /// The same messages as requests of io_uring, a batch in one call.
    Uring,
    /// The transmit ring of an AF_XDP socket, for a receiver with the backend `xdp`: answers to messages that bypassed
    /// the stack go back to the Ethernet address that they came from
    /// ([`Transmit::next_hop`](crate::Transmit::next_hop)). They bypass routes, firewall, qdisc and captures. All other
    /// messages take `sendmmsg`, as do super-datagrams where the driver has no zero-copy;
    /// [`SendStatistics::ring`](crate::SendStatistics::ring) counts.
    Xdp,
}

linerate_net::named!(SendBackend, "backend": Sendmmsg = "sendmmsg", Uring = "uring", Xdp = "xdp");
