//! [`Random`]: the numbers that fields and lengths are drawn from.

use linerate_wire::ethernet;

/// xorshift64*, as in the kernel's program.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// What the flow fields are drawn from.
    pub(crate) fn for_flows(seed: u64) -> Self {
        Self(flow_seed(seed))
    }

    /// What lengths are drawn from.
    pub(crate) fn for_sizes(seed: u64) -> Self {
        Self(size_seed(seed))
    }

    /// A number from 0 to 1, without 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / 2_f64.powi(53)
    }

    /// The next number; all 64 bits are random.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `count`, which is below 2^32.
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        ((self.next() >> 32) * count) >> 32
    }

    /// A locally administered unicast address.
    pub(crate) fn mac(&mut self) -> ethernet::Address {
        let random = self.next();
        let [first, second, ..] = random.to_be_bytes();
        let [c, d] = ((random >> 32) as u16).to_ne_bytes();
        let [e, f] = ((random >> 16) as u16).to_ne_bytes();
        ethernet::Address([first & 0xfc | 2, second, c, d, e, f])
    }
}

/// What random numbers of the flow fields start from; never 0, where the generator would stay.
pub(crate) fn flow_seed(seed: u64) -> u64 {
    mix(seed.wrapping_mul(2))
}

/// What random lengths start from.
pub(crate) fn size_seed(seed: u64) -> u64 {
    mix(seed.wrapping_mul(2).wrapping_add(1))
}

/// The finaliser of SplitMix64, so that seeds 1, 2, 3 start far apart.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) | 1
}
