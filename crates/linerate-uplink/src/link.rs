//! What has to be known of a link and set on one, through netlink (`rtnetlink(7)`). The socket stays in
//! the network namespace that it was opened in.

use std::io;

use linerate_wire::ethernet::Address;
use netlink_packet_core::NLM_F_ACK;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};

use crate::netlink::Channel;
use crate::{Error, Result};

/// `ENODEV` of `asm-generic/errno-base.h`.
const ENODEV: i32 = nix::errno::Errno::ENODEV as i32;

/// A netlink socket of one network namespace.
pub(crate) struct Links(Channel);

/// A link as it is now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) up: bool,
    pub(crate) mac: Option<Address>,
    pub(crate) mtu: u32,
    /// Its other end is on this machine, too.
    pub(crate) veth: bool,
    /// Packets that it was to send and dropped.
    pub(crate) tx_dropped: u64,
}

/// What is set on a new device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// `None` for a device without a link layer.
    pub(crate) mac: Option<Address>,
    pub(crate) mtu: u32,
    /// Longest super-packet that the stack makes, in bytes.
    pub(crate) max_burst: Option<u32>,
    /// Most segments of one.
    pub(crate) max_segments: Option<u32>,
}

impl Links {
    /// A socket in the namespace of the calling thread.
    pub(crate) fn open() -> Result<Self> {
        Channel::open()
            .map(Self)
            .map_err(|source| failed("open a netlink socket".to_owned(), source))
    }

    /// The link of this name.
    pub(crate) fn named(&self, name: &str) -> Result<Link> {
        let mut request = LinkMessage::default();
        request.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.exchange(RouteNetlinkMessage::GetLink(request), 0) {
            Ok(Some(link)) => Ok(link),
            Err(error) if error.raw_os_error() == Some(ENODEV) => {
                Err(linerate_ring::Error::NoInterface(name.to_owned()).into())
            }
            other => Err(failed(format!("ask about interface {name}"), lacking(other))),
        }
    }

    /// The link of this index; `None` when it is not in the namespace any more.
    pub(crate) fn numbered(&self, index: u32) -> Result<Option<Link>> {
        let mut request = LinkMessage::default();
        request.header.index = index;
        match self.exchange(RouteNetlinkMessage::GetLink(request), 0) {
            Ok(link) => Ok(link),
            Err(error) if error.raw_os_error() == Some(ENODEV) => Ok(None),
            Err(error) => Err(failed(format!("ask about interface {index}"), error)),
        }
    }

    /// Sets everything on a device that is down, and brings it up.
    pub(crate) fn set_up(&self, name: &str, wanted: Wanted) -> Result<Link> {
        let mut request = LinkMessage::default();
        request.header.index = self.named(name)?.index;
        request.header.flags = LinkFlags::Up;
        request.header.change_mask = LinkFlags::Up;
        request.attributes.extend(wanted.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
        request.attributes.push(LinkAttribute::Mtu(wanted.mtu));
        request.attributes.extend(wanted.max_burst.map(LinkAttribute::GsoMaxSize));
        request.attributes.extend(wanted.max_segments.map(LinkAttribute::GsoMaxSegs));
        self.exchange(RouteNetlinkMessage::SetLink(request), NLM_F_ACK).map_err(|source| {
            let mac = wanted.mac.map(|mac| format!("the address {mac}, ")).unwrap_or_default();
            failed(
                format!("give {name} {mac}an MTU of {} bytes and bring it up", wanted.mtu),
                source,
            )
        })?;
        self.named(name)
    }

    /// One request, and the link in its answer.
    fn exchange(&self, request: RouteNetlinkMessage, flags: u16) -> io::Result<Option<Link>> {
        match self.0.ask(request, flags)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(Some(describe(&link))),
            _ => Ok(None),
        }
    }
}

fn describe(message: &LinkMessage) -> Link {
    let flags = message.header.flags;
    let mut link =
        Link { index: message.header.index, up: flags.contains(LinkFlags::Up), ..Link::default() };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::Address(bytes) => {
                link.mac = <[u8; 6]>::try_from(&bytes[..]).ok().map(Address);
            }
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::LinkInfo(infos) => {
                link.veth = infos.contains(&LinkInfo::Kind(InfoKind::Veth));
            }
            LinkAttribute::Stats64(counters) => link.tx_dropped = counters.tx_dropped,
            _ => {}
        }
    }
    link
}

fn failed(action: String, source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(code) if code == nix::errno::Errno::EPERM as i32 => {
            linerate_ring::Error::Privilege { action, capability: "CAP_NET_ADMIN" }.into()
        }
        _ => Error::Link { action, source },
    }
}

/// The error of an answer that is none.
fn lacking(answer: io::Result<Option<Link>>) -> io::Error {
    answer.err().unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an empty answer"))
}
