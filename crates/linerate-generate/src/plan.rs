//! [`Settings`] are what is wanted; a [`Plan`] is what was decided.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

use linerate_wire::ip::Protocol;
use linerate_wire::{ethernet, vlan};

use crate::fields::{Addresses, Ports};
use crate::interface::Interface;
use crate::template::{self, Template};
use crate::{Error, Rate, Result, Sizes};

/// Frames that one run may send at most.
const MAX_COUNT: u64 = 1 << 62;

/// What to generate, as somebody asks for it. `None` leaves the choice to [`Plan::decide`].
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Frames to send; without end where neither this nor `duration` is given.
    pub count: Option<u64>,
    /// How long to send.
    pub duration: Option<Duration>,
    /// Frame lengths; 64 bytes, or as many as the headers take.
    pub sizes: Option<Sizes>,
    /// How fast.
    pub rate: Rate,
    /// Flows after which the fields start again. Where no field varies, the source ports do, and
    /// where these are not enough, the source addresses.
    pub flows: Option<u64>,
    /// Source addresses; 198.18.0.1 (RFC 2544) or 2001:2::1 (RFC 5180).
    pub source: Option<Addresses>,
    /// Destination addresses; 198.19.0.1 or 2001:2:0:1::1.
    pub destination: Option<Addresses>,
    /// Source ports; 1024.
    pub source_ports: Option<Ports>,
    /// Destination ports; 9, discard.
    pub destination_ports: Option<Ports>,
    /// Source hardware address; the interface's own.
    pub source_mac: Option<ethernet::Address>,
    /// Destination hardware address; that of a veth peer in the same namespace, else one that belongs
    /// to nobody ([`Plan::NOBODY`]), so that no host on a real network has to look at the flood.
    pub destination_mac: Option<ethernet::Address>,
    /// UDP or TCP.
    pub transport: Transport,
    /// VLAN identifier of the tag, 1 to 4094; no tag where `None`.
    pub vlan: Option<u16>,
    /// Fields that are random instead of walked.
    pub random: Random,
    /// Start of the random numbers: the same seed gives the same frames.
    pub seed: u64,
    /// What the payload starts with; a sequence number where the shortest frame has room for it.
    pub stamp: Option<Stamp>,
    /// CPU that sends; wherever the scheduler put the thread where `None`.
    pub cpu: Option<usize>,
    /// How frames get to the interface.
    pub backend: Backend,
    /// Flood an interface that carries a default route.
    pub allow_default_route: bool,
}

/// The protocol above IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    #[default]
    Udp,
    /// TCP segments of no connection, with ACK and PSH set.
    Tcp,
}

impl Transport {
    pub(crate) const fn protocol(self) -> Protocol {
        match self {
            Self::Udp => Protocol::UDP,
            Self::Tcp => Protocol::TCP,
        }
    }
}

/// Fields that are random instead of walked. Without a range of its own a random address comes from a
/// benchmarking network (198.18.0.0/16 and 198.19.0.0/16, or 2001:2::/96 and 2001:2:0:1::/96), a random
/// port from 1024 to 65535.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Random {
    /// Source address.
    pub source: bool,
    /// Destination address.
    pub destination: bool,
    /// Source port.
    pub source_port: bool,
    /// Destination port.
    pub destination_port: bool,
    /// Source hardware address: locally administered, unicast.
    pub source_mac: bool,
    /// Destination hardware address: locally administered, unicast.
    pub destination_mac: bool,
    /// Frame length.
    pub size: bool,
}

impl FromStr for Random {
    type Err = Error;

    /// A list of `src`, `dst`, `sport`, `dport`, `smac`, `dmac`, `mac` (both) and `size`.
    fn from_str(text: &str) -> Result<Self> {
        let mut random = Self::default();
        for name in text.split(',').map(str::trim) {
            match name {
                "src" => random.source = true,
                "dst" => random.destination = true,
                "sport" => random.source_port = true,
                "dport" => random.destination_port = true,
                "smac" => random.source_mac = true,
                "dmac" => random.destination_mac = true,
                "mac" => (random.source_mac, random.destination_mac) = (true, true),
                "size" => random.size = true,
                _ => {
                    return Err(Error::argument(
                        format!("random {name:?}"),
                        "expected a list of src, dst, sport, dport, mac, smac, dmac, size",
                    ));
                }
            }
        }
        Ok(random)
    }
}

impl Random {
    fn any_of_flow(self) -> bool {
        self.source || self.destination || self.source_port || self.destination_port
    }
}

/// What the payload of a frame starts with, in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Nothing: all payload is zero.
    None,
    /// The four bytes `LNRT` and the number of the frame, counted from 0, in eight.
    Sequence,
    /// The same, and eight bytes with the time on CLOCK_MONOTONIC in nanoseconds.
    Time,
}

impl Stamp {
    /// Bytes that the stamp takes.
    pub const fn len(self) -> usize {
        match self {
            Self::None => 0,
            Self::Sequence => 12,
            Self::Time => 20,
        }
    }

