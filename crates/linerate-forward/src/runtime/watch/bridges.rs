//! [`Bridges`]: where bridges send frames, by their forwarding databases (`net/bridge/br_fdb.c`).
//!
//! A bridge floods frames without an entry, and a session may have been learned from one of the copies. So a
//! new entry is a change, like one that moves or is removed. Only bridges with at least one of the ports
//! matter.

use std::collections::HashMap;

use linerate_net::netlink::{attr_u32, attributes, bytes_at};

use super::neighbours::HEADER;

/// Bridge, hardware address and VLAN.
type Key = (u32, [u8; 6], u16);

/// The known entries.
#[derive(Debug, Default)]
pub(super) struct Bridges {
    /// The bridge port of the entry.
    known: HashMap<Key, u32>,
}

impl Bridges {
    /// Processes a message about an entry. Returns whether it is a change. `matters` says which bridges
    /// matter.
    pub(super) fn update(
        &mut self,
        deleted: bool,
        body: &[u8],
        matters: impl Fn(u32) -> bool,
    ) -> bool {
        let Some((key, interface)) = read(body) else { return true };
        // Without a bridge it is a filter of the interface itself, or the database of a tunnel, whose packets
        // leave with other addresses and are never learned.
        if key.0 == 0 || !matters(key.0) {
            return false;
        }
        if deleted {
            return self.known.remove(&key).is_some();
        }
        self.known.insert(key, interface) != Some(interface)
    }

    /// Forgets everything before a full re-read.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }
}

fn read(body: &[u8]) -> Option<(Key, u32)> {
    let interface = u32::from_ne_bytes(bytes_at(body, 4)?);
    let mut key = (0, [0; 6], 0);
    for (kind, value) in attributes(body.get(HEADER..)?) {
        match kind {
            libc::NDA_LLADDR => key.1 = bytes_at(value, 0)?,
            libc::NDA_MASTER => key.0 = attr_u32(value)?,
            libc::NDA_VLAN => key.2 = u16::from_ne_bytes(bytes_at(value, 0)?),
            _ => {}
        }
    }
    Some((key, interface))
}

#[cfg(test)]
mod tests;
