//! [`Options`]: what the user asks a generator for.

use std::str::FromStr;
use std::time::Duration;

use linerate_wire::ethernet;
use linerate_wire::ip::Protocol;
use linerate_wire::tcp;

use crate::fields::{Addresses, Ports};
use crate::{Error, Rate, Result, Sizes};

/// A locally administered unicast address that no host has.
pub const UNUSED_MAC: ethernet::Address = ethernet::Address([0x02, 0x4c, 0x4e, 0x52, 0x54, 0x02]);

/// What to generate, as the user asks for it. `None` leaves the choice to
/// [`Config::new`](crate::Config::new).
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Frames to send; unlimited where neither this nor `duration` is given.
    pub count: Option<u64>,
    /// How long to send. With a rate, that is a number of frames: a run ends with the last one that is due in the time, and
    /// one that is late goes on for up to a second.
    pub duration: Option<Duration>,
    /// Frame lengths; 64 bytes, or as many as the headers take.
    pub sizes: Option<Sizes>,
    /// How fast.
    pub rate: Rate,
    /// Flows after which the fields start again. Where no field varies, the source ports do, and
    /// where these are not enough, the source addresses.
    pub flows: Option<u64>,
    /// Frames are of these flows by Zipf's law with this exponent, above 0: the first flow has the most. One after the
    /// other where `None`.
    pub zipf: Option<f64>,
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
    /// Destination hardware address; that of a veth peer in the same namespace, else one that no host has
    /// ([`UNUSED_MAC`]), so that no host on a real network has to process the flood.
    pub destination_mac: Option<ethernet::Address>,
    /// UDP or TCP.
    pub transport: Transport,
    /// Flags of TCP segments; ACK and PSH.
    pub tcp_flags: Option<tcp::Flags>,
    /// TTL or hop limit; 64.
    pub ttl: Option<u8>,
    /// Differentiated services, 0 to 63.
    pub dscp: u8,
    /// Routers may fragment IPv4 packets: DF is not set. The identification stays 0.
    pub fragmentable: bool,
    /// VLAN identifier of the tag, 0 (a priority tag) to 4094; no tag where `None`.
    pub vlan: Option<u16>,
    /// Fields that are random instead of walked.
    pub random: RandomFields,
    /// Start of the random numbers: the same seed gives the same frames.
    pub seed: u64,
    /// What the payload starts with; a sequence number where the shortest frame has room for it.
    pub stamp: Option<PayloadHeader>,
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
    /// TCP segments of no connection.
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

/// Fields that are random instead of walked. Without a range a random address comes from a
/// benchmarking network (198.18.0.0/16 and 198.19.0.0/16, or 2001:2::/96 and 2001:2:0:1::/96), a random
/// port from 1024 to 65535.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RandomFields {
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

impl FromStr for RandomFields {
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

impl RandomFields {
    pub(crate) fn varies_by_flow(self) -> bool {
        self.source || self.destination || self.source_port || self.destination_port
    }
}

/// What the payload of a frame starts with, in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadHeader {
    /// Nothing: all payload is zero.
    None,
    /// The four bytes `LNRT` and the number of the frame, counted from 0, in eight.
    Sequence,
    /// The same, and eight bytes with the time on CLOCK_MONOTONIC in nanoseconds.
    Time,
}

impl PayloadHeader {
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

impl FromStr for PayloadHeader {
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
    /// An AF_XDP socket on the first queue. Never chosen automatically: where the driver has zero-copy, it
    /// takes the queue away from the stack. Frames have at most 4096 bytes.
    Xdp,
}

linerate_net::named!(
    Backend, "backend": Auto = "auto", Live = "live", Packet = "packet", Xdp = "xdp"
);
