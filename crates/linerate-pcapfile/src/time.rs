//! Timestamps of capture files in nanoseconds.

use linerate_wire::frame::Timestamp;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// How long one tick of an interface's timestamps lasts (`if_tsresol`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// 10 to the minus this many seconds, 0 to 127.
    Decimal(u8),
    /// 2 to the minus this many seconds, 0 to 127.
    Binary(u8),
}

impl Default for Resolution {
    /// Microseconds, the default of the format.
    fn default() -> Self {
        Self::Decimal(6)
    }
}

impl Resolution {
    /// Reads the option's one byte: the highest bit chooses the base, the rest is the exponent.
    pub(crate) fn from_option(value: u8) -> Self {
        if value & 0x80 == 0 { Self::Decimal(value) } else { Self::Binary(value & 0x7f) }
    }

    /// `ticks` since the epoch plus `offset` seconds; clamped to what a [`Timestamp`] holds (1970 to
    /// 2554), and rounded down to nanoseconds.
    #[inline]
    pub fn timestamp(self, ticks: u64, offset: i64) -> Timestamp {
        /// Nanoseconds of a tick, by the exponent of [`Self::Decimal`].
        const NANOS_PER_TICK: [u64; 10] =
            [1_000_000_000, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
        // Nearly every packet of every file, without 128-bit arithmetic.
        if let (Self::Decimal(exponent @ 0..=9), Ok(seconds)) = (self, u64::try_from(offset))
            && let Some(fraction) = ticks.checked_mul(NANOS_PER_TICK[usize::from(exponent)])
            && let Some(whole) = seconds.checked_mul(NANOS_PER_TICK[0])
            && let Some(nanos) = whole.checked_add(fraction)
        {
            return Timestamp(nanos);
        }
        self.wide_timestamp(ticks, offset)
    }

    #[cold]
    fn wide_timestamp(self, ticks: u64, offset: i64) -> Timestamp {
        let ticks = u128::from(ticks);
        let nanos = match self {
            Self::Decimal(exponent @ 0..=9) => {
                ticks.saturating_mul(10_u128.pow(u32::from(9 - exponent)))
            }
            Self::Decimal(exponent) => {
                10_u128.checked_pow(u32::from(exponent - 9)).map_or(0, |divisor| ticks / divisor)
            }
            // ticks < 2^64 and 10^9 < 2^30, so the product fits.
            Self::Binary(exponent) => (ticks * NANOS_PER_SECOND) >> exponent,
        };
        let shift = i128::from(offset) * NANOS_PER_SECOND as i128;
        let shifted = i128::try_from(nanos).unwrap_or(i128::MAX).saturating_add(shift);
        Timestamp(u64::try_from(shifted.max(0)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn arithmetic_of_64_and_of_128_bits_agrees(
            option: u8,
            ticks in prop_oneof![any::<u64>(), 0_u64..4_000_000_000],
            offset in prop_oneof![any::<i64>(), -10_i64..10, 0_i64..0x1_0000_0000, 18_446_744_070_i64..18_446_744_080],
        ) {
            let resolution = Resolution::from_option(option);
            let wide = resolution.wide_timestamp(ticks, offset);
            prop_assert_eq!(resolution.timestamp(ticks, offset), wide);
        }
    }
}
