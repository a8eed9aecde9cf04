//! [`KeepFree`]: what is to stay free on the file system of an output.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use rustix::fs::statvfs;

/// Bytes beside the packets that a write may need: the end of a file, and the header of the next.
const OVERHEAD: u64 = 64 << 10;

/// What is to stay free on a file system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeepFree {
    /// A part of its size.
    Percent(f64),
    /// Bytes.
    Bytes(u64),
}

impl fmt::Display for KeepFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Bytes(bytes) => write!(f, "{bytes} bytes"),
        }
    }
}

impl FromStr for KeepFree {
    type Err = String;

    /// `10%`, or bytes with the suffixes K, M, G and T.
    fn from_str(text: &str) -> Result<Self, String> {
        let explain =
            || format!("`{text}` is neither a percentage such as 10% nor a size such as 20G");
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.parse::<f64>().map_err(|_| explain())?;
            return match percent {
                0.0..100.0 => Ok(Self::Percent(percent)),
                _ => Err(explain()),
            };
        }
        let shift = match text.chars().last().map(|unit| unit.to_ascii_uppercase()) {
            Some('K') => 10,
            Some('M') => 20,
            Some('G') => 30,
            Some('T') => 40,
            _ => 0,
        };
        let digits = if shift > 0 { &text[..text.len() - 1] } else { text };
        let number: u64 = digits.parse().map_err(|_| explain())?;
        number.checked_mul(1 << shift).map(Self::Bytes).ok_or_else(explain)
    }
}

impl KeepFree {
    /// Bytes that have to become free before `more` are written to this file or folder; `None` when there is room, or
    /// the file system does not say.
    pub fn missing(self, file: &Path, more: u64) -> Option<u64> {
        let found = statvfs(file).ok()?;
        let least = match self {
            Self::Percent(percent) => {
                (found.f_blocks as f64 * found.f_frsize as f64 * percent / 100.0) as u64
            }
            Self::Bytes(bytes) => bytes,
        };
        let available = found.f_bavail.saturating_mul(found.f_frsize);
        (least + more + OVERHEAD).checked_sub(available).filter(|missing| *missing > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_free_is_a_part_or_a_size() {
        assert_eq!("10%".parse(), Ok(KeepFree::Percent(10.0)));
        assert_eq!("0.5%".parse(), Ok(KeepFree::Percent(0.5)));
        assert_eq!("20G".parse(), Ok(KeepFree::Bytes(20 << 30)));
        assert_eq!("4096".parse(), Ok(KeepFree::Bytes(4096)));
        for wrong in ["", "%", "100%", "-1%", "x", "5X", "99999999T"] {
            assert!(wrong.parse::<KeepFree>().is_err(), "{wrong}");
        }
    }
}
