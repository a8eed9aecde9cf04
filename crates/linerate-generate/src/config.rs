//! [`Config`]: a run, checked and decided in every detail.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use linerate_wire::{ethernet, ipv4, ipv6, tcp, udp, vlan};

use crate::fields::{Addresses, Ports};
use crate::interface::OutputInterface;
use crate::options::{Backend, Options, PayloadHeader, RandomFields, Transport, UNUSED_MAC};
use crate::{Error, Rate, Result, Sizes, zipf};

/// Frames that one run may send at most.
const MAX_COUNT: u64 = 1 << 62;

/// A run, checked and decided in every detail.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) interface: OutputInterface,
    pub(crate) count: Option<u64>,
    /// When a run ends in any case, after its first frame.
    pub(crate) time_limit: Option<Duration>,
    pub(crate) sizes: Sizes,
    pub(crate) rate: Rate,
    pub(crate) flows: Option<u64>,
    /// Numbers of flows, in the order in which frames are of them; a power of two of them.
    pub(crate) order: Option<Arc<[u32]>>,
    pub(crate) source: Addresses,
    pub(crate) destination: Addresses,
    pub(crate) source_ports: Ports,
    pub(crate) destination_ports: Ports,
    pub(crate) source_mac: ethernet::Address,
    pub(crate) destination_mac: ethernet::Address,
    pub(crate) transport: Transport,
    pub(crate) tcp_flags: tcp::Flags,
    pub(crate) ttl: u8,
    /// Differentiated services in the upper six bits.
    pub(crate) traffic_class: u8,
    pub(crate) dont_fragment: bool,
    pub(crate) vlan: Option<u16>,
    pub(crate) random: RandomFields,
    pub(crate) seed: u64,
    pub(crate) stamp: PayloadHeader,
    pub(crate) cpu: Option<usize>,
    pub(crate) backend: Backend,
}

/// How long after its time a run with a rate still sends what it owes.
const OVERTIME: Duration = Duration::from_secs(1);

impl Config {
    /// Checks the options against the interface and decides the rest.
    ///
    /// # Errors
    /// [`Error::NoInterface`]; [`Error::Interface`] where it is down, or carries a default route and
    /// that was not allowed; [`Error::Argument`] for invalid options.
    pub fn new(interface: &str, options: Options) -> Result<Self> {
        Self::for_interface(OutputInterface::find(interface)?, options)
    }

    /// The same for an interface that was found already.
    ///
    /// # Errors
    /// As for [`Config::new`], but for the interface that does not exist.
    pub fn for_interface(interface: OutputInterface, options: Options) -> Result<Self> {
        interface.check(options.allow_default_route)?;
        let Options { count, duration, rate, transport, vlan, random, seed, cpu, backend, .. } =
            options;
        check_limits(count, duration, vlan)?;
        let v6 = family(options.source, options.destination)?;
        check_fields(&options, v6)?;
        let mut source = options
            .source
            .unwrap_or_else(|| benchmark_network(v6, random.source, [0x2001, 0x2, 0], [198, 18]));
        let destination = options.destination.unwrap_or_else(|| {
            benchmark_network(v6, random.destination, [0x2001, 0x2, 1], [198, 19])
        });
        let default_ports = |random, port| match random {
            true => Ports::new(1024, u16::MAX).unwrap_or(Ports::one(port)),
            false => Ports::one(port),
        };
        let mut source_ports =
            options.source_ports.unwrap_or_else(|| default_ports(random.source_port, 1024));
        let destination_ports =
            options.destination_ports.unwrap_or_else(|| default_ports(random.destination_port, 9));
        if let Some(flows) = options.flows {
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
            if flows == 0 || (flows > tuples && !random.varies_by_flow()) {
                let reason = format!("must be 1 to {tuples}, which is what the ranges give");
                return Err(Error::argument(format!("flows {flows}"), reason));
            }
        }
        let order = options
            .zipf
            .map(|exponent| zipf::order(exponent, options.flows, random, seed))
            .transpose()?;
        let header_len = header_len(vlan.is_some(), v6, transport);
        let (sizes, stamp) = sizes_and_stamp(&options.sizes, options.stamp, header_len)?;
        let largest = interface.longest_frame(vlan.is_some());
        if usize::from(sizes.max()) > largest {
            let reason = format!(
                "{} takes at most {largest} bytes (its MTU is {})",
                interface.name, interface.mtu
            );
            return Err(Error::argument(format!("size {sizes}"), reason));
        }
        // With a rate all that falls into the time is sent, also what was late.
        let owed = duration
            .zip(rate.packets(sizes.mean()))
            // As many as are due before the end, whatever the product of two rounded numbers is.
            .map(|(duration, rate)| (rate * duration.as_secs_f64() - 1e-6).ceil().max(1.0) as u64);
        let count = [count, owed].into_iter().flatten().min();
        let time_limit = match owed {
            Some(_) => duration.map(|duration| duration + OVERTIME),
            None => duration,
        };
        Ok(Self {
            source_mac: options.source_mac.unwrap_or(interface.mac),
            destination_mac: options.destination_mac.or(interface.peer_mac).unwrap_or(UNUSED_MAC),
            flows: options.flows,
            order,
            interface,
            count,
            time_limit,
            sizes,
            rate,
            source,
            destination,
            source_ports,
            destination_ports,
            transport,
            tcp_flags: options.tcp_flags.unwrap_or(tcp::Flags::ACK.union(tcp::Flags::PSH)),
            ttl: options.ttl.unwrap_or(64),
            traffic_class: options.dscp << 2,
            dont_fragment: !options.fragmentable,
            vlan,
            random,
            seed,
            stamp,
            cpu,
            backend,
        })
    }