    /// Whether there is no stamp.
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::None)
    }
}

impl FromStr for Stamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "none" => Ok(Self::None),
            "sequence" => Ok(Self::Sequence),
            "time" => Ok(Self::Time),
            _ => Err(Error::argument(format!("stamp {text:?}"), "expected none, sequence or time")),
        }
    }
}

/// How frames get to the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// The fastest that works.
    #[default]
    Auto,
    /// XDP live frames: a program in the kernel.
    Live,
    /// An AF_PACKET transmit ring.
    Packet,
    /// An AF_XDP socket on the first queue. Never chosen by itself: where the driver has zero-copy, it
    /// takes the queue away from the stack. Frames have at most 4096 bytes.
    Xdp,
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "live" => Ok(Self::Live),
            "packet" => Ok(Self::Packet),
            "xdp" => Ok(Self::Xdp),
            _ => Err(Error::argument(
                format!("backend {text:?}"),
                "expected auto, live, packet or xdp",
            )),
        }
    }
}

/// A run that was checked and decided in every detail.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) interface: Interface,
    pub(crate) count: Option<u64>,
    pub(crate) duration: Option<Duration>,
    pub(crate) sizes: Sizes,
    pub(crate) rate: Rate,
    pub(crate) flows: Option<u64>,
    pub(crate) source: Addresses,
    pub(crate) destination: Addresses,
    pub(crate) source_ports: Ports,
    pub(crate) destination_ports: Ports,
    pub(crate) source_mac: ethernet::Address,
    pub(crate) destination_mac: ethernet::Address,
    pub(crate) transport: Transport,
    pub(crate) vlan: Option<u16>,
    pub(crate) random: Random,
    pub(crate) seed: u64,
    pub(crate) stamp: Stamp,
    pub(crate) cpu: Option<usize>,
    pub(crate) backend: Backend,
    pub(crate) template: Template,
}

impl Plan {
    /// A locally administered unicast address that no host has.
    pub const NOBODY: ethernet::Address = ethernet::Address([0x02, 0x4c, 0x4e, 0x52, 0x54, 0x02]);

    /// Checks what is wanted against the interface and decides the rest.
    ///
    /// # Errors
    /// [`Error::NoInterface`]; [`Error::Interface`] where it is down, or carries a default route and
    /// that was not allowed; [`Error::Argument`] for what makes no sense.
    pub fn decide(interface: &str, settings: Settings) -> Result<Self> {
        Self::decide_for(Interface::find(interface)?, settings)
    }

    /// The same for an interface that was found already.
    pub fn decide_for(interface: Interface, settings: Settings) -> Result<Self> {
        interface.check(settings.allow_default_route)?;
        let Settings { count, duration, rate, transport, vlan, random, seed, cpu, backend, .. } =
            settings;
        check_limits(count, duration, vlan)?;
        let v6 = family(settings.source, settings.destination)?;
        let mut source = settings.source.unwrap_or_else(|| default_source(v6, random.source));
        let destination =
            settings.destination.unwrap_or_else(|| default_destination(v6, random.destination));
        let default_ports = |random, port| match random {
            true => Ports::new(1024, u16::MAX).unwrap_or(Ports::one(port)),
            false => Ports::one(port),
        };
        let mut source_ports =
            settings.source_ports.unwrap_or_else(|| default_ports(random.source_port, 1024));
        let destination_ports =
            settings.destination_ports.unwrap_or_else(|| default_ports(random.destination_port, 9));
        if let Some(flows) = settings.flows {
            let varied = source.count() > 1
                || destination.count() > 1
                || source_ports.count() > 1
                || destination_ports.count() > 1;
            if !varied && flows > 1 {
                (source_ports, source) = spread(flows, source_ports, source)?;
            }
            let walked = [
                (random.source, source.count()),
                (random.destination, destination.count()),
                (random.source_port, source_ports.count()),
                (random.destination_port, destination_ports.count()),
            ];
            let tuples = walked
                .iter()
                .filter(|(random, _)| !random)
                .fold(1_u64, |tuples, (_, count)| tuples.saturating_mul(*count));
            if flows == 0 || (flows > tuples && !random.any_of_flow()) {
                let why = format!("must be 1 to {tuples}, which is what the ranges give");
                return Err(Error::argument(format!("flows {flows}"), why));
            }
        }
        let header_len = template::header_len(vlan.is_some(), v6, transport);
        let (sizes, stamp) = sizes_and_stamp(&settings.sizes, settings.stamp, header_len)?;
        let largest = interface.longest_frame(vlan.is_some());
        if usize::from(sizes.max()) > largest {
            let why = format!(
                "{} takes at most {largest} bytes (its MTU is {})",
                interface.name, interface.mtu
            );
            return Err(Error::argument(format!("size {sizes}"), why));
        }
        let mut plan = Self {
            source_mac: settings.source_mac.unwrap_or(interface.mac),
            destination_mac: settings
                .destination_mac
                .or(interface.peer_mac)
                .unwrap_or(Self::NOBODY),
            flows: settings.flows,
            template: Template::default(),
            interface,
            count,
            duration,
            sizes,
            rate,
            source,
            destination,
            source_ports,
            destination_ports,
            transport,
            vlan,
            random,
            seed,
            stamp,
            cpu,
            backend,
        };
        plan.template = Template::of(&plan);
        Ok(plan)
    }

