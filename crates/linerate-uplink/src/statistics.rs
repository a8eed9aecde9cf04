//! [`Statistics`]: packets per direction, and losses by cause.

use std::ops::AddAssign;

use linerate_segment::segment::{LinkType, Options, Segments};
use linerate_segment::{Error, Policy};
use linerate_wire::virtio::Header;
use serde::ser::{Serialize, SerializeMap, Serializer};

/// From the device to the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TxStatistics {
    /// Packets that had to be split.
    pub super_packets: u64,
    /// Segments that they became.
    pub segments: u64,
    /// Packets that the kernel had to split, which takes longer.
    pub by_kernel: u64,
    /// Packets that went as they came, but for a checksum.
    pub packets: u64,
    /// Checksums completed in those.
    pub checksums: u64,
    /// Bytes of frames given to the interface.
    pub bytes: u64,
}

/// From the interface to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RxStatistics {
    /// Frames received.
    pub frames: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// Super-packets written to the device.
    pub super_packets: u64,
    /// Frames that they were made of.
    pub joined: u64,
    /// Frames written as they came.
    pub packets: u64,
    /// ARP requests and neighbour solicitations for a TUN device that were answered.
    pub neighbour_replies: u64,
    /// ICMP errors written to a TUN device, for packets that cannot be sent.
    pub icmp_errors: u64,
}

/// Packets lost, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Drops {
    /// To the interface: every frame of the UMEM, or of the transmit ring, was with a kernel that did
    /// not send.
    pub umem_full: u64,
    /// To the interface: longer than its MTU allows.
    pub too_long: u64,
    /// To the interface: shorter than an Ethernet header.
    pub too_short: u64,
    /// From a virtual machine: descriptors outside its memory, without end, or without a whole virtio header.
    pub malformed: u64,
    /// To the interface: it was down, and its ring full.
    pub interface_down: u64,
    /// From a TUN device: no route through the interface, or the neighbour does not answer.
    pub unreachable: u64,
    /// From a TUN device: too many waited for a neighbour.
    pub unresolved: u64,
    /// From the interface: the kernel found no free chunk.
    pub fill_empty: u64,
    /// From the interface: the receive ring was full.
    pub ring_full: u64,
    /// To the device: no room.
    pub device_full: u64,
    /// To the device: it was down.
    pub device_down: u64,
    /// To the device: the kernel refused the packet.
    pub device_refused: u64,
    /// By the device before it was read: its queue was full (`tx_dropped`).
    pub device_queue: u64,
}

impl Drops {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }

    /// Each with its name, as in the JSON.
    pub fn named(&self) -> [(&'static str, u64); 13] {
        [
            ("umem_full", self.umem_full),
            ("too_long", self.too_long),
            ("too_short", self.too_short),
            ("malformed", self.malformed),
            ("interface_down", self.interface_down),
            ("unreachable", self.unreachable),
            ("unresolved", self.unresolved),
            ("fill_empty", self.fill_empty),
            ("ring_full", self.ring_full),
            ("device_full", self.device_full),
            ("device_down", self.device_down),
            ("device_refused", self.device_refused),
            ("device_queue", self.device_queue),
        ]
    }
}

/// Why a super-packet is not split.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("its virtio header contradicts it")]
    Virtio,
    #[error("{0}")]
    Packet(Error),
}

impl Refusal {
    /// Somebody asked for that.
    pub(crate) fn is_policy(&self) -> bool {
        matches!(self, Self::Packet(Error::TooManySegments { .. } | Error::BurstTooLong { .. }))
    }
}

/// The segments of a super-packet with this virtio header.
pub(crate) fn segments<'p>(
    header: &Header,
    packet: &'p [u8],
    policy: Policy,
) -> Result<Segments<'p>, Refusal> {
    let options =
        Options::from_virtio(header, packet, LinkType::Ethernet).ok_or(Refusal::Virtio)?;
    Segments::new(packet, &policy.limit(options)).map_err(Refusal::Packet)
}