    /// The interface that frames go to.
    pub fn interface(&self) -> &OutputInterface {
        &self.interface
    }

    /// Frame lengths.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// What the payload starts with.
    pub fn stamp(&self) -> PayloadHeader {
        self.stamp
    }

    /// Frames to send, where that is limited: with a rate also by the duration.
    pub fn count(&self) -> Option<u64> {
        self.count
    }

    /// How far a paced run may fall behind and still catch up, in nanoseconds: a timed run sends all that it owes, and
    /// another one does not repay an hour of suspension in one burst.
    pub(crate) fn max_catch_up(&self) -> u64 {
        if self.time_limit.is_some() { u64::MAX } else { 10_000_000 }
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

/// Bytes of all headers of a frame.
pub(crate) const fn header_len(tagged: bool, v6: bool, transport: Transport) -> usize {
    ethernet::HEADER_LEN
        + if tagged { vlan::TAG_LEN } else { 0 }
        + if v6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN }
        + match transport {
            Transport::Udp => udp::HEADER_LEN,
            Transport::Tcp => tcp::HEADER_LEN,
        }
}

fn check_limits(count: Option<u64>, duration: Option<Duration>, vlan: Option<u16>) -> Result<()> {
    if let Some(count) = count.filter(|count| !(1..=MAX_COUNT).contains(count)) {
        return Err(Error::argument(format!("count {count}"), "must be 1 to 2^62"));
    }
    if duration.is_some_and(|duration| duration.is_zero()) {
        return Err(Error::argument("seconds 0", "must be above 0"));
    }
    if let Some(vlan) = vlan.filter(|id| *id > vlan::MAX_ID) {
        return Err(Error::argument(format!("vlan {vlan}"), "must be 0 to 4094"));
    }
    Ok(())
}

fn check_fields(options: &Options, v6: bool) -> Result<()> {
    if options.dscp > 63 {
        return Err(Error::argument(format!("dscp {}", options.dscp), "must be 0 to 63"));
    }
    if options.fragmentable && v6 {
        return Err(Error::argument("no DF", "needs IPv4: IPv6 has no DF flag"));
    }
    if options.tcp_flags.is_some() && options.transport == Transport::Udp {
        return Err(Error::argument("TCP flags", "need TCP"));
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

/// The network for benchmarks of this family (RFC 2544, RFC 5180), or its first host.
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
    stamp: Option<PayloadHeader>,
    header_len: usize,
) -> Result<(Sizes, PayloadHeader)> {
    let wanted = stamp.unwrap_or(PayloadHeader::None).len();
    let need = header_len + wanted;
    let sizes = sizes.clone().unwrap_or_else(|| Sizes::Fixed(need.max(64) as u16));
    sizes.check()?;
    let min = usize::from(sizes.min());
    if min < need {
        let stamp = match wanted {
            0 => String::new(),
            bytes => format!(" and {bytes} of stamp"),
        };
        let reason = format!("too short for {header_len} bytes of headers{stamp}: at least {need}");
        return Err(Error::argument(format!("size {sizes}"), reason));
    }
    let room = min >= header_len + PayloadHeader::Sequence.len();
    let automatic = if room { PayloadHeader::Sequence } else { PayloadHeader::None };
    Ok((sizes, stamp.unwrap_or(automatic)))
}