    /// The interface that frames go to.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Frame lengths.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// What the payload starts with.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Frames to send, where that is limited.
    pub fn count(&self) -> Option<u64> {
        self.count
    }

    /// How long to send, where that is limited.
    pub fn duration(&self) -> Option<Duration> {
        self.duration
    }

    pub(crate) fn is_ipv6(&self) -> bool {
        self.source.is_ipv6()
    }

    /// Whether the IPv4 header checksum differs from frame to frame.
    pub(crate) fn network_varies(&self) -> bool {
        let one_length = matches!(self.sizes, Sizes::Fixed(_));
        let one_pair = self.source.count() == 1 && self.destination.count() == 1;
        !(self.is_ipv6() || (one_length && one_pair))
    }
}

fn check_limits(count: Option<u64>, duration: Option<Duration>, vlan: Option<u16>) -> Result<()> {
    if let Some(count) = count.filter(|count| !(1..=MAX_COUNT).contains(count)) {
        return Err(Error::argument(format!("count {count}"), "must be 1 to 2^62"));
    }
    if duration.is_some_and(|duration| duration.is_zero()) {
        return Err(Error::argument("seconds 0", "must be above 0"));
    }
    if let Some(vlan) = vlan.filter(|id| !(1..=vlan::MAX_ID).contains(id)) {
        return Err(Error::argument(format!("vlan {vlan}"), "must be 1 to 4094"));
    }
    Ok(())
}

fn family(source: Option<Addresses>, destination: Option<Addresses>) -> Result<bool> {
    match (source, destination) {
        (Some(source), Some(destination)) if source.is_ipv6() != destination.is_ipv6() => {
            Err(Error::argument(
                format!("source {source} and destination {destination}"),
                "must be both IPv4 or both IPv6",
            ))
        }
        (source, destination) => Ok(source.or(destination).is_some_and(|a| a.is_ipv6())),
    }
}

fn default_source(v6: bool, random: bool) -> Addresses {
    benchmark_network(v6, random, [0x2001, 0x2, 0], [198, 18])
}

fn default_destination(v6: bool, random: bool) -> Addresses {
    benchmark_network(v6, random, [0x2001, 0x2, 1], [198, 19])
}

fn benchmark_network(v6: bool, whole: bool, upper: [u16; 3], v4: [u8; 2]) -> Addresses {
    let host = u8::from(!whole);
    let [a, b, c] = upper;
    let (first, count) = match v6 {
        true => (Ipv6Addr::new(a, b, 0, c, 0, 0, 0, host.into()).into(), 1 << 32),
        false => (Ipv4Addr::new(v4[0], v4[1], 0, host).into(), 1 << 16),
    };
    Addresses::new(first, if whole { count } else { 1 }).unwrap_or(Addresses::one(first))
}

/// As many source ports as there are flows, and where they are not enough, source addresses too.
fn spread(flows: u64, ports: Ports, source: Addresses) -> Result<(Ports, Addresses)> {
    let room = u64::from(u16::MAX - ports.first()) + 1;
    let taken = flows.min(room);
    let ports = Ports::new(ports.first(), (u64::from(ports.first()) + taken - 1) as u16)?;
    let source = Addresses::new(source.first(), flows.div_ceil(taken)).map_err(|_| {
        Error::argument(
            format!("flows {flows}"),
            "more than source ports and addresses can tell apart",
        )
    })?;
    Ok((ports, source))
}

fn sizes_and_stamp(
    sizes: &Option<Sizes>,
    stamp: Option<Stamp>,
    header_len: usize,
) -> Result<(Sizes, Stamp)> {
    let wanted = stamp.unwrap_or(Stamp::None).len();
    let need = header_len + wanted;
    let sizes = sizes.clone().unwrap_or_else(|| Sizes::Fixed(need.max(64) as u16));
    sizes.check()?;
    let min = usize::from(sizes.min());
    if min < need {
        let stamp = match wanted {
            0 => String::new(),
            bytes => format!(" and {bytes} of stamp"),
        };
        let why = format!("too short for {header_len} bytes of headers{stamp}: at least {need}");
        return Err(Error::argument(format!("size {sizes}"), why));
    }
    let room = min >= header_len + Stamp::Sequence.len();
    let automatic = if room { Stamp::Sequence } else { Stamp::None };
    Ok((sizes, stamp.unwrap_or(automatic)))
}
