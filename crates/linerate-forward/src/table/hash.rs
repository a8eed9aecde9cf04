//! The place of a session in the table: the hash of `bpf/session_access.h` in Rust, used to insert or find a session
//! without scanning the table.

use zerocopy::IntoBytes;

use crate::table::layout::SessionKey;

/// Odd random numbers, as in `control.seeds`.
pub type Seeds = [u64; 9];

/// The bytes of a word that are the destination MAC address.
const MAC_MASK: u64 = 0x0000_ffff_ffff_ffff;

/// The hash of a key.
///
/// The upper half picks the first bucket and the set of candidates; the lower half is the fingerprint, its
/// lowest two bits are the home way, and those above pick the second bucket.
pub fn session(seeds: &Seeds, key: &SessionKey) -> u64 {
    let word = |at: usize| word(key.as_bytes(), at);
    let tags = word(3) << 32 >> 32;
    let sum = word(0)
        .wrapping_mul(seeds[0])
        .wrapping_add((word(1) ^ (word(2) & !MAC_MASK)).wrapping_mul(seeds[1]))
        .wrapping_add(tags.wrapping_mul(seeds[2]));
    let mixed = (sum ^ sum >> 32).wrapping_mul(seeds[3]);
    mixed ^ mixed >> 32
}

/// The signature in a key for an IPv6 source and destination.
pub fn signature(seeds: &Seeds, source: [u8; 16], destination: [u8; 16]) -> [u8; 8] {
    let word = |at: usize| {
        if at < 2 { word(&source, at) } else { word(&destination, at - 2) }
    };
    let sum = (0..4).fold(0_u64, |sum, at| sum.wrapping_add(word(at).wrapping_mul(seeds[4 + at])));
    let mixed = (sum ^ sum >> 32).wrapping_mul(seeds[8]);
    (mixed ^ mixed >> 29).to_ne_bytes()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[8 * at..8 * at + 8]);
    u64::from_ne_bytes(word)
}

/// FNV-1a: it distinguishes builds and layouts, and is not cryptographic.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}
