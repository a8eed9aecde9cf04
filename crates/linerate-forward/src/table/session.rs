//! [`Session`]: one direction of a conversation that the fast path forwards, and [`Decoder`], which makes it of what the
//! maps store.

mod rates;
mod select;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use linerate_wire::ethernet::Address;
use serde::{Serialize, Serializer};

pub use rates::{Rate, Rates};
pub use select::{Filter, Selection, Sort};

use crate::datapath::Datapath;
use crate::table::clock::Clock;
use crate::table::layout::{self, Addresses, Cold, Hop, REFERENCED, flags, kind};
use crate::tuple::{FiveTuple, Protocol};

/// A session at the time of reading.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Session {
    /// The number of its slot, `8 * bucket + way`.
    #[serde(skip)]
    pub slot: usize,
    /// When it began, and its number among the sessions of its slot: `cold.created` of `bpf/layout.h`.
    #[serde(skip)]
    pub created: u32,
    /// Protocol, addresses and ports of arriving packets; `session` in JSON.
    #[serde(rename = "session")]
    pub tuple: FiveTuple,
    /// The input interface.
    #[serde(serialize_with = "text")]
    pub ingress: InterfaceName,
    /// The DSCP of arriving packets, 0 to 63.
    pub dscp: u8,
    /// The VLAN tags of arriving packets, the outer first.
    pub vlan: Vec<Tag>,
    /// The output interface.
    #[serde(serialize_with = "text")]
    pub egress: InterfaceName,
    /// The DSCP of leaving packets, 0 to 63.
    pub out_dscp: u8,
    /// The VLAN tags of leaving packets, the outer first.
    pub out_vlan: Vec<Tag>,
    /// Addresses and ports after NAT.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nat: Option<Nat>,
    /// The destination MAC address of leaving packets.
    #[serde(serialize_with = "text")]
    pub next_hop: Address,
    /// The largest IP packet that takes the fast path, bytes.
    pub mtu: u16,
    /// Whether packets take the fast path now.
    pub state: State,
    /// What forwards its packets.
    pub datapath: Datapath,
    /// Why not XDP, where TC does.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "reason")]
    pub reason: Option<Arc<str>>,
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

impl Session {
    /// Source and destination of packets that leave.
    pub fn out(&self) -> (SocketAddr, SocketAddr) {
        let (source, destination) =
            self.nat.map_or((None, None), |nat| (nat.source, nat.destination));
        (source.unwrap_or(self.tuple.source), destination.unwrap_or(self.tuple.destination))
    }
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

/// Names of interfaces by index, of the network namespace of the thread that asks.
#[derive(Clone, Debug, Default)]
struct InterfaceNames(HashMap<u32, Arc<str>>);

impl InterfaceNames {
    fn name(&mut self, index: u32) -> InterfaceName {
        if !self.0.contains_key(&index) {
            let links = linerate_net::link::all().unwrap_or_default();
            self.0.extend(links.into_iter().map(|link| (link.index, link.name.into())));
        }
        let name = self.0.entry(index).or_insert_with(|| format!("#{index}").into());
        InterfaceName { index, name: Arc::clone(name) }
    }
}

/// What the maps store of a session, each part as in `bpf/layout.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) session: layout::Session,
    pub(crate) hop: Hop,
    pub(crate) cold: Cold,
    /// IPv6: as packets come in, and as they leave.
    pub(crate) addresses: [Addresses; 2],
}

impl Stored {
    /// Protocol, addresses and ports of arriving packets.
    pub(crate) fn tuple(&self) -> FiveTuple {
        let is_tcp = self.session.kind & kind::TCP != 0;
        let [(source, destination), _] = self.ends();
        FiveTuple {
            protocol: if is_tcp { Protocol::Tcp } else { Protocol::Udp },
            source,
            destination,
        }
    }

