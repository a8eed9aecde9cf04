//! What a driver can and what it is set to, by generic netlink: offloads and queues from ethtool's family
//! (Documentation/networking/ethtool-netlink.rst), XDP from netdev's (Documentation/netlink/specs/netdev.yaml).

use std::collections::BTreeSet;
use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;

use crate::netlink::{Channel, attribute, attributes, nest, number, put, text, word};

const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const ETHTOOL_MSG_FEATURES_GET: u8 = 11;
const ETHTOOL_MSG_FEATURES_SET: u8 = 12;
const ETHTOOL_MSG_CHANNELS_GET: u8 = 17;
const ETHTOOL_A_HEADER: u16 = 1;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_FEATURES_WANTED: u16 = 3;
const ETHTOOL_A_FEATURES_ACTIVE: u16 = 4;
const ETHTOOL_A_FEATURES_NOCHANGE: u16 = 5;
const ETHTOOL_A_BITSET_BITS: u16 = 3;
const ETHTOOL_A_BITSET_BITS_BIT: u16 = 1;
const ETHTOOL_A_BITSET_BIT_NAME: u16 = 2;
const ETHTOOL_A_BITSET_BIT_VALUE: u16 = 3;
const ETHTOOL_A_CHANNELS_TX_MAX: u16 = 3;
const ETHTOOL_A_CHANNELS_COMBINED_MAX: u16 = 5;
const ETHTOOL_A_CHANNELS_TX_COUNT: u16 = 7;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;

const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

/// Bytes of `struct genlmsghdr`.
const HEADER: usize = 4;

/// Bits of `enum netdev_xdp_act`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Xdp(u64);

impl Xdp {
    /// The driver runs XDP programs, and carries redirections out (`NETDEV_XDP_ACT_BASIC`, `REDIRECT`).
    pub(super) fn is_native(self) -> bool {
        self.0 & 0b11 == 0b11
    }

    /// Redirected frames can be sent to it now (`NETDEV_XDP_ACT_NDO_XMIT`).
    pub(super) fn transmits(self) -> bool {
        self.0 & 1 << 2 != 0
    }
}

/// Offloads by the kernel's names.
#[derive(Clone, Debug, Default)]
pub(super) struct Features {
    active: BTreeSet<String>,
    fixed: BTreeSet<String>,
}

impl Features {
    /// Whether it is on.
    pub(super) fn has(&self, name: &str) -> bool {
        self.active.contains(name)
    }

    /// Whether the driver lets nobody change it.
    pub(super) fn is_fixed(&self, name: &str) -> bool {
        self.fixed.contains(name)
    }
}

/// Transmit queues of an interface, in use and at most; those that also receive count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queues {
    pub(super) used: u32,
    pub(super) most: u32,
    /// They are switched as `combined`, not as `tx`.
    pub(super) combined: bool,
}