/// Super-packets that could not be split, by the kind of error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnsplitCounts([u64; KINDS.len()]);

/// The kinds of [`linerate_segment::Error`], and what a virtio header can have wrong.
const KINDS: [&str; 13] = [
    "header",
    "length",
    "not_ip",
    "fragment",
    "jumbo",
    "protocol",
    "tunnel",
    "route",
    "syn",
    "fragmentation",
    "policy",
    "size",
    "virtio",
];

impl UnsplitCounts {
    /// One more with this virtio header. Its sender repeats it for ever: the first is a warning.
    #[cold]
    pub(crate) fn refuse(&mut self, refusal: &Refusal, header: &Header) {
        if self.total() == 0 {
            tracing::warn!(
                "a super-packet ({header}) is lost, because it cannot be split: {refusal}"
            );
        } else {
            tracing::debug!(%refusal, %header, "a super-packet that is not split");
        }
        match refusal {
            Refusal::Virtio => self.count_virtio_error(),
            Refusal::Packet(error) => self.count(error),
        }
    }

    /// One more, for this reason.
    #[cold]
    fn count(&mut self, error: &Error) {
        self.add(match error {
            Error::Header(_) | Error::TooManyTags => "header",
            Error::Length { .. } => "length",
            Error::NotIp(_) => "not_ip",
            Error::Fragment => "fragment",
            Error::Jumbo => "jumbo",
            Error::Protocol(_) | Error::OtherProtocol { .. } => "protocol",
            Error::NestedTunnel(_) | Error::Tunnel { .. } => "tunnel",
            Error::Route(_) => "route",
            Error::Syn => "syn",
            Error::DontFragment { .. } | Error::FixedId => "fragmentation",
            Error::TooManySegments { .. } | Error::BurstTooLong { .. } => "policy",
            _ => "size",
        });
    }

    /// One more whose virtio header makes no sense.
    #[cold]
    pub(crate) fn count_virtio_error(&mut self) {
        self.add("virtio");
    }

    fn add(&mut self, kind: &str) {
        if let Some(at) = KINDS.iter().position(|one| *one == kind) {
            self.0[at] += 1;
        }
    }

    /// The kinds that occurred.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        KINDS.iter().copied().zip(self.0).filter(|(_, count)| *count > 0)
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl AddAssign for UnsplitCounts {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }
}

impl Serialize for UnsplitCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (kind, count) in self.iter() {
            map.serialize_entry(kind, &count)?;
        }
        map.end()
    }
}

/// All counts of an uplink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Statistics {
    /// From the device to the interface.
    pub tx: TxStatistics,
    /// From the interface to the device.
    pub rx: RxStatistics,
    /// What could not be split.
    pub unsplit: UnsplitCounts,
    /// What was lost.
    pub dropped: Drops,
}

linerate_net::sums! {
    TxStatistics { super_packets, segments, by_kernel, packets, checksums, bytes }
    RxStatistics { frames, bytes, super_packets, joined, packets, neighbour_replies, icmp_errors }
    Drops {
        umem_full, too_long, too_short, malformed, interface_down, unreachable, unresolved, fill_empty, ring_full, device_full, device_down, device_refused,
        device_queue,
    }
    Statistics { tx, rx, unsplit, dropped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_summed_and_only_those_that_occurred_are_told() {
        let mut one = UnsplitCounts::default();
        one.count(&Error::Syn);
        one.count(&Error::ZeroSize);
        let mut sum = Statistics { unsplit: one, ..Statistics::default() };
        sum += Statistics { unsplit: one, ..Statistics::default() };
        assert_eq!(sum.unsplit.iter().collect::<Vec<_>>(), [("syn", 2), ("size", 2)]);
        assert_eq!(sum.unsplit.total(), 4);
    }

    #[test]
    fn every_drop_has_a_name() {
        let drops = Drops { umem_full: 1, device_queue: 2, ..Drops::default() };
        assert_eq!(drops.total(), 3);
    }
}
