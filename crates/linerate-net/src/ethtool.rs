//! A driver's channels, rings, coalescing, hash and features (`ethtool`), and its XDP features, by generic netlink:
//! Documentation/networking/ethtool-netlink.rst and Documentation/netlink/specs/netdev.yaml.

mod parameter;
mod rss;

pub use parameter::{Parameter, Value, parameter, set_parameter};
pub use rss::{Rss, rss};

use std::collections::BTreeSet;
use std::io;

use crate::error::Context;
use crate::netlink::{
    Family, attr_str, attr_u32, attribute, attributes, bytes_at, put_attr, put_attr_str, put_nested,
};
use crate::{Error, Result};

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
const ETHTOOL_A_CHANNELS_RX_MAX: u16 = 2;
const ETHTOOL_A_CHANNELS_TX_MAX: u16 = 3;
const ETHTOOL_A_CHANNELS_COMBINED_MAX: u16 = 5;
const ETHTOOL_A_CHANNELS_RX_COUNT: u16 = 6;
const ETHTOOL_A_CHANNELS_TX_COUNT: u16 = 7;
const ETHTOOL_A_CHANNELS_COMBINED_COUNT: u16 = 9;

const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_RX_METADATA_FEATURES: u16 = 5;
/// `NETDEV_XDP_RX_METADATA_VLAN_TAG`.
const RX_METADATA_VLAN_TAG: u64 = 1 << 2;

/// The feature that strips VLAN tags from received frames: `rx-vlan-offload` in `ethtool -k`.
pub const RX_VLAN_OFFLOAD: &str = "rx-vlan-hw-parse";

/// Queues of an interface (`ethtool -l`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Maximum of channels that only receive.
    pub rx_max: u32,
    /// Maximum of channels that only transmit.
    pub tx_max: u32,
    /// Maximum of combined channels.
    pub combined_max: u32,
    /// Channels in use that only receive.
    pub rx_count: u32,
    /// Channels in use that only transmit.
    pub tx_count: u32,
    /// Combined channels in use.
    pub combined_count: u32,
}

impl Channels {
    /// Transmit queues in use.
    pub fn tx_queues(&self) -> u32 {
        self.tx_count + self.combined_count
    }

    /// Maximum of transmit queues; a driver has either combined or separate channels.
    pub fn max_tx_queues(&self) -> u32 {
        self.tx_max.max(self.combined_max)
    }
}

/// Features by the kernel's names, which `ethtool -k` shows for most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    active: BTreeSet<String>,
    fixed: BTreeSet<String>,
}

impl Features {
    /// Whether it is on.
    pub fn is_active(&self, name: &str) -> bool {
        self.active.contains(name)
    }

    /// Those that are on, in order.
    pub fn active(&self) -> impl Iterator<Item = &str> {
        self.active.iter().map(String::as_str)
    }

    /// Whether the driver fixes it.
    pub fn is_fixed(&self, name: &str) -> bool {
        self.fixed.contains(name)
    }
}

/// XDP features of a driver (`enum netdev_xdp_act`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures(u64);

impl XdpFeatures {
    /// The driver runs XDP programs and carries out redirections (`NETDEV_XDP_ACT_BASIC`, `REDIRECT`).
    pub fn is_native(self) -> bool {
        self.0 & 0b11 == 0b11
    }

    /// Redirected frames can be sent to it now (`NETDEV_XDP_ACT_NDO_XMIT`).
    pub fn can_transmit(self) -> bool {
        self.0 & 1 << 2 != 0
    }

    /// AF_XDP sockets can share its frames without a copy (`NETDEV_XDP_ACT_XSK_ZEROCOPY`).
    pub fn has_zero_copy(self) -> bool {
        self.0 & 1 << 3 != 0
    }

    /// It receives frames in several buffers (`NETDEV_XDP_ACT_RX_SG`).
    pub fn has_multi_buffer(self) -> bool {
        self.0 & 1 << 5 != 0
    }

    /// Redirected frames in several buffers can be sent to it now (`NETDEV_XDP_ACT_NDO_XMIT_SG`).
    pub fn sends_multi_buffer(self) -> bool {
        self.0 & 1 << 6 != 0
    }
}

/// The channels of interface `index`; `None` if the driver does not report them.
pub fn channels(index: u32) -> Result<Option<Channels>> {
    let mut found = None;
    let asked = ask("ethtool", ETHTOOL_MSG_CHANNELS_GET, &header(index), |answer| {
        let count = |kind| attribute(answer, kind).and_then(attr_u32).unwrap_or(0);
        found = Some(Channels {
            rx_max: count(ETHTOOL_A_CHANNELS_RX_MAX),
            tx_max: count(ETHTOOL_A_CHANNELS_TX_MAX),
            combined_max: count(ETHTOOL_A_CHANNELS_COMBINED_MAX),
            rx_count: count(ETHTOOL_A_CHANNELS_RX_COUNT),
            tx_count: count(ETHTOOL_A_CHANNELS_TX_COUNT),
            combined_count: count(ETHTOOL_A_CHANNELS_COMBINED_COUNT),
        });
    });
    match asked {
        Err(error) if is_unsupported(&error) => Ok(None),
        other => other.map(|()| found).context(|| format!("ask for channels of interface {index}")),
    }
}

