//! The place of a session in the table: the hash of `bpf/session_access.h` in Rust, used to insert or find a session
//! without scanning the table.

use zerocopy::IntoBytes;

use crate::table::layout::{Session, kind};

/// Odd random numbers, as in `control.seeds`.
pub type Seeds = [u64; 9];

/// The hash that selects the buckets of a session: of addresses, ports and protocol.
///
/// The upper half picks the first bucket, the lower half the second one (`bucket`). The lowest three bits are the home
/// way.
pub fn tuple(seeds: &Seeds, session: &Session) -> u64 {
    let word = |at: usize| word(session.as_bytes(), at);
    let kind = u64::from(session.kind & (kind::FAMILY | kind::TCP));
    let ports = word(1) & 0xffff_ffff | kind << 32;
    let sum = word(0).wrapping_mul(seeds[0]).wrapping_add(ports.wrapping_mul(seeds[1]));
    let mixed = (sum ^ sum >> 32).wrapping_mul(seeds[3]);
    mixed ^ mixed >> 32
}

/// The bucket, of so many, that this half of a hash picks.
pub(crate) fn bucket(half: u32, buckets: usize) -> usize {
    ((u64::from(half) * buckets as u64) >> 32) as usize
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
