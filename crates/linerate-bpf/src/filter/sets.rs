//! [`AddressSet`]: IP addresses, or networks, that a filter looks up.

use std::collections::HashSet;
use std::hash::Hash;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use foldhash::fast::RandomState;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::sys::options;
use crate::{Error, Result};

/// Words of an IPv6 address.
pub(super) const WORDS: usize = 4;

/// Version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

/// A set of IP addresses, or of networks.
#[derive(Debug)]
pub struct AddressSet {
    networks: bool,
    v4: Members<u32>,
    v6: Members<u128>,
    /// The same for programs of the kernel, once that was asked for.
    maps: OnceLock<[MapHandle; 2]>,
}

/// The members of one version of IP.
#[derive(Debug, Default, PartialEq, Eq)]
struct Members<A: Eq + Hash> {
    hosts: HashSet<A, RandomState>,
    /// Networks with their lengths, in the order of their first addresses.
    networks: Vec<(A, u8)>,
    /// The first and the last address of each, without those that lie in another.
    ranges: Vec<(A, A)>,
}

impl<A: Copy + Ord + Hash> Members<A> {
    fn new(members: Vec<(A, u8)>, bits: u8, last: impl Fn(A, u8) -> A) -> Self {
        let is_host = |member: &(A, u8)| member.1 == bits;
        let (hosts, mut networks): (Vec<_>, Vec<_>) = members.into_iter().partition(is_host);
        networks.sort_unstable();
        networks.dedup();
        let mut ranges: Vec<(A, A)> = Vec::new();
        for &(first, length) in &networks {
            // Two networks are apart, or one lies in the other.
            if ranges.last().is_none_or(|before| before.1 < first) {
                ranges.push((first, last(first, length)));
            }
        }
        Self { hosts: hosts.into_iter().map(|(host, _)| host).collect(), networks, ranges }
    }

    #[inline]
    fn contains(&self, address: A) -> bool {
        self.hosts.contains(&address) || {
            let after = self.ranges.partition_point(|(first, _)| *first <= address);
            after > 0 && address <= self.ranges[after - 1].1
        }
    }
}

impl PartialEq for AddressSet {
    fn eq(&self, other: &Self) -> bool {
        (self.networks, &self.v4, &self.v6) == (other.networks, &other.v4, &other.v6)
    }
}

impl Eq for AddressSet {}

impl AddressSet {
    /// A set of these addresses and prefix lengths. With `networks` any length is allowed; without, `lengths` are those of
    /// whole addresses, which are found faster.
    pub fn new(networks: bool, members: impl IntoIterator<Item = (IpAddr, u8)>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (address, length) in members {
            match address {
                IpAddr::V4(address) => v4.push((u32::from(address), length)),
                IpAddr::V6(address) => v6.push((u128::from(address), length)),
            }
        }
        let last_v4 =
            |first: u32, length: u8| first | u32::MAX.checked_shr(length.into()).unwrap_or(0);
        let last_v6 =
            |first: u128, length: u8| first | u128::MAX.checked_shr(length.into()).unwrap_or(0);
        Self {
            networks,
            v4: Members::new(v4, 32, last_v4),
            v6: Members::new(v6, 128, last_v6),
            maps: OnceLock::new(),
        }
    }

    #[inline]
    pub(super) fn contains_v4(&self, address: u32) -> bool {
        self.v4.contains(address)
    }

    #[inline]
    pub(super) fn contains_v6(&self, words: [u32; WORDS]) -> bool {
        let address = words.iter().fold(0, |all, &word| all << 32 | u128::from(word));
        self.v6.contains(address)
    }

    /// The set in maps of the kernel.
    pub(super) fn load(&self) -> Result<()> {
        if self.maps.get().is_none() {
            let v4 = self.map(&self.v4, u32::to_be_bytes)?;
            let v6 = self.map(&self.v6, u128::to_be_bytes)?;
            let _ = self.maps.set([v4, v6]);
        }
        Ok(())
    }

    fn map<A: Copy + Eq + Hash, const N: usize>(
        &self,
        members: &Members<A>,
        bytes: impl Fn(A) -> [u8; N],
    ) -> Result<MapHandle> {
        let action = "put the addresses of a filter into a map";
        let failed = |error: libbpf_rs::Error| Error::libbpf(action, &error);
        let (kind, map_flags, prefix) = match self.networks {
            true => (MapType::LpmTrie, libbpf_sys::BPF_F_NO_PREALLOC, 4),
            false => (MapType::Hash, 0, 0),
        };
        let options = options!(bpf_map_create_opts { map_flags });
        let count = (members.hosts.len() + members.networks.len()).max(1) as u32;
        let key_size = prefix + N as u32;
        let map = MapHandle::create(kind, Some("addresses"), key_size, 1, count, &options);
        let map = map.map_err(failed)?;
        let hosts = members.hosts.iter().map(|&host| (host, 8 * N as u8));
        for (address, length) in hosts.chain(members.networks.iter().copied()) {
            // `struct bpf_lpm_trie_key_u8`: the length in host order, then the address.
            let key = [&u32::from(length).to_ne_bytes()[..], &bytes(address)].concat();
            map.update(&key[4 - prefix as usize..], &[0], MapFlags::ANY).map_err(failed)?;
        }
        Ok(map)
    }

    /// How programs of the kernel find the members of one version: the map's descriptor, and whether it has networks.
    pub(super) fn kernel_map(&self, version: Version) -> Option<(i32, bool)> {
        let maps = self.maps.get()?;
        Some((maps[version as usize].as_fd().as_raw_fd(), self.networks))
    }
}

#[cfg(test)]
mod tests;
