//! Sums without a particular CPU in mind, in a shape that compilers turn into vectors.
//!
//! Words are of 64 bits and of the machine's own byte order. Let one be `high * 2^32 + low`. Two
//! additions and a shift count both halves: `whole` adds the words and may wrap, `high` adds the high
//! halves and cannot, and what the low halves come to is their difference. Sums are exact, and so 0
//! only if every byte is, up to 16 GiB.

/// What accumulators that have met the same words come to, modulo 65535.
#[inline(always)]
const fn total(whole: u64, high: u64) -> u64 {
    whole.wrapping_sub(high << 32).wrapping_add(high)
}

/// The sum of `bytes`, modulo 65535.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let (mut whole, mut high) = (0_u64, 0_u64);
    for word in words {
        let word = u64::from_ne_bytes(*word);
        whole = whole.wrapping_add(word);
        high = high.wrapping_add(word >> 32);
    }
    total(whole, high).wrapping_add(sum_short(rest))
}

/// Copies, and gives what [`sum`] gives. The slices must be of one length.
pub(super) fn copy(from: &[u8], to: &mut [u8]) -> u64 {
    let (words, rest) = from.as_chunks::<8>();
    let (to, to_rest) = to.as_chunks_mut::<8>();
    let (mut whole, mut high) = (0_u64, 0_u64);
    for (word, to) in words.iter().zip(to) {
        *to = *word;
        let word = u64::from_ne_bytes(*word);
        whole = whole.wrapping_add(word);
        high = high.wrapping_add(word >> 32);
    }
    to_rest.copy_from_slice(rest);
    total(whole, high).wrapping_add(sum_short(rest))
}

/// What [`sum`] gives, for few bytes: no vectors to set up and no call.
#[inline]
pub(super) fn sum_short(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut sum = 0;
    for word in words {
        sum += u64::from(u32::from_ne_bytes(*word));
    }
    let (words, rest) = rest.as_chunks::<2>();
    for word in words {
        sum += u64::from(u16::from_ne_bytes(*word));
    }
    if let [last] = rest {
        sum += u64::from(u16::from_ne_bytes([*last, 0]));
    }
    sum
}
