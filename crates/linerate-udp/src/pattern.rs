//! [`Pattern`]: payloads that say which message they are, written by a sender and checked by a receiver.
//!
//! A payload begins with the four bytes `LNRT`, the number of the message in eight bytes, and, where there
//! is room and somebody wants it, the nanoseconds of CLOCK_MONOTONIC at which it was written in eight
//! more, all in network order. `linerate generate` writes the same.

use std::str::FromStr;

use nix::time::{ClockId, clock_gettime};

/// The first bytes.
pub const MAGIC: [u8; 4] = *b"LNRT";
/// Bytes of magic and number, which a message needs at least.
pub const LEAST: usize = 12;
/// Bytes with the time.
pub const WITH_TIME: usize = 20;

/// What stands in a payload behind the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Zeroes, as `linerate generate --stamp sequence` leaves.
    #[default]
    Sequence,
    /// The time, and zeroes.
    Time,
    /// Bytes that count up from the number's last byte, so that every byte of the payload is checked.
    Counted,
}

impl Pattern {
    /// Bytes that a payload needs to say what the pattern says.
    pub const fn least(self) -> usize {
        match self {
            Self::Sequence | Self::Counted => LEAST,
            Self::Time => WITH_TIME,
        }
    }

    /// Writes the payload of message `number`. One shorter than [`LEAST`] has no room for it: zeroes, which
    /// no pattern recognises.
    #[inline]
    pub fn write(self, number: u64, payload: &mut [u8]) {
        let Some((stamp, rest)) = payload.split_at_mut_checked(LEAST) else {
            return payload.fill(0);
        };
        stamp[..4].copy_from_slice(&MAGIC);
        stamp[4..].copy_from_slice(&number.to_be_bytes());
        match self {
            Self::Sequence => rest.fill(0),
            Self::Time => {
                rest.fill(0);
                if let Some(time) = rest.first_chunk_mut::<8>() {
                    *time = now().to_be_bytes();
                }
            }
            Self::Counted => {
                for (at, byte) in rest.iter_mut().enumerate() {
                    *byte = counted(number, at);
                }
            }
        }
    }

    /// The number of the message, if the payload is as [`Pattern::write`] left it.
    #[inline]
    pub fn check(self, payload: &[u8]) -> Option<u64> {
        let (stamp, rest) = payload.split_at_checked(LEAST)?;
        let (magic, number) = stamp.split_first_chunk::<4>()?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        let whole = match self {
            Self::Sequence => rest.iter().all(|byte| *byte == 0),
            // No clock that counts from the start of a machine is at 0.
            Self::Time => rest
                .split_first_chunk::<8>()
                .is_some_and(|(time, rest)| *time != [0; 8] && rest.iter().all(|byte| *byte == 0)),
            Self::Counted => rest.iter().enumerate().all(|(at, byte)| *byte == counted(number, at)),
        };
        (*magic == MAGIC && whole).then_some(number)
    }
}

#[inline]
fn counted(number: u64, at: usize) -> u8 {
    (number as u8).wrapping_add(at as u8)
}

/// The nanoseconds of CLOCK_MONOTONIC at which a payload of [`Pattern::Time`] was written.
#[inline]
pub fn written(payload: &[u8]) -> Option<u64> {
    let time = payload.get(LEAST..WITH_TIME)?;
    time.try_into().ok().map(u64::from_be_bytes)
}

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        time.tv_sec().cast_unsigned() * 1_000_000_000 + time.tv_nsec().cast_unsigned()
    })
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "sequence" => Ok(Self::Sequence),
            "time" => Ok(Self::Time),
            "counted" => Ok(Self::Counted),
            _ => Err(format!("unknown pattern `{text}`: choose one of sequence, time, counted")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_recognised_and_any_change_is_not() {
        for pattern in [Pattern::Sequence, Pattern::Time, Pattern::Counted] {
            let mut payload = [7; 64];
            pattern.write(0x0102_0304_0506_0708, &mut payload);
            assert_eq!(pattern.check(&payload), Some(0x0102_0304_0506_0708));
            for at in (0..4).chain(WITH_TIME..64) {
                let mut other = payload;
                other[at] ^= 0x40;
                assert_eq!(pattern.check(&other), None, "{pattern:?} byte {at}");
            }
            assert_eq!(pattern.check(&payload[..11]), None);
            let mut short = [7; LEAST - 1];
            pattern.write(1, &mut short);
            assert_eq!(short, [0; LEAST - 1]);
            let mut least = vec![7; pattern.least()];
            pattern.write(9, &mut least);
            assert_eq!(pattern.check(&least), Some(9));
        }
        let mut untimed = [7; 64];
        Pattern::Sequence.write(1, &mut untimed);
        assert_eq!(Pattern::Time.check(&untimed), None);
    }

    #[test]
    fn the_time_is_that_of_the_writing() {
        let mut payload = [0; 20];
        let before = now();
        Pattern::Time.write(1, &mut payload);
        let written = written(&payload).unwrap();
        assert!(before <= written && written <= now());
    }
}
