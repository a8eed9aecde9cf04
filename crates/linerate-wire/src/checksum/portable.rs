//! Sums without a particular CPU in mind, in a shape that compilers turn into vectors.
//!
//! Bytes are summed as words of the machine's own byte order, 64 bits at a time. Let a word be
//! `high * 2^32 + low`. One accumulator adds whole words and wraps, another adds the `high`s and cannot
//! below 32 GiB; together they say what the `low`s come to.

/// Words that are summed side by side.
const LANES: usize = 8;
const BLOCK: usize = LANES * 8;

#[derive(Default)]
struct Lanes {
    whole: [u64; LANES],
    high: [u64; LANES],
}

impl Lanes {
    #[inline(always)]
    fn add(&mut self, block: &[u8; BLOCK]) {
        let (words, _) = block.as_chunks::<8>();
        for (lane, word) in words.iter().enumerate() {
            let word = u64::from_ne_bytes(*word);
            self.whole[lane] = self.whole[lane].wrapping_add(word);
            self.high[lane] += word >> 32;
        }
    }

    #[inline(always)]
    fn total(&self) -> u64 {
        let lanes = self.whole.iter().zip(&self.high);
        lanes.map(|(whole, high)| whole.wrapping_sub(high << 32) + high).sum()
    }
}

/// The sum of `bytes` as words of native byte order, congruent modulo 65535; 0 only if all are 0.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<BLOCK>();
    let mut lanes = Lanes::default();
    for block in blocks {
        lanes.add(block);
    }
    lanes.total() + sum_short(rest)
}

/// Copies, and gives what [`sum`] gives. The slices are of one length.
pub(super) fn copy(from: &[u8], to: &mut [u8]) -> u64 {
    let (from, from_rest) = from.as_chunks::<BLOCK>();
    let (to, to_rest) = to.as_chunks_mut::<BLOCK>();
    let mut lanes = Lanes::default();
    for (from, to) in from.iter().zip(to) {
        *to = *from;
        lanes.add(from);
    }
    to_rest.copy_from_slice(from_rest);
    lanes.total() + sum_short(from_rest)
}

/// The same for few bytes, without the cost of setting up lanes.
#[inline]
pub(super) fn sum_short(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum::<u64>()
        + u64::from(u32::from_ne_bytes(last))
}
