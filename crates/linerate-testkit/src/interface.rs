//! [`Interface`]: what can be asked of and done to an interface in a namespace.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, State};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteType;

use crate::features::set_features;
use crate::namespace::{Handle, has_ipv6};
use crate::netlink::family;
use crate::{Error, Result};

/// A 48-bit hardware address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || format!("{text:?} is no hardware address; write it as 02:00:00:00:00:01");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() <= 2).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

/// The interface's 64-bit counters (`struct rtnl_link_stats64`), in frames and bytes since it was
/// made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames that were received and then dropped. A veth counts here what it found no room for,
    /// and what an XDP program dropped.
    pub rx_dropped: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames that could not be sent. A veth counts here what the other end had no room for.
    pub tx_dropped: u64,
}

/// An interface in a namespace.
#[derive(Clone, Debug)]
pub struct Interface {
    namespace: Arc<Handle>,
    name: String,
    index: u32,
    mac: Mac,
}

impl Interface {
    pub(crate) fn find(namespace: Arc<Handle>, name: &str) -> Result<Self> {
        let mut question = LinkMessage::default();
        question.attributes.push(LinkAttribute::IfName(name.to_owned()));
        let link = ask_link(&namespace, question).map_err(|source| {
            let missing = source.raw_os_error() == Some(nix::errno::Errno::ENODEV as i32);
            Error::Interface {
                interface: name.to_owned(),
                namespace: namespace.name.clone(),
                action: if missing { "find anything" } else { "look it up" }.to_owned(),
                source,
            }
        })?;
        let mac = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Address(bytes) => <[u8; 6]>::try_from(&bytes[..]).ok().map(Mac),
            _ => None,
        });
        Ok(Self {
            namespace,
            name: name.to_owned(),
            index: link.header.index,
            mac: mac.unwrap_or_default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index in its namespace.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its hardware address when it was looked up; zeros where it has none of 48 bits.
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Brings it up.
    ///
    /// # Errors
    /// When the kernel refuses, or it is gone.
    pub fn up(&self) -> Result<()> {
        self.set_flag(LinkFlags::Up, true, "bring it up")
    }

    /// Waits until it has a carrier and its queue is started (`net/core/link_watch.c` does both under the
    /// lock that questions take, and in newer kernels a question itself makes it).
    pub(crate) fn wait_for_carrier(&self, patience: Duration) -> Result<()> {
        const ACTION: &str = "wait for its carrier";
        let deadline = Instant::now() + patience;
        loop {
            let link = self.ask(ACTION)?;
            let is_up = |one: &LinkAttribute| matches!(one, LinkAttribute::OperState(State::Up));
            if link.attributes.iter().any(is_up) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(self.failed(ACTION.to_owned(), io::ErrorKind::TimedOut.into()));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Takes it down.
    ///
    /// # Errors
    /// As [`Interface::up`].
    pub fn down(&self) -> Result<()> {
        self.set_flag(LinkFlags::Up, false, "take it down")
    }

    /// Receives frames for other stations too, or no longer.
    ///
    /// # Errors
    /// As [`Interface::up`].
    pub fn set_promiscuous(&self, on: bool) -> Result<()> {
        self.set_flag(LinkFlags::Promisc, on, "change promiscuous mode")
    }

    /// Sets the largest packet, in bytes of the network layer.
    ///
    /// # Errors
    /// When the driver, or an XDP program on it, does not take it.
    pub fn set_mtu(&self, mtu: u32) -> Result<()> {
        self.set(LinkAttribute::Mtu(mtu), "set the MTU")
    }

    /// Sets the hardware address; this value goes on to show the one it was looked up with.
    ///
    /// # Errors
    /// When the driver does not take it.
    pub fn set_mac(&self, mac: Mac) -> Result<()> {
        self.set(LinkAttribute::Address(mac.0.to_vec()), "set the hardware address")
    }

    /// Gives it an address with a prefix length in bits. An IPv6 address is usable at once:
    /// duplicate address detection is skipped.
    ///
    /// # Errors
    /// When it has the address already, or the prefix is too long for the family.
    pub fn add_address(&self, address: IpAddr, prefix: u8) -> Result<()> {
        if address.is_ipv6() && has_ipv6() {
            let key = format!("net/ipv6/conf/{}/disable_ipv6", self.name);
            self.namespace.sysctl(&key, "0")?;
        }
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = self.index;
        message.attributes.push(AddressAttribute::Address(address));
        match address {
            IpAddr::V4(_) => message.attributes.push(AddressAttribute::Local(address)),
            IpAddr::V6(_) => {
                message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
            }
        }
        self.namespace
            .route
            .create(RouteNetlinkMessage::NewAddress(message))
            .map_err(|source| self.failed(format!("add the address {address}/{prefix}"), source))
    }

    /// Says for good which hardware address `address` has behind this interface, so that nobody
    /// asks (a sink that drops everything drops ARP and neighbour discovery too).
    ///
    /// # Errors
    /// When the interface is down.
    pub fn add_neighbour(&self, address: IpAddr, mac: Mac) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.index;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unicast;
        message.attributes.push(NeighbourAttribute::Destination(match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        }));
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
        self.namespace
            .route
            .put(RouteNetlinkMessage::NewNeighbour(message))
            .map_err(|source| self.failed(format!("set the neighbour {address}"), source))
    }

    /// Turns generic receive offload on or off. On a veth, it also turns on the NAPI that XDP's
    /// live frames need at the receiving end.
    ///
    /// # Errors
    /// When the driver does not allow it.
    pub fn set_gro(&self, on: bool) -> Result<()> {
        self.set_features(&[("rx-gro", on)])
    }

    /// Turns every offload that changes frames on or off: checksums left to the hardware, and
    /// segmentation and coalescing. With them off, what is captured is what a wire would carry.
    ///
    /// # Errors
    /// When the driver does not allow it.
    pub fn set_offloads(&self, on: bool) -> Result<()> {
        self.set_features(&[
            ("tx-checksum-ip-generic", on),
            ("tx-checksum-ipv4", on),
            ("tx-checksum-ipv6", on),
            ("tx-checksum-sctp", on),
            ("tx-generic-segmentation", on),
            ("tx-gso-partial", on),
            ("tx-scatter-gather", on),
            ("tx-scatter-gather-fraglist", on),
            ("tx-sctp-segmentation", on),
            ("tx-tcp-segmentation", on),
            ("tx-tcp-accecn-segmentation", on),
            ("tx-tcp-ecn-segmentation", on),
            ("tx-tcp-mangleid-segmentation", on),
            ("tx-tcp6-segmentation", on),
            ("tx-udp-segmentation", on),
            ("rx-gro", on),
            ("rx-gro-list", false),
            ("rx-udp-gro-forwarding", false),
        ])
    }

    /// Sets features by the kernel's names (`ethtool -k` shows most of them). A feature that this
    /// kernel or driver fixes, and that is not as wanted, is left as it is.
    ///
    /// # Errors
    /// When the kernel has no ethtool netlink, or refuses the request as a whole.
    pub fn set_features(&self, features: &[(&str, bool)]) -> Result<()> {
        self.namespace
            .run(|| set_features(self.index, features))?
            .map_err(|source| self.failed("set offloads".to_owned(), source))
    }

    /// Reads the counters.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn counters(&self) -> Result<Counters> {
        let link = self.ask("read the counters")?;
        let statistics = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(statistics) => Some(Counters {
                rx_packets: statistics.rx_packets,
                rx_bytes: statistics.rx_bytes,
                rx_dropped: statistics.rx_dropped,
                tx_packets: statistics.tx_packets,
                tx_bytes: statistics.tx_bytes,
                tx_dropped: statistics.tx_dropped,
            }),
            _ => None,
        });
        statistics.ok_or_else(|| {
            let missing = io::Error::new(io::ErrorKind::Unsupported, "the driver keeps none");
            self.failed("read the counters".to_owned(), missing)
        })
    }

    /// Whether an XDP program is attached, whoever did it.
    ///
    /// # Errors
    /// When the interface is gone.
    pub fn has_xdp(&self) -> Result<bool> {
        use netlink_packet_route::link::{LinkXdp, XdpAttached};
        let link = self.ask("look for an XDP program")?;
        Ok(link.attributes.iter().any(|attribute| match attribute {
            LinkAttribute::Xdp(nested) => nested
                .iter()
                .any(|entry| matches!(entry, LinkXdp::Attached(how) if *how != XdpAttached::None)),
            _ => false,
        }))
    }

    /// Removes it (and, for a veth, its other end).
    ///
    /// # Errors
    /// When it is gone already.
    pub fn delete(self) -> Result<()> {
        self.namespace
            .route
            .change(RouteNetlinkMessage::DelLink(self.addressed()))
            .map_err(|source| self.failed("delete it".to_owned(), source))
    }

    fn ask(&self, action: &str) -> Result<LinkMessage> {
        ask_link(&self.namespace, self.addressed())
            .map_err(|source| self.failed(action.to_owned(), source))
    }

    fn set(&self, attribute: LinkAttribute, action: &str) -> Result<()> {
        let mut message = self.addressed();
        message.attributes.push(attribute);
        self.apply(message, action)
    }

    fn set_flag(&self, flag: LinkFlags, on: bool, action: &str) -> Result<()> {
        let mut message = self.addressed();
        message.header.flags = if on { flag } else { LinkFlags::empty() };
        message.header.change_mask = flag;
        self.apply(message, action)
    }

    fn apply(&self, message: LinkMessage, action: &str) -> Result<()> {
        self.namespace
            .route
            .change(RouteNetlinkMessage::SetLink(message))
            .map_err(|source| self.failed(action.to_owned(), source))
    }

    fn addressed(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = self.index;
        message
    }

    fn failed(&self, action: String, source: io::Error) -> Error {
        Error::Interface {
            interface: self.name.clone(),
            namespace: self.namespace.name.clone(),
            action,
            source,
        }
    }
}

fn ask_link(namespace: &Handle, question: LinkMessage) -> io::Result<LinkMessage> {
    match namespace.route.ask(RouteNetlinkMessage::GetLink(question))? {
        RouteNetlinkMessage::NewLink(link) => Ok(link),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "asked for a link, got another thing")),
    }
}
