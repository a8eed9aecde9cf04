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

    /// `ticks` since the epoch plus `offset` seconds, rounded down to nanoseconds. A [`Timestamp`] holds the years 1970 to
    /// 2554. Of other times it has the seconds modulo 2^32, which is what a pcap file has of them.
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
            Self::Decimal(exponent @ 0..=9) => ticks * 10_u128.pow(u32::from(9 - exponent)),
            Self::Decimal(exponent) => {
                10_u128.checked_pow(u32::from(exponent - 9)).map_or(0, |divisor| ticks / divisor)
            }
            // ticks < 2^64 and 10^9 < 2^30, so each product fits.
            Self::Binary(exponent) => (ticks * NANOS_PER_SECOND) >> exponent,
        };
        let second = NANOS_PER_SECOND as i128;
        let time = nanos as i128 + i128::from(offset) * second;
        let wrapped = || time.rem_euclid(second << 32) as u64;
        Timestamp(u64::try_from(time).unwrap_or_else(|_| wrapped()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_that_does_not_fit_has_the_seconds_of_a_pcap_file() {
        for (ticks, offset, seconds, nanos) in [
            (1_500_000, -5, 0xffff_fffc, 500_000_000),
            (7 << 52, 0, (7_u64 << 52) / 1_000_000 % (1 << 32), 593_472_000),
            (2_000_001, i64::MAX, 1, 1000),
        ] {
            let time = Resolution::Decimal(6).timestamp(ticks, offset);
            assert_eq!((time.seconds(), time.subsecond_nanos()), (seconds, nanos), "{ticks}");
        }
    }

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