/// What the driver can with XDP; `None` on a kernel that does not say (before Linux 6.3).
pub(super) fn xdp(index: u32) -> io::Result<Option<Xdp>> {
    let Some(family) = Family::find("netdev")? else { return Ok(None) };
    let mut body = Vec::new();
    put(&mut body, NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
    let mut found = None;
    family.ask(NETDEV_CMD_DEV_GET, &body, |own| {
        let bits = attribute(own, NETDEV_A_DEV_XDP_FEATURES).and_then(|value| number(value, 0));
        found = bits.map(|bits| Xdp(u64::from_ne_bytes(bits)));
    })?;
    Ok(found)
}

/// Its offloads.
pub(super) fn features(index: u32) -> io::Result<Features> {
    let mut features = Features::default();
    let Some(family) = Family::find("ethtool")? else { return Ok(features) };
    family.ask(ETHTOOL_MSG_FEATURES_GET, &about(index), |own| {
        features.active = names(own, ETHTOOL_A_FEATURES_ACTIVE);
        features.fixed = names(own, ETHTOOL_A_FEATURES_NOCHANGE);
    })?;
    Ok(features)
}

/// Turns an offload on or off. The kernel takes the wish; [`features`] says whether it came true.
pub(super) fn set_feature(index: u32, name: &str, on: bool) -> io::Result<()> {
    let missing =
        || io::Error::new(io::ErrorKind::Unsupported, "the kernel has no ethtool netlink");
    let family = Family::find("ethtool")?.ok_or_else(missing)?;
    let mut body = about(index);
    nest(&mut body, ETHTOOL_A_FEATURES_WANTED, |wanted| {
        nest(wanted, ETHTOOL_A_BITSET_BITS, |bits| {
            nest(bits, ETHTOOL_A_BITSET_BITS_BIT, |bit| {
                put(bit, ETHTOOL_A_BITSET_BIT_NAME, &terminated(name));
                if on {
                    put(bit, ETHTOOL_A_BITSET_BIT_VALUE, &[]);
                }
            });
        });
    });
    family.ask(ETHTOOL_MSG_FEATURES_SET, &body, |_| ())
}

/// Its queues; `None` where the driver does not say.
pub(super) fn queues(index: u32) -> io::Result<Option<Queues>> {
    let Some(family) = Family::find("ethtool")? else { return Ok(None) };
    let mut found = None;
    let asked = family.ask(ETHTOOL_MSG_CHANNELS_GET, &about(index), |own| {
        let count = |kind| attribute(own, kind).and_then(word).unwrap_or(0);
        let combined = count(ETHTOOL_A_CHANNELS_COMBINED_MAX);
        found = Some(Queues {
            used: count(ETHTOOL_A_CHANNELS_TX_COUNT) + count(ETHTOOL_A_CHANNELS_COMBINED_COUNT),
            most: combined.max(count(ETHTOOL_A_CHANNELS_TX_MAX)),
            combined: combined > 0,
        });
    });
    match asked {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(None),
        other => other.map(|()| found),
    }
}

fn about(index: u32) -> Vec<u8> {
    let mut body = Vec::new();
    nest(&mut body, ETHTOOL_A_HEADER, |header| {
        put(header, ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes());
    });
    body
}

/// The names of a set of bits, as an answer lists them: those that are set.
fn names(own: &[u8], set: u16) -> BTreeSet<String> {
    let bits = attribute(own, set).and_then(|set| attribute(set, ETHTOOL_A_BITSET_BITS));
    attributes(bits.unwrap_or_default())
        .filter_map(|(_, bit)| attribute(bit, ETHTOOL_A_BITSET_BIT_NAME).map(text))
        .collect()
}

/// A family of generic netlink.
struct Family {
    channel: Channel,
    id: u16,
}

impl Family {
    /// `None` where the kernel has it not.
    fn find(name: &str) -> io::Result<Option<Self>> {
        let mut control = Self { channel: Channel::open(NETLINK_GENERIC)?, id: GENL_ID_CTRL };
        let mut body = Vec::new();
        put(&mut body, CTRL_ATTR_FAMILY_NAME, &terminated(name));
        let mut id = None;
        let asked = control.ask(CTRL_CMD_GETFAMILY, &body, |own| {
            id = attribute(own, CTRL_ATTR_FAMILY_ID).and_then(|value| number(value, 0));
        });
        match asked {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            other => other?,
        }
        Ok(id.map(|id| {
            control.id = u16::from_ne_bytes(id);
            control
        }))
    }

    /// One command, and what its answers have behind their headers.
    fn ask(&self, command: u8, body: &[u8], mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let mut request = vec![command, 1, 0, 0];
        request.extend(body);
        let mut take = |message: crate::netlink::Message<'_>| {
            take(message.body.get(HEADER..).unwrap_or_default());
        };
        self.channel.ask(self.id, false, &request, &mut take).map(|_| ())
    }
}

fn terminated(name: &str) -> Vec<u8> {
    name.bytes().chain([0]).collect()
}
