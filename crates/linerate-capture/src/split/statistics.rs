//! What was split and joined, and what was not, by reason.

use std::fmt;

use linerate_net::text::plural;
use linerate_segment::Error;
use linerate_segment::coalesce;
use serde::ser::{Serialize, SerializeMap, Serializer};

linerate_net::reasons! {
    /// Why a packet that is too long for the wire is passed on unchanged.
    UnsplitReason "reason":
    Truncated "truncated" "headers cut by the snapshot length of the capture",
    UdpSize "udp_size_unknown" "UDP over the MTU: a tunnel on another port, or datagrams of unknown size; \
        else it can become fragments",
    NotIp "not_ip" "neither IPv4 nor IPv6",
    LinkType "link_type" "an unknown link type",
    Protocol "protocol" "neither TCP nor UDP; it can become fragments",
    Fragment "fragment" "IP fragments already",
    Syn "syn" "SYN with more payload than one segment",
    Jumbo "jumbo" "over 65535 bytes, and not TCP",
    Tunnel "tunnel" "a tunnel in a tunnel, or a header that cannot be repeated",
    DontFragment "dont_fragment" "would have to be fragmented and has DF",
    FixedId "fixed_id" "fixed identifications, and the packet has no DF",
    Burst "max_burst" "longer than the longest burst",
    Mtu "mtu_too_small" "the MTU has no room for headers and payload",
    Header "header" "damaged, contradicting or too many headers",
}

impl From<Error> for UnsplitReason {
    fn from(error: Error) -> Self {
        match error {
            Error::NotIp(_) => Self::NotIp,
            Error::Fragment => Self::Fragment,
            Error::Jumbo => Self::Jumbo,
            Error::Protocol(_) | Error::OtherProtocol { .. } => Self::Protocol,
            Error::NestedTunnel(_) | Error::Tunnel { .. } => Self::Tunnel,
            Error::Syn => Self::Syn,
            Error::DontFragment { .. } => Self::DontFragment,
            Error::FixedId => Self::FixedId,
            Error::MtuTooSmall { .. } | Error::ZeroSize => Self::Mtu,
            Error::BurstTooLong { .. } | Error::TooManySegments { .. } => Self::Burst,
            _ => Self::Header,
        }
    }
}

/// The counts of splitting. Packets that fit the wire are in none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct SplitStatistics {
    /// Super-packets that were split.
    pub super_packets: u64,
    /// The frames that were made of them.
    pub segments: u64,
    /// How many of `super_packets` the snapshot length had cut. Their frames end at the cut and have no checksums.
    pub cut: u64,
    /// Packets that were not split and whose missing checksum was filled in.
    pub checksums: u64,
    /// Packets over the limit that were passed on unchanged, by reason.
    pub refused: UnsplitCounts,
}

/// Packets by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnsplitCounts([u64; UnsplitReason::ALL.len()]);

impl UnsplitCounts {
    /// One more.
    pub fn add(&mut self, reason: UnsplitReason) {
        self.0[reason as usize] += 1;
    }

    /// How many of this reason.
    pub const fn count(&self, reason: UnsplitReason) -> u64 {
        self.0[reason as usize]
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The reasons that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (UnsplitReason, u64)> + '_ {
        UnsplitReason::ALL.iter().copied().zip(self.0).filter(|(_, count)| *count > 0)
    }
}

impl Serialize for UnsplitCounts {
    /// A map of the reasons that occurred, and `total`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (reason, count) in self.iter() {
            map.serialize_entry(reason.name(), &count)?;
        }
        map.serialize_entry("total", &self.total())?;
        map.end()
    }
}

impl SplitStatistics {
    /// The sum of two.
    pub fn plus(mut self, other: &Self) -> Self {
        self.super_packets += other.super_packets;
        self.segments += other.segments;
        self.cut += other.cut;
        self.checksums += other.checksums;
        for (count, more) in self.refused.0.iter_mut().zip(other.refused.0) {
            *count += more;
        }
        self
    }
}

impl fmt::Display for SplitStatistics {
    /// A line for what was done, and one for each reason why something was not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [whole, frames] =
            [plural(self.super_packets, "super-packet"), plural(self.segments, "frame")];
        write!(f, "{whole} split into {frames}")?;
        if self.cut > 0 {
            let cut = plural(self.cut, "super-packet");
            write!(
                f,
                "\n{cut} of those cut by the snapshot length: their frames end where the capture did, and \
                have no checksums"
            )?;
        }
        if self.checksums > 0 {
            write!(f, "\n{} filled in", plural(self.checksums, "checksum"))?;
        }
        for (reason, count) in self.refused.iter() {
            let packets = plural(count, "packet");
            write!(f, "\n{packets} not split: {}", reason.description())?;
        }
        Ok(())
    }
}

/// The counts of joining.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct JoinStatistics {
    /// Super-packets made.
    pub super_packets: u64,
    /// The frames that went into them.
    pub frames: u64,
    /// Frames that were passed on unchanged, by reason.
    pub alone: UnjoinedCounts,
}

/// Frames that were not joined, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct UnjoinedCounts {
    /// Not of a protocol that is joined: no TCP or UDP, fragments, IP options, padding, cut short.
    pub protocol: u64,
    /// No payload.
    pub empty: u64,
    /// A wrong or missing checksum.
    pub checksum: u64,
    /// SYN, RST, URG or CWR.
    pub flags: u64,
    /// No segment that continues it came before or after it.
    pub single: u64,
}

impl UnjoinedCounts {
    pub(super) fn add(&mut self, reason: coalesce::FlushReason) {
        use coalesce::FlushReason;
        *match reason {
            FlushReason::Protocol => &mut self.protocol,
            FlushReason::NoPayload => &mut self.empty,
            FlushReason::Checksum => &mut self.checksum,
            FlushReason::Flags => &mut self.flags,
            _ => &mut self.single,
        } += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.protocol + self.empty + self.checksum + self.flags + self.single
    }
}

impl fmt::Display for JoinStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [frames, whole] =
            [plural(self.frames, "frame"), plural(self.super_packets, "super-packet")];
        write!(f, "{frames} joined into {whole}")?;
        if self.alone.checksum > 0 {
            let frames = plural(self.alone.checksum, "frame");
            write!(
                f,
                "\n{frames} not joined: wrong or missing checksums; those that a sender left to \
                 its network card can be filled in"
            )?;
        }
        Ok(())
    }
}
