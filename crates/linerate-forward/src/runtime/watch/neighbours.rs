//! [`Neighbours`]: which notifications about neighbours change where packets go.
//!
//! The kernel reports every state transition of a neighbour (`net/core/neighbour.c`). Most change nothing:
//! from stale to reachable and back with the same address. These are changes:
//!
//! - another hardware address, or one that stops answering, or is deleted by hand (which the kernel reports
//!   as failed first);
//! - one that returns after it had failed, because the kernel may have chosen another next hop since then;
//! - a new one only if its presence decides a route: an IPv6 router, or `net.ipv4.fib_multipath_use_neigh`.
//!   No session can have been learned through any other.
//!
//! An entry that the kernel deletes while it is valid was garbage-collected because it was unused. The fast
//! path causes that. It is recorded, but is not a change: if all packets went through the stack, the kernel
//! would have kept the entry.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;

use linerate_net::netlink::{attributes, bytes_at};

/// Limit of remembered deleted neighbours. Above it, all are forgotten, which counts as a change.
const REMEMBERED: usize = 65_536;

/// `NUD_PERMANENT`, `NOARP`, `REACHABLE`, `PROBE`, `STALE` and `DELAY`: states with a usable address
/// (`NUD_VALID`).
const VALID: u16 = libc::NUD_PERMANENT
    | libc::NUD_NOARP
    | libc::NUD_REACHABLE
    | libc::NUD_PROBE
    | libc::NUD_STALE
    | libc::NUD_DELAY;

/// Bytes of `struct ndmsg`.
pub(super) const HEADER: usize = 12;

/// What the kernel knows of all neighbours.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    known: HashMap<Key, Known>,
    /// Deleted neighbours in `known`.
    remembered: usize,
}

/// An interface and a protocol address on it, padded with zeros.
type Key = (u32, u8, [u8; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The kernel sends to it.
    Usable(LinkLayerAddress),
    /// It was usable, and does not answer (`NUD_FAILED`).
    Failed,
    /// The kernel deleted it while it was usable.
    GarbageCollected(LinkLayerAddress),
}

/// A hardware address of up to 32 bytes (`MAX_ADDR_LEN`), padded, and whether the neighbour is a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LinkLayerAddress {
    address: [u8; 32],
    router: bool,
}

impl Neighbours {
    /// Processes a message about an IPv4 or IPv6 neighbour. Returns whether it is a change.
    pub(super) fn update(&mut self, deleted: bool, body: &[u8]) -> bool {
        let Some(message) = Message::read(body) else { return true };
        // Proxy entries: addresses that this host answers for.
        if message.flags & libc::NTF_PROXY != 0 {
            return true;
        }
        let before = self.known.get(&message.key).copied();
        let usable = message.state & VALID != 0;
        let (after, changed) = match (before, deleted, usable) {
            (Some(Known::Usable(lladdr) | Known::GarbageCollected(lladdr)), true, true)
                if lladdr == message.lladdr =>
            {
                (Some(Known::GarbageCollected(lladdr)), false)
            }
            (Some(Known::Failed), true, true) => (before, false),
            (_, true, true) => (Some(Known::GarbageCollected(message.lladdr)), before.is_some()),
            (Some(Known::Usable(old) | Known::GarbageCollected(old)), false, true) => {
                (Some(Known::Usable(message.lladdr)), old != message.lladdr)
            }
            (Some(Known::Failed), false, true) => (Some(Known::Usable(message.lladdr)), true),
            (None, false, true) => {
                let decides =
                    message.lladdr.router || (message.is_v4() && routes_heed_neighbours());
                (Some(Known::Usable(message.lladdr)), decides)
            }
            (Some(Known::Usable(_)), _, false) => (Some(Known::Failed), true),
            // NUD_PROBE is neither a confirmation nor a failure.
            (Some(Known::GarbageCollected(_)), _, false)
                if message.state & libc::NUD_FAILED != 0 =>
            {
                (Some(Known::Failed), true)
            }
            (_, _, false) => (before, false),
        };
        self.remember(message.key, before, after) || changed
    }

    /// Forgets everything before a full re-read.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns whether the deleted neighbours were forgotten to make room.
    fn remember(&mut self, key: Key, before: Option<Known>, after: Option<Known>) -> bool {
        let is_past = |known: Option<Known>| {
            matches!(known, Some(Known::Failed | Known::GarbageCollected(_)))
        };
        let Some(now) = after else { return false };
        self.known.insert(key, now);
        self.remembered += usize::from(is_past(after));
        self.remembered -= usize::from(is_past(before));
        if self.remembered <= REMEMBERED {
            return false;
        }
        self.known.retain(|_, known| matches!(known, Known::Usable(_)));
        self.remembered = 0;
        true
    }
}

struct Message {
    key: Key,
    state: u16,
    flags: u8,
    lladdr: LinkLayerAddress,
}

impl Message {
    fn read(body: &[u8]) -> Option<Self> {
        let family = *body.first()?;
        let interface = u32::from_ne_bytes(bytes_at(body, 4)?);
        let state = u16::from_ne_bytes(bytes_at(body, 8)?);
        let flags = *body.get(10)?;
        let router = flags & libc::NTF_ROUTER != 0;
        let mut key = (interface, family, [0; 16]);
        let mut lladdr = LinkLayerAddress { address: [0; 32], router };
        for (kind, value) in attributes(body.get(HEADER..)?) {
            match kind {
                libc::NDA_DST => key.2.get_mut(..value.len())?.copy_from_slice(value),
                libc::NDA_LLADDR => lladdr.address.get_mut(..value.len())?.copy_from_slice(value),
                _ => {}
            }
        }
        Some(Self { key, state, flags, lladdr })
    }

    fn is_v4(&self) -> bool {
        self.key.1 == libc::AF_INET as u8
    }
}

/// Whether the choice among the next hops of an IPv4 route may depend on the neighbours' states.
fn routes_heed_neighbours() -> bool {
    match fs::read_to_string("/proc/sys/net/ipv4/fib_multipath_use_neigh") {
        Ok(value) => value.trim() != "0",
        // A kernel without routes of several next hops.
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests;
