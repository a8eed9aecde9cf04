//! [`Session`]: one direction of a conversation that the fast path forwards, as users see it.

mod rates;
mod select;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

pub use rates::{Rate, Rates};
pub use select::{Filter, Selection, Sort};

use crate::datapath::Datapath;
use crate::table::clock::Clock;
use crate::table::layout::{self, Cold, Hop, REFERENCED, flags, kind};
use crate::tuple::{FiveTuple, Protocol};

/// A session at the time of reading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Session {
    /// Protocol, addresses and ports of arriving packets; `session` in JSON.
    #[serde(rename = "session")]
    pub tuple: FiveTuple,
    /// The input interface.
    pub ingress: InterfaceName,
    /// The DSCP of arriving packets, 0 to 63.
    pub dscp: u8,
    /// The VLAN tags of arriving packets, the outer first.
    pub vlan: Vec<Tag>,
    /// The output interface.
    pub egress: InterfaceName,
    /// The DSCP of leaving packets, 0 to 63.
    pub out_dscp: u8,
    /// The VLAN tags of leaving packets, the outer first.
    pub out_vlan: Vec<Tag>,
    /// Addresses and ports after NAT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nat: Option<Nat>,
    /// The destination MAC address of leaving packets.
    pub next_hop: Mac,
    /// The largest IP packet that takes the fast path, bytes.
    pub mtu: u16,
    /// Whether packets take the fast path now.
    pub state: State,
    /// What forwards its packets.
    pub datapath: Datapath,
    /// Why not XDP, where TC does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Conntrack tracks its connection.
    pub tracked: bool,
    /// Time since it was first learned.
    #[serde(serialize_with = "seconds")]
    pub age: Duration,
    /// Time until it is due for revalidation; 0 afterwards.
    #[serde(serialize_with = "seconds")]
    pub due: Duration,
    /// Time without a packet, as the ager has seen it: it visits every few seconds.
    #[serde(serialize_with = "seconds")]
    pub idle: Duration,
    /// How often it was learned again; stops at 255.
    pub revalidations: u8,
    /// Packets since it was first learned, on the fast path and through the kernel.
    pub packets: u64,
    /// Bytes of their IP packets, from header to end of payload.
    pub bytes: u64,
    /// Packets a second between the last two readings, if there were two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// Whether the packets of a session take the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// They do.
    Fast,
    /// The next packet goes through the kernel: the session is due for revalidation.
    Due,
    /// The next packet goes through the kernel: the configuration has changed since the session was learned.
    Stale,
    /// They do not: its connection closed, or it was flushed or aged out.
    Ended,
}

linerate_net::named!(
    State, "state of a session": Fast = "fast", Due = "due", Stale = "stale", Ended = "ended",
);

/// Source and destination after NAT, if they differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Nat {
    /// The source of leaving packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SocketAddr>,
    /// The destination of leaving packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<SocketAddr>,
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Tag {
    /// The VLAN, 0 to 4095.
    pub vlan: u16,
    /// Its priority, 0 to 7.
    pub priority: u8,
    /// Whether it is a service tag (802.1ad, 0x88a8), not one of 802.1Q (0x8100).
    pub service: bool,
}

impl Tag {
    fn read(tci: [u8; 2], service: bool) -> Self {
        let tci = u16::from_be_bytes(tci);
        Self { vlan: tci & 0xfff, priority: (tci >> 13) as u8, service }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = if self.service { "s" } else { "" };
        match self.priority {
            0 => write!(f, "{service}{}", self.vlan),
            priority => write!(f, "{service}{}p{priority}", self.vlan),
        }
    }
}

/// A MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceName {
    /// Its index.
    pub index: u32,
    /// Its name; `#7` if it no longer exists.
    pub name: Arc<str>,
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Serialize for InterfaceName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.name)
    }
}

/// Names of interfaces by index.
#[derive(Clone, Debug, Default)]
pub struct InterfaceNames(HashMap<u32, Arc<str>>);

impl InterfaceNames {
    /// The interface with this index.
    fn name(&mut self, index: u32) -> InterfaceName {
        let name = self.0.entry(index).or_insert_with(|| format!("#{index}").into());
        InterfaceName { index, name: Arc::clone(name) }
    }
}

