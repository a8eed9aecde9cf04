//! [`DenyList`]: what is dropped at the driver: addresses and prefixes, by source or destination, and sessions.
//!
//! The programs look an address up by the longest prefix, and find one entry: a shorter prefix is not seen if
//! a longer one has expired. So an entry inside another one must expire later than it. An entry is not
//! created inside one that lasts at least as long. A new entry absorbs shorter-lived entries inside it, with
//! their counts; from then on they are part of it.
//!
//! An entry takes effect before [`DenyList::block`] returns: it is inserted first, and then all sessions are
//! made stale, so that the next packet of each is checked against the list.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};
use serde::Serialize;
use zerocopy::{FromBytes, IntoBytes};

use crate::maps::Maps;
use crate::prefix::Prefix;
use crate::table::clock::Clock;
use crate::table::control::Control;
use crate::table::layout::{Denied, Denied4Key, Denied6Key, DeniedSessionKey, kind};
use crate::tuple::{FiveTuple, Protocol};
use crate::{Error, Result};

/// What can be blocked: `192.0.2.1`, `2001:db8::/32`, `udp,192.0.2.1,5000,198.51.100.7,53`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
pub enum Target {
    /// Packets from and to these addresses.
    Prefix(Prefix),
    /// One direction of a conversation, on any input interface.
    Session(FiveTuple),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text.contains(',') {
            text.parse().map(Self::Session)
        } else {
            text.parse().map(Self::Prefix)
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prefix(prefix) => prefix.fmt(f),
            Self::Session(tuple) => tuple.fmt(f),
        }
    }
}

/// An entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What is dropped.
    pub target: Target,
    /// The remaining time; `None`: until it is removed.
    #[serde(serialize_with = "seconds")]
    pub left: Option<Duration>,
    /// Packets dropped so far.
    pub dropped: u64,
}

/// The outcome of a block request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockOutcome {
    /// It is dropped from now on. It has absorbed these entries.
    Added(Vec<Target>),
    /// It was already blocked; now for the requested time.
    Changed(Vec<Target>),
    /// It is within this entry, which lasts at least as long and is unchanged.
    Within(Prefix),
}

/// The deny list of an instance. Changes need exclusive access (`crate::runtime::pins::Lock`, or a lock of
/// the caller); the programs and readers need not wait.
#[derive(Debug)]
pub struct DenyList {
    denied4: MapHandle,
    denied6: MapHandle,
    sessions: MapHandle,
    control: Arc<Control>,
    clock: Clock,
}

/// The entries of a list, in order.
type Entries = BTreeMap<Target, Denied>;

/// `Denied::expires` of an entry that stays.
const NEVER: u64 = 0;

impl DenyList {
    /// The list of the programs with these maps.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::System`].
    pub fn open(maps: &Maps, control: Arc<Control>, clock: Clock) -> Result<Self> {
        let map = |name| {
            MapHandle::try_from(maps.get(name)?)
                .map_err(|error| Error::bpf(format!("use the map {name}"), &error))
        };
        Ok(Self {
            denied4: map("denied4")?,
            denied6: map("denied6")?,
            sessions: map("denied_sessions")?,
            control,
            clock,
        })
    }

    /// Drops `target` from now on, for the given time or until [`DenyList::unblock`].
    ///
    /// # Errors
    /// [`Error::Invalid`] when the list is full; [`Error::System`].
    pub fn block(&mut self, target: Target, period: Option<Duration>) -> Result<BlockOutcome> {
        Ok(self.block_all([target], period)?.remove(0))
    }

    /// [`DenyList::block`] for each of these. All take effect before it returns.
    ///
    /// # Errors
    /// As [`DenyList::block`]. Those before the one that failed are blocked.
    pub fn block_all(
        &mut self,
        targets: impl IntoIterator<Item = Target>,
        period: Option<Duration>,
    ) -> Result<Vec<BlockOutcome>> {
        let now = self.clock.now();
        let expires =
            period.map_or(NEVER, |period| now.saturating_add(self.clock.jiffies(period)).max(1));
        let mut all = self.entries()?;
        let outcomes = targets
            .into_iter()
            .map(|target| self.insert(target, (now, expires), &mut all))
            .collect::<Result<Vec<_>>>();
        self.store_count(all.len());
        // After the insertions, so that no decision from before them is used later.
        self.control.bump_generation();
        outcomes
    }