    /// Source and destination of packets that come in, and of packets that leave.
    fn ends(&self) -> [(SocketAddr, SocketAddr); 2] {
        let Self { session, addresses: [came, left], .. } = self;
        let addresses: [[IpAddr; 2]; 2] = match session.kind & kind::FAMILY {
            kind::IPV6 => [came, left].map(|one| [one.source.into(), one.destination.into()]),
            _ => [
                [session.in_source.into(), session.in_destination.into()],
                [session.source.into(), session.destination.into()],
            ],
        };
        let ports = [session.ports, [session.source_port, session.destination_port]];
        std::array::from_fn(|at| {
            let [source, destination] = addresses[at];
            let [from, to] = ports[at].map(u16::from_be_bytes);
            ((source, from).into(), (destination, to).into())
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

/// Makes sessions of what the maps store.
#[derive(Clone, Debug)]
pub struct Decoder {
    clock: Clock,
    /// The current generation.
    generation: u32,
    names: InterfaceNames,
    /// Why XDP may not take what comes in by the interface of this index, and what leaves.
    not_xdp: [HashMap<u32, Arc<str>>; 2],
}

impl Decoder {
    /// Of sessions of which those of this generation are valid.
    pub(crate) fn new(clock: Clock, generation: u32) -> Self {
        Self { clock, generation, names: InterfaceNames::default(), not_xdp: Default::default() }
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Knows also why XDP may not take what comes in by these interfaces, and what leaves.
    pub(crate) fn with_reasons(self, not_xdp: [HashMap<u32, Arc<str>>; 2]) -> Self {
        Self { not_xdp, ..self }
    }

    /// The session of `slot`, without a rate.
    pub(crate) fn decode(&mut self, slot: usize, stored: &Stored) -> Session {
        let Stored { session, hop, cold, .. } = stored;
        let [(source, destination), (to_source, to_destination)] = stored.ends();
        let datapath = if hop.flags & flags::TC != 0 { Datapath::Tc } else { Datapath::Xdp };
        let last_use = LastUse::new(session.owner & REFERENCED != 0, cold.used);
        Session {
            slot,
            created: cold.created,
            tuple: stored.tuple(),
            ingress: self.names.name(hop.ifindex),
            dscp: session.dscp >> 2,
            vlan: stored.tags(),
            egress: self.names.name(hop.out_ifindex),
            out_dscp: hop.dscp >> 2,
            out_vlan: stored.out_tags(),
            nat: (hop.flags & flags::NAT != 0).then(|| Nat {
                source: (to_source != source).then_some(to_source),
                destination: (to_destination != destination).then_some(to_destination),
            }),
            next_hop: Address(hop.destination_mac),
            mtu: hop.mtu,
            state: self.state(session),
            tracked: hop.flags & flags::TRACKED != 0,
            datapath,
            reason: (datapath == Datapath::Tc).then(|| self.why_not_xdp(hop)),
            age: self.clock.since(layout::created(cold.created)),
            due: self.due(session),
            idle: last_use.idle(self.clock.sixteenths()),
            revalidations: (cold.used >> 24) as u8,
            packets: session.packets.wrapping_add(cold.remote.packets),
            bytes: session.bytes.wrapping_add(cold.remote.bytes),
            rate: None,
        }
    }

    fn due(&self, session: &layout::Session) -> Duration {
        let left = session.deadline.wrapping_sub(self.clock.now() as u32) as i32;
        self.clock.duration(left.max(0) as u64)
    }

    fn why_not_xdp(&mut self, hop: &Hop) -> Arc<str> {
        let sides = [hop.ifindex, hop.out_ifindex].into_iter().zip(&self.not_xdp);
        let mut reasons = sides.filter_map(|(index, reasons)| reasons.get(&index));
        reasons.next().cloned().unwrap_or_else(|| "partial checksums of a local sender".into())
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

fn text<S: Serializer>(value: &impl fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

fn reason<S: Serializer>(reason: &Option<Arc<str>>, to: S) -> Result<S::Ok, S::Error> {
    reason.as_deref().serialize(to)
}

fn seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((time.as_secs_f64() * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests;