impl<N: Into<Arc<str>>> FromIterator<(u32, N)> for InterfaceNames {
    fn from_iter<I: IntoIterator<Item = (u32, N)>>(names: I) -> Self {
        Self(names.into_iter().map(|(index, name)| (index, name.into())).collect())
    }
}

/// The addresses of an IPv6 session: as packets come in, and as they leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of layout.h")]
pub struct Addresses {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub out_source: [u8; 16],
    pub out_destination: [u8; 16],
}

/// A session as stored in a table; [`SessionBuilder::session`] converts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The number of its slot, `8 * bucket + way`.
    pub slot: u64,
    /// Its cache line.
    pub session: layout::Session,
    /// What it shares with other sessions.
    pub hop: Hop,
    /// What packets rarely touch.
    pub cold: Cold,
    /// The addresses, if they are IPv6.
    pub addresses: Addresses,
}

impl Record {
    /// Packets that all CPUs counted.
    pub fn packets(&self) -> u64 {
        self.session.packets.wrapping_add(self.cold.remote.packets)
    }

    /// Bytes that all CPUs counted.
    pub fn bytes(&self) -> u64 {
        self.session.bytes.wrapping_add(self.cold.remote.bytes)
    }

    /// Whether it was ended.
    pub fn is_ended(&self) -> bool {
        self.session.generation & layout::GENERATION_ENDED != 0
    }

    /// Its protocol.
    pub fn protocol(&self) -> Protocol {
        if self.session.kind & kind::TCP == 0 { Protocol::Udp } else { Protocol::Tcp }
    }

    /// Protocol, addresses and ports of arriving packets.
    pub fn tuple(&self) -> FiveTuple {
        let Self { session, addresses, .. } = self;
        let (source, destination) = if self.is_ipv6() {
            (v6(addresses.source), v6(addresses.destination))
        } else {
            (v4(session.in_source), v4(session.in_destination))
        };
        let [source_port, destination_port] = session.ports.map(u16::from_be_bytes);
        FiveTuple {
            protocol: self.protocol(),
            source: (source, source_port).into(),
            destination: (destination, destination_port).into(),
        }
    }

    /// Whether it has forwarded a packet since the ager last looked.
    pub fn is_referenced(&self) -> bool {
        self.session.owner & REFERENCED != 0
    }

    /// How often it was learned again; stops at 255.
    pub fn revalidations(&self) -> u8 {
        (self.cold.used >> 24) as u8
    }

    fn is_ipv6(&self) -> bool {
        self.session.kind & kind::FAMILY == kind::IPV6
    }

    /// Whether NAT changes addresses or ports.
    pub(crate) fn is_translated(&self) -> bool {
        self.hop.flags & flags::NAT != 0
    }

    /// The VLANs of arriving packets, the outer first.
    pub(crate) fn vlans(&self) -> impl Iterator<Item = u16> {
        self.tags().into_iter().map(|tag| tag.vlan)
    }

    /// Source and destination of packets that leave.
    pub(crate) fn out(&self) -> (SocketAddr, SocketAddr) {
        let session = &self.session;
        let (source, destination) = if self.is_ipv6() {
            (v6(self.addresses.out_source), v6(self.addresses.out_destination))
        } else {
            (v4(session.source), v4(session.destination))
        };
        (
            (source, u16::from_be_bytes(session.source_port)).into(),
            (destination, u16::from_be_bytes(session.destination_port)).into(),
        )
    }

    pub(crate) fn nat(&self) -> Option<Nat> {
        if !self.is_translated() {
            return None;
        }
        let (FiveTuple { source, destination, .. }, (to_source, to_destination)) =
            (self.tuple(), self.out());
        Some(Nat {
            source: (to_source != source).then_some(to_source),
            destination: (to_destination != destination).then_some(to_destination),
        })
    }

    fn tags(&self) -> Vec<Tag> {
        let shifts = [kind::OUTER_VLAN_SHIFT, kind::INNER_VLAN_SHIFT];
        let tags = shifts.into_iter().zip(self.hop.tag).filter_map(|(shift, tci)| {
            let tpid = self.session.kind >> shift & 3;
            (tpid != 0).then(|| Tag::read(tci, tpid == kind::VLAN_8021AD))
        });
        tags.collect()
    }

