//! [`Neighbours`]: which messages about neighbours say that packets have to go elsewhere.
//!
//! The kernel tells every step of a neighbour's state (`net/core/neighbour.c`). Most change nothing: from
//! stale to reachable and back with the same address. What does:
//!
//! - another hardware address, or one that answers no more, or is taken away by hand (which the kernel
//!   shows as failed first);
//! - one that comes back after it had failed, for the kernel may have chosen another next hop meanwhile;
//! - a new one only where its mere presence decides a route: an IPv6 router, or
//!   `net.ipv4.fib_multipath_use_neigh`. No session can have been learned through any other.
//!
//! An entry that the kernel deletes while it is valid was cleared away because nobody asked for it, which
//! is what a fast path past the stack brings about. That is remembered and no change: a stack whose packets
//! all went through it would have kept the entry.

use std::collections::HashMap;
use std::fs;

use linerate_net::netlink::{attributes, number};

/// What is remembered of neighbours that are no more. Above it all of that is forgotten, and counts as a
/// change.
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
    /// How many of the known are no more.
    remembered: usize,
}

/// An interface and a protocol address on it, padded with zeros.
type Key = (u32, u8, [u8; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// The kernel sends to it.
    Usable(Way),
    /// It was usable, and does not answer.
    Lost,
    /// The kernel cleared it away while it was usable.
    Cleared(Way),
}

/// How a neighbour is reached: a hardware address of up to 32 bytes (`MAX_ADDR_LEN`), padded, and whether
/// it says that it is a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    address: [u8; 32],
    router: bool,
}

impl Neighbours {
    /// Takes a message about IPv4 or IPv6 neighbours in: whether it is a change.
    pub(super) fn update(&mut self, deleted: bool, body: &[u8]) -> bool {
        let Some(message) = Message::read(body) else { return true };
        // Whom this host answers for.
        if message.flags & libc::NTF_PROXY != 0 {
            return true;
        }
        let before = self.known.get(&message.key).copied();
        let usable = message.state & VALID != 0;
        let (after, changed) = match (before, deleted, usable) {
            (Some(Known::Usable(way) | Known::Cleared(way)), true, true) if way == message.way => {
                (Some(Known::Cleared(way)), false)
            }
            (Some(Known::Lost), true, true) => (before, false),
            (_, true, true) => (Some(Known::Cleared(message.way)), before.is_some()),
            (Some(Known::Usable(old) | Known::Cleared(old)), false, true) => {
                (Some(Known::Usable(message.way)), old != message.way)
            }
            (Some(Known::Lost), false, true) => (Some(Known::Usable(message.way)), true),
            (None, false, true) => {
                let decides = message.way.router || (message.is_v4() && routes_heed_neighbours());
                (Some(Known::Usable(message.way)), decides)
            }
            (Some(Known::Usable(_)), _, false) => (Some(Known::Lost), true),
            // Being looked for again is not yet an answer, or the lack of one.
            (Some(Known::Cleared(_)), _, false) if message.state & libc::NUD_FAILED != 0 => {
                (Some(Known::Lost), true)
            }
            (_, _, false) => (before, false),
        };
        self.remember(message.key, before, after) || changed
    }

    /// Forgets everything, before all is read anew.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether the memory of those that are no more was given up for it.
    fn remember(&mut self, key: Key, before: Option<Known>, after: Option<Known>) -> bool {
        let is_past = |known: Option<Known>| matches!(known, Some(Known::Lost | Known::Cleared(_)));
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
    way: Way,
}

impl Message {
    fn read(body: &[u8]) -> Option<Self> {
        let family = *body.first()?;
        let interface = u32::from_ne_bytes(number(body, 4)?);
        let state = u16::from_ne_bytes(number(body, 8)?);
        let flags = *body.get(10)?;
        let router = flags & libc::NTF_ROUTER != 0;
        let mut key = (interface, family, [0; 16]);
        let mut way = Way { address: [0; 32], router };
        for (kind, value) in attributes(body.get(HEADER..)?) {
            match kind {
                libc::NDA_DST => key.2.get_mut(..value.len())?.copy_from_slice(value),
                libc::NDA_LLADDR => way.address.get_mut(..value.len())?.copy_from_slice(value),
                _ => {}
            }
        }
        Some(Self { key, state, flags, way })
    }

    fn is_v4(&self) -> bool {
        self.key.1 == libc::AF_INET as u8
    }
}

/// Whether the choice among the next hops of an IPv4 route depends on which neighbours are there.
fn routes_heed_neighbours() -> bool {
    let setting = fs::read_to_string("/proc/sys/net/ipv4/fib_multipath_use_neigh");
    setting.is_ok_and(|value| value.trim() != "0")
}

#[cfg(test)]
mod tests {
    use libc::{
        NUD_DELAY, NUD_FAILED, NUD_INCOMPLETE, NUD_NONE, NUD_PROBE, NUD_REACHABLE, NUD_STALE,
    };