    /// Inserts an entry from now until it expires, also into `all`, which are those of the list.
    fn insert(
        &self,
        target: Target,
        (now, expires): (u64, u64),
        all: &mut Entries,
    ) -> Result<BlockOutcome> {
        let lasts = |one: u64, other: u64| one == NEVER || (other != NEVER && one >= other);
        let mut within = Vec::new();
        if let Target::Prefix(prefix) = target {
            let covers = |around: &Prefix| {
                let value = all.get(&Target::Prefix(*around));
                value.is_some_and(|value| lasts(value.expires, expires) && !is_expired(value, now))
            };
            if let Some(around) = prefix.supernets().find(covers) {
                return Ok(BlockOutcome::Within(around));
            }
            // Prefixes in this one follow it in the order of addresses.
            let after = all.range((Bound::Excluded(target), Bound::Unbounded));
            let inside = after.map_while(|(other, value)| match other {
                Target::Prefix(one) if holds(prefix, *one) => Some((*other, *value)),
                _ => None,
            });
            within = inside.filter(|(_, value)| lasts(expires, value.expires)).collect();
        }
        let before = all.get(&target).map(|value| value.dropped);
        let dropped = before.unwrap_or(0) + within.iter().map(|(_, one)| one.dropped).sum::<u64>();
        // First the outer entry, then those inside: at no moment is less dropped than before.
        let value = Denied { expires, dropped };
        self.put(target, value)?;
        all.insert(target, value);
        let within: Vec<Target> = within.into_iter().map(|(one, _)| one).collect();
        for one in &within {
            self.take_out(*one)?;
            all.remove(one);
        }
        Ok(match before {
            Some(_) => BlockOutcome::Changed(within),
            None => BlockOutcome::Added(within),
        })
    }

    /// Removes exactly this entry, and returns it.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no such entry, naming the one that it is within, if any.
    pub fn unblock(&mut self, target: Target) -> Result<Entry> {
        let now = self.clock.now();
        let mut all = self.entries()?;
        // What has expired is not blocked, also before it is swept.
        let Some(value) = all.get(&target).filter(|value| !is_expired(value, now)).copied() else {
            let covers = |around: &Prefix| {
                all.get(&Target::Prefix(*around)).is_some_and(|value| !is_expired(value, now))
            };
            let around = match target {
                Target::Prefix(prefix) => prefix.supernets().find(covers),
                Target::Session(_) => None,
            };
            return Err(Error::Invalid(match around {
                Some(around) => {
                    format!("{target} is not blocked by itself, but within {around}: unblock that")
                }
                None => {
                    format!("{target} is not blocked; `linerate forward blocked` lists what is")
                }
            }));
        };
        self.take_out(target)?;
        all.remove(&target);
        self.store_count(all.len());
        Ok(entry(target, &value, now, &self.clock))
    }

    /// Removes all entries, and returns those that have not expired, in order.
    ///
    /// # Errors
    /// [`Error::System`]. Those before the one that failed are removed.
    pub fn unblock_all(&mut self) -> Result<Vec<Entry>> {
        let all = self.list()?;
        let mut left = self.entries()?;
        for target in left.keys().copied().collect::<Vec<_>>() {
            self.take_out(target)?;
            left.remove(&target);
        }
        self.store_count(left.len());
        Ok(all)
    }

    /// The entries in order, without expired ones.
    pub fn list(&self) -> Result<Vec<Entry>> {
        let now = self.clock.now();
        let mut all = self.entries()?;
        all.retain(|_, value| !is_expired(value, now));
        Ok(all.iter().map(|(target, value)| entry(*target, value, now, &self.clock)).collect())
    }

    /// How many entries [`DenyList::list`] has.
    pub fn count(&self) -> Result<u64> {
        if self.control.denied() == 0 {
            return Ok(0);
        }
        Ok(self.list()?.len() as u64)
    }

    /// Removes and returns expired entries; call it every few seconds.
    pub fn sweep(&mut self) -> Result<Vec<Entry>> {
        if self.control.denied() == 0 {
            return Ok(Vec::new());
        }
        let now = self.clock.now();
        let all = self.entries()?;
        let mut gone = Vec::new();
        for (target, value) in all.iter().filter(|(_, value)| is_expired(value, now)) {
            self.take_out(*target)?;
            gone.push(entry(*target, value, now, &self.clock));
        }
        if !gone.is_empty() {
            self.store_count(all.len() - gone.len());
        }
        Ok(gone)
    }

    /// Sets the number of entries on the control page.
    fn store_count(&self, count: usize) {
        self.control.set_denied(u32::try_from(count).unwrap_or(u32::MAX));
    }

    fn entries(&self) -> Result<Entries> {
        let mut all = Entries::new();
        for map in [&self.denied4, &self.denied6, &self.sessions] {
            for key in map.keys() {
                // Without a value it was removed during the listing.
                let value = map
                    .lookup(&key, MapFlags::ANY)
                    .map_err(|error| Error::bpf("read the deny list", &error))?;
                let Some(value) = value.and_then(|value| Denied::read_from_bytes(&value).ok())
                else {
                    continue;
                };
                all.extend(target_of(&key).map(|target| (target, value)));
            }
        }
        Ok(all)
    }

