//! Rules of x_tables, which iptables-legacy makes (`include/uapi/linux/netfilter_ipv4/ip_tables.h`, and `netfilter_ipv6`).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use rustix::net::{AddressFamily, SocketType, socket};

use super::Families;
use crate::ioctl::socket_option;
use crate::netlink::bytes_at;

/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`, also of IPv6.
const GET_INFO: i32 = 64;
const GET_ENTRIES: i32 = 65;
/// Bytes of a table's name.
pub(super) const NAME: usize = 32;
/// Bytes of `struct ipt_getinfo`: name, valid hooks, entries and underflows of five hooks, number, size.
const INFO: usize = NAME + 4 + 20 + 20 + 8;
/// Bytes of `struct ipt_get_entries` before the entries.
const ENTRIES: usize = 40;
/// Attempts to read a table that changes meanwhile.
const MAX_TRIES: u32 = 20;

/// Bytes of an entry's counters (`struct xt_counters`), which end its head.
const COUNTERS: usize = 16;

/// `NF_INET_PRE_ROUTING` and `NF_INET_LOCAL_IN`, with the names of their chains.
const INPUT_HOOKS: [(usize, &str); 2] = [(0, "PREROUTING"), (1, "INPUT")];
/// Bytes of `struct xt_entry_target`, which the verdict of a policy follows.
pub(super) const TARGET: usize = 32;
/// The verdict `-NF_ACCEPT - 1`.
const ACCEPT: u32 = u32::MAX - 1;

/// One of the two kinds of tables.
#[derive(Debug)]
pub(super) struct Kind {
    /// The names of the tables that the namespace has.
    names: &'static str,
    family: AddressFamily,
    level: i32,
    pub(super) families: Families,
    /// Bytes of what an entry matches by itself (`struct ipt_ip`).
    pub(super) matched: usize,
    /// Bytes of an entry before its matches.
    pub(super) head: usize,
}

pub(super) static KINDS: [Kind; 2] = [
    Kind {
        names: "/proc/thread-self/net/ip_tables_names",
        family: AddressFamily::INET,
        level: libc::SOL_IP,
        families: Families::IPV4,
        matched: 84,
        head: 112,
    },
    Kind {
        names: "/proc/thread-self/net/ip6_tables_names",
        family: AddressFamily::INET6,
        level: libc::SOL_IPV6,
        families: Families::IPV6,
        matched: 136,
        head: 168,
    },
];

/// The first chain that may drop packets to this host.
pub(super) fn local_filter(v6: bool) -> io::Result<Option<String>> {
    let mut found = None;
    let kind = &KINDS[usize::from(v6)];
    kind.tables(|name, info, entries| {
        let chain = INPUT_HOOKS.into_iter().find(|(hook, _)| kind.decides(*hook, info, entries));
        found = found
            .take()
            .or_else(|| chain.map(|(_, chain)| format!("iptables chain {name} {chain}")));
    })?;
    Ok(found)
}

/// A digest of all tables of the namespace of the calling thread, without counters.
///
/// # Errors
/// As [`Ruleset::load`](crate::ruleset::Ruleset::load).
pub fn digest() -> io::Result<u64> {
    let mut digest = DefaultHasher::new();
    for kind in &KINDS {
        kind.tables(|name, info, mut entries| {
            (kind.level, name, info).hash(&mut digest);
            // The offset of the next entry follows that of the target.
            while let Some(size) = half(entries, kind.matched + 6).filter(|size| *size > 0) {
                let Some((entry, rest)) = entries.split_at_checked(size) else { return };
                let (head, matches) = entry.split_at(kind.head.min(size));
                (&head[..head.len().saturating_sub(COUNTERS)], matches).hash(&mut digest);
                entries = rest;
            }
        })?;
    }
    Ok(digest.finish())
}

/// A buffer that begins with the name of a table.
fn named(name: &str, size: usize) -> Vec<u8> {
    let mut buffer = vec![0; size];
    let name = name.as_bytes();
    let length = name.len().min(NAME - 1);
    buffer[..length].copy_from_slice(&name[..length]);
    buffer
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<usize> {
    bytes_at(bytes, at).map(u32::from_ne_bytes).map(|value| value as usize)
}

pub(super) fn half(bytes: &[u8], at: usize) -> Option<usize> {
    bytes_at(bytes, at).map(u16::from_ne_bytes).map(usize::from)
}

impl Kind {
    /// Reads each table: its name, information and entries.
    pub(super) fn tables(&self, mut take: impl FnMut(&str, &[u8], &[u8])) -> io::Result<()> {
        let names = match std::fs::read_to_string(self.names) {
            Ok(names) => names,
            // A kernel without these tables, or a namespace that never had one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let socket = socket(self.family, SocketType::DGRAM, None)?;
        for name in names.lines() {
            let mut tries = 0;
            let (info, entries) = loop {
                let mut info = named(name, INFO);
                socket_option(&socket, self.level, GET_INFO, &mut info)?;
                let size = word(&info, INFO - 4).unwrap_or(0);
                let mut entries = named(name, ENTRIES + size);
                entries[NAME..NAME + 4].copy_from_slice(&(size as u32).to_ne_bytes());
                match socket_option(&socket, self.level, GET_ENTRIES, &mut entries) {
                    // The table has changed since its size was read.
                    Err(error)
                        if error.raw_os_error() == Some(libc::EAGAIN) && tries < MAX_TRIES =>
                    {
                        tries += 1;
                    }
                    read => break read.map(|_| (info, entries))?,
                }
            };
            take(name, &info, &entries[ENTRIES..]);
        }
        Ok(())
    }

    /// Whether the chain at a hook has rules before its policy, or a policy other than to accept.
    fn decides(&self, hook: usize, info: &[u8], entries: &[u8]) -> bool {
        if word(info, NAME).unwrap_or(0) & 1 << hook == 0 {
            return false;
        }
        let (first, policy) = (word(info, NAME + 4 + 4 * hook), word(info, NAME + 24 + 4 * hook));
        let entry = policy.and_then(|at| entries.get(at..)).unwrap_or_default();
        let target = half(entry, self.matched + 4).unwrap_or(0);
        first != policy || word(entry, target + TARGET) != Some(ACCEPT as usize)
    }
}

/// The name in a `struct xt_entry_match` or `xt_entry_target`: after its size.
pub(super) fn name_at(entry: &[u8], at: usize) -> &[u8] {
    let name = entry.get(at + 2..at + 31).unwrap_or_default();
    name.split(|byte| *byte == 0).next().unwrap_or_default()
}
