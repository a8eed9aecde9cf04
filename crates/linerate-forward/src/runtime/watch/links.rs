//! [`Links`]: which notifications about interfaces and their addresses are changes.
//!
//! The kernel sends a full RTM_NEWLINK for many reasons: a capture makes the link promiscuous, or an address
//! is renewed for another hour. So a link is remembered as a digest of all attributes except counters and
//! timers. An unknown attribute is part of the digest.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use linerate_net::netlink::{attr_u32, attribute, attributes, bytes_at};

/// Bytes of `struct ifinfomsg`.
pub(super) const LINK_HEADER: usize = 16;
/// Bytes of `struct ifaddrmsg`.
const ADDRESS_HEADER: usize = 8;
/// Flags for promiscuous mode and captures; they do not affect forwarding.
const ONLOOKERS: u32 = (libc::IFF_PROMISC | libc::IFF_ALLMULTI) as u32;
/// A deprecated address: not used as a source any more.
const DEPRECATED: u32 = 0x20;

/// Attributes of a link that count or tick.
const OF_LINK: &[u16] = &[
    libc::IFLA_STATS,
    libc::IFLA_STATS64,
    libc::IFLA_WIRELESS,
    libc::IFLA_TXQLEN,
    libc::IFLA_PROMISCUITY,
    libc::IFLA_ALLMULTI,
    libc::IFLA_XDP,
    libc::IFLA_EVENT,
    libc::IFLA_CARRIER_CHANGES,
    libc::IFLA_CARRIER_UP_COUNT,
    libc::IFLA_CARRIER_DOWN_COUNT,
];
/// Of its IPv6 side: `IFLA_INET6_FLAGS` (steps of autoconfiguration), `STATS`, `MCAST`, `CACHEINFO`,
/// `ICMP6STATS`.
const OF_IPV6: &[u16] = &[1, 3, 4, 5, 6];
/// `IFLA_INFO_XSTATS`.
const OF_KIND: &[u16] = &[3];
/// Of a bridge: `IFLA_BR_HELLO_TIMER`, `TCN_TIMER`, `TOPOLOGY_CHANGE_TIMER`, `GC_TIMER`, `FDB_N_LEARNED`.
const OF_BRIDGE: &[u16] = &[16, 17, 18, 19, 48];
/// Of its member: `IFLA_BRPORT_MESSAGE_AGE_TIMER`, `FORWARD_DELAY_TIMER`, `HOLD_TIMER`, `MCAST_N_GROUPS`.
const OF_MEMBER: &[u16] = &[21, 22, 23, 42];

/// The kernel's last message about each link and address.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// By family and index: a bridge's member has a second set of attributes as `AF_BRIDGE`.
    links: HashMap<(u8, u32), u64>,
    masters: HashMap<u32, u32>,
    addresses: HashMap<u64, u64>,
}

impl Links {
    /// Processes a message about a link. Returns whether it is a change.
    pub(super) fn update(&mut self, deleted: bool, body: &[u8]) -> bool {
        let (Some(&family), Some(index)) = (body.first(), bytes_at(body, 4)) else { return true };
        let index = u32::from_ne_bytes(index);
        let own = body.get(LINK_HEADER..).unwrap_or_default();
        if deleted {
            self.masters.remove(&index);
            return self.links.remove(&(family, index)).is_some();
        }
        if let Some(master) = attribute(own, libc::IFLA_MASTER).and_then(attr_u32) {
            self.masters.insert(index, master);
        } else if family == libc::AF_UNSPEC as u8 {
            self.masters.remove(&index);
        }
        let digest = digest_link(family, body, own);
        self.links.insert((family, index), digest) != Some(digest)
    }

    /// Processes a message about an address of this host. Returns whether it is a change. A renewed lifetime
    /// is not a change.
    pub(super) fn update_address(&mut self, deleted: bool, body: &[u8]) -> bool {
        let Some(own) = body.get(ADDRESS_HEADER..) else { return true };
        let mut key = DefaultHasher::new();
        body[..2].hash(&mut key); // family, length of the prefix
        body[4..8].hash(&mut key); // interface
        for (kind, value) in attributes(own) {
            if matches!(kind, libc::IFA_ADDRESS | libc::IFA_LOCAL) {
                (kind, value).hash(&mut key);
            }
        }
        if deleted {
            return self.addresses.remove(&key.finish()).is_some();
        }
        let mut digest = DefaultHasher::new();
        body[3].hash(&mut digest); // scope; the full flags are in an attribute
        for (kind, value) in attributes(own) {
            match (kind, attr_u32(value)) {
                (libc::IFA_CACHEINFO, _) => {}
                (libc::IFA_FLAGS, Some(flags)) => (flags & !DEPRECATED).hash(&mut digest),
                _ => (kind, value).hash(&mut digest),
            }
        }
        let digest = digest.finish();
        self.addresses.insert(key.finish(), digest) != Some(digest)
    }

    /// The bridge or bond that a link is a member of.
    pub(super) fn master(&self, index: u32) -> Option<u32> {
        self.masters.get(&index).copied()
    }

    /// Forgets everything before a full re-read.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn digest_link(family: u8, body: &[u8], own: &[u8]) -> u64 {
    let mut digest = DefaultHasher::new();
    let flags = bytes_at(body, 8).map_or(0, u32::from_ne_bytes) & !ONLOOKERS;
    flags.hash(&mut digest);
    for (kind, value) in attributes(own) {
        match kind {
            ticking if OF_LINK.contains(&ticking) => {}
            libc::IFLA_AF_SPEC if family == libc::AF_UNSPEC as u8 => {
                for (family, value) in attributes(value) {
                    let skipped = if i32::from(family) == libc::AF_INET6 { OF_IPV6 } else { &[] };
                    add(&mut digest, kind, value, skipped);
                }
            }
            libc::IFLA_PROTINFO => {
                let bridge = i32::from(family) == libc::AF_BRIDGE;
                add(&mut digest, kind, value, if bridge { OF_MEMBER } else { OF_IPV6 });
            }
            libc::IFLA_LINKINFO => {
                for (kind, part) in attributes(value) {
                    let bridge = |name: u16| {
                        attribute(value, name).is_some_and(|kind| kind.starts_with(b"bridge\0"))
                    };
                    match kind {
                        ticking if OF_KIND.contains(&ticking) => {}
                        libc::IFLA_INFO_DATA if bridge(libc::IFLA_INFO_KIND) => {
                            add(&mut digest, kind, part, OF_BRIDGE);
                        }
                        libc::IFLA_INFO_SLAVE_DATA if bridge(libc::IFLA_INFO_SLAVE_KIND) => {
                            add(&mut digest, kind, part, OF_MEMBER);
                        }
                        _ => (kind, part).hash(&mut digest),
                    }
                }
            }
            _ => (kind, value).hash(&mut digest),
        }
    }
    digest.finish()
}

/// Hashes the attributes in `value`, without the skipped ones.
fn add(digest: &mut DefaultHasher, kind: u16, value: &[u8], skipped: &[u16]) {
    kind.hash(digest);
    for (kind, value) in attributes(value).filter(|(kind, _)| !skipped.contains(kind)) {
        (kind, value).hash(digest);
    }
}

#[cfg(test)]
mod tests;