    fn put(&self, target: Target, value: Denied) -> Result<()> {
        let (map, key) = self.place(target);
        map.update(&key, value.as_bytes(), MapFlags::ANY).map_err(|error| match error.kind() {
            // A trie returns ENOSPC, a hash E2BIG.
            ErrorKind::TooBig => full(target, map),
            _ if error.to_string().contains("os error 28") => full(target, map),
            _ => Error::bpf(format!("block {target}"), &error),
        })
    }

    fn take_out(&self, target: Target) -> Result<()> {
        let (map, key) = self.place(target);
        match map.delete(&key) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Error::bpf(format!("unblock {target}"), &error))
            }
            _ => Ok(()),
        }
    }

    /// The map of a target, and its key there.
    fn place(&self, target: Target) -> (&MapHandle, Vec<u8>) {
        match target {
            Target::Prefix(prefix) => {
                let prefix_len = u32::from(prefix.length());
                match prefix.address() {
                    IpAddr::V4(address) => {
                        let key = Denied4Key { prefix_len, address: address.octets() };
                        (&self.denied4, key.as_bytes().to_vec())
                    }
                    IpAddr::V6(address) => {
                        let key = Denied6Key { prefix_len, address: address.octets() };
                        (&self.denied6, key.as_bytes().to_vec())
                    }
                }
            }
            Target::Session(tuple) => (&self.sessions, session_key(&tuple).as_bytes().to_vec()),
        }
    }
}

fn full(target: Target, map: &MapHandle) -> Error {
    Error::Invalid(format!(
        "cannot block {target}: the list has its {} entries; unblock some, or block prefixes",
        map.max_entries()
    ))
}

fn session_key(tuple: &FiveTuple) -> DeniedSessionKey {
    let mut key = DeniedSessionKey {
        source_port: tuple.source.port().to_be_bytes(),
        destination_port: tuple.destination.port().to_be_bytes(),
        protocol: tuple.protocol.number(),
        family: if tuple.source.is_ipv4() { kind::IPV4 } else { kind::IPV6 },
        ..DeniedSessionKey::default()
    };
    let put = |place: &mut [u8; 16], address: IpAddr| match address {
        IpAddr::V4(address) => place[..4].copy_from_slice(&address.octets()),
        IpAddr::V6(address) => *place = address.octets(),
    };
    put(&mut key.source, tuple.source.ip());
    put(&mut key.destination, tuple.destination.ip());
    key
}

/// The target of a key in one of the three maps, which have keys of different sizes.
fn target_of(key: &[u8]) -> Option<Target> {
    let prefix = |address, length: u32| {
        Prefix::new(address, u8::try_from(length).ok()?).ok().map(Target::Prefix)
    };
    if let Ok(key) = Denied4Key::read_from_bytes(key) {
        return prefix(Ipv4Addr::from(key.address).into(), key.prefix_len);
    }
    if let Ok(key) = Denied6Key::read_from_bytes(key) {
        return prefix(Ipv6Addr::from(key.address).into(), key.prefix_len);
    }
    let key = DeniedSessionKey::read_from_bytes(key).ok()?;
    let address = |bytes: [u8; 16]| -> IpAddr {
        let [a, b, c, d, ..] = bytes;
        if key.family == kind::IPV4 { [a, b, c, d].into() } else { bytes.into() }
    };
    Some(Target::Session(FiveTuple {
        protocol: *Protocol::ALL.iter().find(|one| one.number() == key.protocol)?,
        source: (address(key.source), u16::from_be_bytes(key.source_port)).into(),
        destination: (address(key.destination), u16::from_be_bytes(key.destination_port)).into(),
    }))
}

/// Whether all addresses of `inner` are in `outer`.
fn holds(outer: Prefix, inner: Prefix) -> bool {
    outer.length() <= inner.length() && outer.contains(inner.address())
}

fn is_expired(value: &Denied, now: u64) -> bool {
    value.expires != NEVER && value.expires <= now
}

fn entry(target: Target, value: &Denied, now: u64, clock: &Clock) -> Entry {
    let left = (value.expires != NEVER).then(|| clock.duration(value.expires.saturating_sub(now)));
    Entry { target, left, dropped: value.dropped }
}

fn seconds<S: serde::Serializer>(
    left: &Option<Duration>,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    left.map(|left| left.as_secs_f64()).serialize(to)
}

#[cfg(test)]
mod tests;
