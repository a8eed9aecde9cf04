//! [`PayloadPattern`]: payloads that number their message, written by a sender and checked by a receiver.
//!
//! A payload begins with the four bytes `LNRT`, the number of the message in eight bytes, and, if there is
//! room and it was requested, the nanoseconds of CLOCK_MONOTONIC at which it was written in eight more, all
//! in network order. `linerate generate` writes the same.

use rustix::time::{ClockId, clock_gettime};

/// The first bytes.
pub const MAGIC: [u8; 4] = *b"LNRT";
/// Bytes of magic and number, which a message needs at least.
pub const MIN_LEN: usize = 12;
/// Bytes with the time.
pub const MIN_LEN_WITH_TIME: usize = 20;

/// What follows the number in a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PayloadPattern {
    /// Zeroes, as `linerate generate --stamp sequence` leaves.
    #[default]
    Sequence,
    /// The time, and zeroes.
    Time,
    /// Bytes that count up from the number's last byte, so that every byte of the payload is checked.
    Counted,
}

impl PayloadPattern {
    /// Bytes that a payload needs to say what the pattern says.
    pub const fn min_len(self) -> usize {
        match self {
            Self::Sequence | Self::Counted => MIN_LEN,
            Self::Time => MIN_LEN_WITH_TIME,
        }
    }

    /// Writes the payload of message `number`. One shorter than [`MIN_LEN`] has no room for it: zeroes, which
    /// no pattern recognises.
    #[inline]
    pub fn write(self, number: u64, payload: &mut [u8]) {
        let Some((stamp, rest)) = payload.split_at_mut_checked(MIN_LEN) else {
            return payload.fill(0);
        };
        stamp[..4].copy_from_slice(&MAGIC);
        stamp[4..].copy_from_slice(&number.to_be_bytes());
        match self {
            Self::Sequence => rest.fill(0),
            Self::Time => {
                rest.fill(0);
                if let Some(time) = rest.first_chunk_mut::<8>() {
                    *time = monotonic_now().to_be_bytes();
                }
            }
            Self::Counted => {
                for (at, byte) in rest.iter_mut().enumerate() {
                    *byte = counted(number, at);
                }
            }
        }
    }

    /// The number of the message, if the payload is as [`PayloadPattern::write`] left it.
    #[inline]
    pub fn check(self, payload: &[u8]) -> Option<u64> {
        let (stamp, rest) = payload.split_at_checked(MIN_LEN)?;
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

/// The nanoseconds of CLOCK_MONOTONIC at which a payload of [`PayloadPattern::Time`] was written.
#[inline]
pub fn send_time(payload: &[u8]) -> Option<u64> {
    let time = payload.get(MIN_LEN..MIN_LEN_WITH_TIME)?;
    time.try_into().ok().map(u64::from_be_bytes)
}

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub fn monotonic_now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

linerate_net::named!(
    PayloadPattern, "pattern": Sequence = "sequence", Time = "time", Counted = "counted"
);

#[cfg(test)]
mod tests;