/// The features of interface `index`; none on a kernel without ethtool netlink.
pub fn features(index: u32) -> Result<Features> {
    let mut features = Features::default();
    let asked = ask("ethtool", ETHTOOL_MSG_FEATURES_GET, &header(index), |answer| {
        features.active = names(answer, ETHTOOL_A_FEATURES_ACTIVE);
        features.fixed = names(answer, ETHTOOL_A_FEATURES_NOCHANGE);
    });
    asked.context(|| format!("ask for features of interface {index}"))?;
    Ok(features)
}

/// Whether the driver of interface `index` strips VLAN tags from received frames ([`RX_VLAN_OFFLOAD`]), so
/// that no XDP program sees them; false if it does not report this.
pub fn strips_vlan_tags(index: u32) -> bool {
    features(index).is_ok_and(|features| features.is_active(RX_VLAN_OFFLOAD))
}

/// Turns a feature of interface `index` on or off. The kernel accepts the request; [`features`] shows whether
/// the driver has followed it.
///
/// # Errors
/// [`Error::Privilege`]; [`Error::System`] for a feature that the kernel does not know, and on a kernel without
/// ethtool netlink.
pub fn set_feature(index: u32, name: &str, on: bool) -> Result<()> {
    let action = || format!("turn {name} of interface {index} {}", if on { "on" } else { "off" });
    let Some(family) = Family::open("ethtool").context(action)? else {
        let missing =
            io::Error::new(io::ErrorKind::Unsupported, "the kernel has no ethtool netlink");
        return Err(Error::System { action: action(), source: missing });
    };
    let mut body = header(index);
    put_nested(&mut body, ETHTOOL_A_FEATURES_WANTED, |wanted| {
        put_nested(wanted, ETHTOOL_A_BITSET_BITS, |bits| {
            put_nested(bits, ETHTOOL_A_BITSET_BITS_BIT, |bit| {
                put_attr_str(bit, ETHTOOL_A_BITSET_BIT_NAME, name);
                if on {
                    put_attr(bit, ETHTOOL_A_BITSET_BIT_VALUE, &[]);
                }
            });
        });
    });
    family.request(ETHTOOL_MSG_FEATURES_SET, &body, |_| ()).context(action)
}

/// Turns those of these features on or off that the kernel knows and the driver does not fix.
///
/// # Errors
/// [`Error::Privilege`]; [`Error::System`] on a kernel without ethtool netlink.
pub fn set_features(index: u32, features: &[(&str, bool)]) -> Result<()> {
    // One request each: the kernel refuses a whole request for one name that it does not know.
    for (name, on) in features {
        match set_feature(index, name, *on) {
            Err(Error::System { source, .. })
                if matches!(source.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {}
            other => other?,
        }
    }
    Ok(())
}

/// XDP features of the driver of interface `index`; `None` on a kernel that does not report them (before
/// Linux 6.3).
pub fn xdp_features(index: u32) -> Result<Option<XdpFeatures>> {
    let mut found = None;
    let mut body = Vec::new();
    put_attr(&mut body, NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
    let asked = ask("netdev", NETDEV_CMD_DEV_GET, &body, |answer| {
        let bits = attribute(answer, NETDEV_A_DEV_XDP_FEATURES).and_then(|bits| bytes_at(bits, 0));
        found = bits.map(|bits| XdpFeatures(u64::from_ne_bytes(bits)));
    });
    asked.context(|| format!("ask for XDP features of interface {index}"))?;
    Ok(found)
}

/// Whether XDP programs can ask the driver for the VLAN tag that it took out of a frame (Linux 6.8).
pub fn reports_vlan_tags(index: u32) -> Result<bool> {
    let mut features = 0;
    let mut body = Vec::new();
    put_attr(&mut body, NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
    let asked = ask("netdev", NETDEV_CMD_DEV_GET, &body, |answer| {
        let bits = attribute(answer, NETDEV_A_DEV_XDP_RX_METADATA_FEATURES);
        features = bits.and_then(|bits| bytes_at(bits, 0)).map_or(0, u64::from_ne_bytes);
    });
    asked.context(|| format!("ask for the receive metadata of interface {index}"))?;
    Ok(features & RX_METADATA_VLAN_TAG != 0)
}

/// One command of a family; no answer where the kernel does not have the family.
fn ask(family: &str, command: u8, body: &[u8], take: impl FnMut(&[u8])) -> io::Result<()> {
    match Family::open(family)? {
        Some(family) => family.request(command, body, take),
        None => Ok(()),
    }
}

/// The request header of the family ethtool.
fn header(index: u32) -> Vec<u8> {
    let mut body = Vec::new();
    put_nested(&mut body, ETHTOOL_A_HEADER, |header| {
        put_attr(header, ETHTOOL_A_HEADER_DEV_INDEX, &index.to_ne_bytes());
    });
    body
}

/// The names of the bits that are set in a bit set of an answer.
fn names(answer: &[u8], set: u16) -> BTreeSet<String> {
    let bits = attribute(answer, set).and_then(|set| attribute(set, ETHTOOL_A_BITSET_BITS));
    attributes(bits.unwrap_or_default())
        .filter_map(|(_, bit)| attribute(bit, ETHTOOL_A_BITSET_BIT_NAME).map(attr_str))
        .collect()
}

fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EOPNOTSUPP)
}
