//! [`Features`]: what a virtio-net device offers, and what the driver in the guest chose.

use std::fmt;

use linerate_ring::tun::Offloads;
use linerate_wire::virtio::{self, GsoType, Header};
use vhost::vhost_user::message::VhostUserVirtioFeatures;
use virtio_bindings::{virtio_config as config, virtio_net as net, virtio_ring as ring};

/// Features of virtio, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Features(pub(crate) u64);

/// Each offload with its features: of what the guest sends, and of what it takes.
const OFFLOADS: [(Offloads, &[u32], &[u32]); 5] = [
    (Offloads::CHECKSUM, &[net::VIRTIO_NET_F_CSUM], &[net::VIRTIO_NET_F_GUEST_CSUM]),
    (Offloads::TSO4, &[net::VIRTIO_NET_F_HOST_TSO4], &[net::VIRTIO_NET_F_GUEST_TSO4]),
    (Offloads::TSO6, &[net::VIRTIO_NET_F_HOST_TSO6], &[net::VIRTIO_NET_F_GUEST_TSO6]),
    (Offloads::ECN, &[net::VIRTIO_NET_F_HOST_ECN], &[net::VIRTIO_NET_F_GUEST_ECN]),
    (
        Offloads::USO,
        &[net::VIRTIO_NET_F_HOST_USO],
        &[net::VIRTIO_NET_F_GUEST_USO4, net::VIRTIO_NET_F_GUEST_USO6],
    ),
];

impl Features {
    /// What a device with these offloads offers. The VMM itself answers for what concerns the control queue and the
    /// MTU; without the features here it would not offer them.
    pub(crate) fn offered(offloads: Offloads) -> Self {
        let always = [
            config::VIRTIO_F_VERSION_1,
            config::VIRTIO_F_ANY_LAYOUT,
            ring::VIRTIO_RING_F_INDIRECT_DESC,
            ring::VIRTIO_RING_F_EVENT_IDX,
            net::VIRTIO_NET_F_MRG_RXBUF,
            net::VIRTIO_NET_F_MQ,
            net::VIRTIO_NET_F_CTRL_VQ,
            net::VIRTIO_NET_F_MTU,
        ];
        let offered = OFFLOADS.iter().filter(|(offload, ..)| offloads.contains(*offload));
        let offered = offered.flat_map(|(_, sends, takes)| sends.iter().chain(*takes));
        let bits = always.iter().chain(offered).fold(0, |bits, bit| bits | 1 << bit);
        Self(bits | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits())
    }

    fn has(self, bit: u32) -> bool {
        self.0 & 1 << bit != 0
    }

    pub(crate) fn has_event_idx(self) -> bool {
        self.has(ring::VIRTIO_RING_F_EVENT_IDX)
    }

    pub(crate) fn has_mergeable_buffers(self) -> bool {
        self.has(net::VIRTIO_NET_F_MRG_RXBUF)
    }

    /// Bytes of the virtio header before each packet.
    pub(crate) fn header_len(self) -> usize {
        if self.has(config::VIRTIO_F_VERSION_1) || self.has_mergeable_buffers() {
            virtio::MERGEABLE_HEADER_LEN
        } else {
            virtio::HEADER_LEN
        }
    }

    /// The guest takes partial checksums, and verified ones.
    pub(crate) fn takes_checksums(self) -> bool {
        self.has(net::VIRTIO_NET_F_GUEST_CSUM)
    }

    /// The guest takes some super-packets.
    pub(crate) fn takes_super_packets(self) -> bool {
        OFFLOADS.iter().skip(1).any(|(.., takes)| takes.iter().any(|bit| self.has(*bit)))
    }

    /// The guest takes this super-packet.
    pub(crate) fn accepts(self, header: &Header) -> bool {
        let GsoType(bits) = header.gso_type;
        let kind = match header.gso_type.kind() {
            GsoType::TCPV4 => self.has(net::VIRTIO_NET_F_GUEST_TSO4),
            GsoType::TCPV6 => self.has(net::VIRTIO_NET_F_GUEST_TSO6),
            GsoType::UDP_L4 => {
                self.has(net::VIRTIO_NET_F_GUEST_USO4) && self.has(net::VIRTIO_NET_F_GUEST_USO6)
            }
            _ => false,
        };
        let ecn = GsoType::ECN.0;
        kind && bits & !(GsoType(bits).kind().0 | ecn) == 0
            && (bits & ecn == 0 || self.has(net::VIRTIO_NET_F_GUEST_ECN))
    }
}

impl fmt::Display for Features {
    /// The offloads of both directions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |bits: &[u32]| bits.iter().all(|bit| self.has(*bit));
        let union = |all: Offloads, (one, ..): &(Offloads, _, _)| all.union(*one);
        let sends = OFFLOADS.iter().filter(|(_, sends, _)| has(sends)).fold(Offloads::NONE, union);
        let takes = OFFLOADS.iter().filter(|(.., takes)| has(takes)).fold(Offloads::NONE, union);
        let merged = if self.has_mergeable_buffers() { "mergeable" } else { "single" };
        write!(f, "it sends with {sends}, takes {takes}, {merged} buffers")
    }
}
