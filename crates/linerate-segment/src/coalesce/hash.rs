//! The hashes of the flow table, keyed, so that an attacker cannot construct collisions.
//!
//! Multilinear hashing (Lemire, Kaser, "Strongly universal string hashing is fast", 2014, §3.1): each
//! 32-bit word times its own random 64-bit number; the hash is the upper half of the sum. Two packets that were
//! chosen without knowledge of the numbers collide as often as two random numbers do.

use super::headers;
use crate::segment::layout::Layout;

/// Words of two IPv6 addresses, of the ports and of the protocol.
const WORDS: usize = 8 + 1 + 1;

/// The random numbers: one in front, and one a word.
#[derive(Clone)]
pub(super) struct Key([u64; 1 + WORDS]);

impl core::fmt::Debug for Key {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Draws all numbers from one, by SplitMix64 (Steele, Lea, Flood 2014).
    pub(super) fn new(secret: u64) -> Self {
        let mut state = secret;
        Self(core::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// A number that all packets of a flow share: of the innermost addresses, ports and protocol.
    pub(super) fn flow(&self, frame: &[u8], layout: &Layout) -> u32 {
        let ip = layout.innermost();
        let addresses = words(&frame[headers::addresses(ip.version, ip.at)]);
        let ports = words(&frame[headers::ports(layout)]);
        self.hash(addresses.chain(ports).chain([ip.protocol.0.into()]))
    }

    /// A number that all packets between two IP addresses share.
    pub(super) fn pair(&self, addresses: &[u8]) -> u32 {
        self.hash(words(addresses))
    }

    fn hash(&self, words: impl Iterator<Item = u32>) -> u32 {
        let [first, factors @ ..] = &self.0;
        let sum = words
            .zip(factors)
            .fold(*first, |sum, (word, factor)| sum.wrapping_add(factor.wrapping_mul(word.into())));
        (sum >> 32) as u32
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeMap;
    use std::vec::Vec;

    use super::*;

    /// Address pairs that fall into one of 4096 buckets under `key`, as a sender who knows it finds them.
    fn aimed(key: &Key) -> Vec<[u8; 8]> {
        let pair = |number: u32| {
            let mut bytes = [10, 0, 0, 0, 10, 0, 0, 1];
            bytes[1..4].copy_from_slice(&number.to_be_bytes()[1..]);
            bytes
        };
        (0..1 << 20).map(pair).filter(|pair| key.pair(pair) >> 20 == 7).collect()
    }

    #[test]
    fn who_does_not_know_the_key_cannot_aim() {
        let pairs = aimed(&Key::new(0));
        assert!(pairs.len() > 100, "the sender found {}", pairs.len());
        for secret in [1, u64::MAX, 0x0123_4567_89ab_cdef] {
            let key = Key::new(secret);
            let mut buckets: BTreeMap<u32, usize> = BTreeMap::new();
            for pair in &pairs {
                *buckets.entry(key.pair(pair) >> 20).or_default() += 1;
            }
            let most = buckets.values().max().copied().unwrap_or(0);
            assert!(most < 10, "{most} of {} in one bucket", pairs.len());
        }
    }

    #[test]
    fn every_word_counts() {
        let key = Key::new(5);
        let start = [0x20; 32];
        for at in 0..start.len() {
            let mut other = start;
            other[at] ^= 1;
            assert_ne!(key.pair(&start), key.pair(&other), "byte {at}");
        }
        assert_ne!(key.pair(&start), Key::new(6).pair(&start));
    }
}