    fn out_tags(&self) -> Vec<Tag> {
        let tags = self.hop.out_tag.iter().take(usize::from(self.hop.out_tags));
        tags.map(|&[a, b, c, d]| Tag::read([c, d], [a, b] == [0x88, 0xa8])).collect()
    }
}

/// Converts records to sessions.
#[derive(Clone, Debug)]
pub struct SessionBuilder {
    /// The clock.
    pub clock: Clock,
    /// The current generation.
    pub generation: u32,
    /// The names of the interfaces.
    pub names: InterfaceNames,
    /// Why XDP may not take what comes in by the interface of this index.
    pub not_xdp_in: HashMap<u32, String>,
    /// The same for what leaves.
    pub not_xdp_out: HashMap<u32, String>,
}

impl SessionBuilder {
    /// The session of `record`, without a rate.
    pub fn session(&mut self, record: &Record) -> Session {
        let Record { session, hop, cold, .. } = record;
        let datapath = if hop.flags & flags::TC != 0 { Datapath::Tc } else { Datapath::Xdp };
        Session {
            tuple: record.tuple(),
            ingress: self.names.name(hop.ifindex),
            dscp: session.dscp >> 2,
            vlan: record.tags(),
            egress: self.names.name(hop.out_ifindex),
            out_dscp: hop.dscp >> 2,
            out_vlan: record.out_tags(),
            nat: record.nat(),
            next_hop: Mac(hop.destination_mac),
            mtu: hop.mtu,
            state: self.state(session),
            tracked: hop.flags & flags::TRACKED != 0,
            datapath,
            reason: (datapath == Datapath::Tc).then(|| self.not_xdp(hop)),
            age: self.clock.since(layout::created(cold.created)),
            due: self.due(session),
            idle: LastUse::new(record.is_referenced(), cold.used).idle(self.clock.sixteenths()),
            revalidations: record.revalidations(),
            packets: record.packets(),
            bytes: record.bytes(),
            rate: None,
        }
    }

    fn due(&self, session: &layout::Session) -> Duration {
        let left = session.deadline.wrapping_sub(self.clock.now() as u32) as i32;
        self.clock.duration(left.max(0) as u64)
    }

    fn not_xdp(&mut self, hop: &Hop) -> String {
        let (in_, out) = (hop.ifindex, hop.out_ifindex);
        let sides =
            [self.not_xdp_in.get(&in_).zip(Some(in_)), self.not_xdp_out.get(&out).zip(Some(out))];
        match sides.into_iter().flatten().next() {
            Some((why, index)) => format!("{}: {why}", self.names.name(index)),
            None => "partial checksums of a local sender".to_owned(),
        }
    }

    fn state(&self, session: &layout::Session) -> State {
        if session.generation & layout::GENERATION_ENDED != 0 {
            State::Ended
        } else if session.generation != self.generation {
            State::Stale
        } else if (self.clock.now() as u32).wrapping_sub(session.deadline) as i32 > 0 {
            State::Due
        } else {
            State::Fast
        }
    }
}

/// The reference bit of a session, and when the ager last found it set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastUse {
    /// A packet was forwarded since the ager's last visit.
    pub(crate) is_recent: bool,
    /// Low 24 bits of the sixteenths of a second when the ager last found the bit set.
    at: u32,
}

impl LastUse {
    /// What times are noted in.
    pub(crate) const UNIT: Duration = Duration::from_nanos(1_000_000_000 / 16);

    /// Last found set at this time ([`Clock::sixteenths`]), of which the low 24 bits count.
    pub(crate) fn new(is_recent: bool, at: u32) -> Self {
        Self { is_recent, at: at & 0xff_ffff }
    }

    pub(crate) fn at(self) -> u32 {
        self.at
    }

    /// The time from the last packet to `now` ([`Clock::sixteenths`]); up to twelve days.
    pub(crate) fn idle(self, now: u64) -> Duration {
        if self.is_recent {
            return Duration::ZERO;
        }
        Self::UNIT * ((now as u32).wrapping_sub(self.at) & 0xff_ffff)
    }
}

fn v4(address: [u8; 4]) -> IpAddr {
    Ipv4Addr::from(address).into()
}

fn v6(address: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(address).into()
}

fn seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((time.as_secs_f64() * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests;