    use super::*;
    use linerate_net::netlink::put;

    const HERE: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const THERE: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn body(state: u16, flags: u8, host: u8, address: Option<[u8; 6]>) -> Vec<u8> {
        let mut bytes = vec![libc::AF_INET as u8, 0, 0, 0];
        bytes.extend(3u32.to_ne_bytes());
        bytes.extend(state.to_ne_bytes());
        bytes.extend([flags, 1]);
        put(&mut bytes, libc::NDA_DST, &[10, 0, 0, host]);
        if let Some(address) = address {
            put(&mut bytes, libc::NDA_LLADDR, &address);
        }
        bytes
    }

    #[test]
    fn only_another_way_is_a_change() {
        let mut all = Neighbours::default();
        let mut new = |state, address| all.update(false, &body(state, 0, 1, address));
        assert!(!new(NUD_INCOMPLETE, None));
        assert!(!new(NUD_REACHABLE, Some(HERE)));
        for state in [NUD_STALE, NUD_DELAY, NUD_PROBE, NUD_REACHABLE, NUD_STALE] {
            assert!(!new(state, Some(HERE)), "{state:#x}");
        }
        assert!(new(NUD_STALE, Some(THERE)));
        assert!(!new(NUD_REACHABLE, Some(THERE)));
        assert!(new(NUD_FAILED, None));
        assert!(!new(NUD_FAILED, None));
        assert!(!new(NUD_INCOMPLETE, None));
        assert!(new(NUD_REACHABLE, Some(THERE)), "it came back");
        assert!(new(NUD_NONE, None));
    }

    #[test]
    fn what_never_answered_is_no_change() {
        let mut all = Neighbours::default();
        for host in 0..=255 {
            assert!(!all.update(false, &body(NUD_INCOMPLETE, 0, host, None)));
            assert!(!all.update(false, &body(NUD_FAILED, 0, host, None)));
            assert!(!all.update(true, &body(NUD_FAILED, 0, host, None)));
        }
        assert!(all.known.is_empty());
    }

    #[test]
    fn an_entry_cleared_away_is_remembered() {
        let mut all = Neighbours::default();
        assert!(!all.update(false, &body(NUD_REACHABLE, 0, 1, Some(HERE))));
        assert!(!all.update(true, &body(NUD_STALE, 0, 1, Some(HERE))));
        assert!(!all.update(false, &body(NUD_INCOMPLETE, 0, 1, None)));
        assert!(!all.update(false, &body(NUD_REACHABLE, 0, 1, Some(HERE))));
        assert!(!all.update(true, &body(NUD_STALE, 0, 1, Some(HERE))));
        assert!(all.update(false, &body(NUD_REACHABLE, 0, 1, Some(THERE))), "it moved meanwhile");
        assert!(!all.update(true, &body(NUD_STALE, 0, 1, Some(THERE))));
        assert!(all.update(false, &body(NUD_FAILED, 0, 1, None)), "it is gone");
        assert!(!all.update(true, &body(NUD_FAILED, 0, 1, None)));
        assert!(all.update(false, &body(NUD_REACHABLE, 0, 1, Some(THERE))));
    }

    #[test]
    fn a_router_that_appears_and_whom_we_answer_for_are_changes() {
        let mut all = Neighbours::default();
        assert!(all.update(false, &body(NUD_REACHABLE, libc::NTF_ROUTER, 1, Some(HERE))));
        assert!(!all.update(false, &body(NUD_STALE, libc::NTF_ROUTER, 1, Some(HERE))));
        assert!(all.update(false, &body(NUD_STALE, 0, 1, Some(HERE))), "no router any more");
        assert!(all.update(false, &body(NUD_NONE, libc::NTF_PROXY, 2, None)));
        assert!(all.update(false, &[1, 2, 3]), "what cannot be read");
    }

    #[test]
    fn the_memory_of_the_past_is_bounded() {
        let mut all = Neighbours::default();
        let mut changes = 0;
        for number in 0..=REMEMBERED as u32 {
            let [_, a, b, c] = number.to_be_bytes();
            let mut bytes = body(NUD_REACHABLE, 0, c, Some(HERE));
            bytes[HEADER + 5..HEADER + 7].copy_from_slice(&[a, b]);
            changes += u32::from(all.update(false, &bytes));
            changes += u32::from(all.update(true, &bytes));
        }
        assert_eq!(changes, 1);
        assert!(all.known.is_empty());
    }
}
