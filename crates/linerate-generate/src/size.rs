//! [`Sizes`]: how long frames are.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// Frames of the simple Internet mix, as lengths in memory and how many of each come in a row of
/// twelve: 7 of 64, 4 of 590, 1 of 1514. On the wire, with the frame check sequence, the larger two
/// are the usual 594 and 1518 bytes; the smallest is 64 here as everywhere in this crate.
const INTERNET_MIX: [u16; 12] = [64, 590, 64, 64, 590, 64, 1514, 64, 590, 64, 64, 590];

/// The most lengths in a list.
const MAX_MIX_LEN: usize = 16;

/// Frame lengths in bytes as in memory: Ethernet header and tag included, without the four bytes of frame
/// check sequence that a wire adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All alike.
    Fixed(u16),
    /// Every length from the first to the second, in turn or at random.
    Range(u16, u16),
    /// Lengths from a list of 1 to 16, in turn or at random.
    Mix(Vec<u16>),
}

impl Sizes {
    /// Seven frames of 64 bytes, four of 590 and one of 1514 in every twelve.
    pub fn internet_mix() -> Self {
        Self::Mix(INTERNET_MIX.to_vec())
    }

    /// Refuses a range that runs backwards and a list that is too long or empty.
    pub(crate) fn check(&self) -> Result<()> {
        let reason = match self {
            Self::Range(min, max) if min > max => "the range runs backwards",
            Self::Mix(sizes) if !(1..=MAX_MIX_LEN).contains(&sizes.len()) => {
                "a list has 1 to 16 lengths"
            }
            _ => return Ok(()),
        };
        Err(Error::argument(format!("size {self}"), reason))
    }

    /// The shortest length.
    pub fn min(&self) -> u16 {
        match self {
            Self::Fixed(size) => *size,
            Self::Range(min, _) => *min,
            Self::Mix(sizes) => sizes.iter().copied().min().unwrap_or(0),
        }
    }

    /// The longest length.
    pub fn max(&self) -> u16 {
        match self {
            Self::Fixed(size) => *size,
            Self::Range(_, max) => *max,
            Self::Mix(sizes) => sizes.iter().copied().max().unwrap_or(0),
        }
    }

    /// The mean length.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Fixed(size) => f64::from(*size),
            Self::Range(min, max) => (f64::from(*min) + f64::from(*max)) / 2.0,
            Self::Mix(sizes) => {
                sizes.iter().copied().map(f64::from).sum::<f64>() / sizes.len().max(1) as f64
            }
        }
    }
}

impl Default for Sizes {
    fn default() -> Self {
        Self::Fixed(64)
    }
}

impl FromStr for Sizes {
    type Err = Error;

    /// A length, as `64`; a range, as `64-1500`; a list, as `64,64,1500`; or `imix`.
    fn from_str(text: &str) -> Result<Self> {
        let number = |part: &str| {
            part.trim().parse::<u16>().map_err(|_| {
                Error::argument(
                    format!("size {text:?}"),
                    "expected bytes as 64, a range as 64-1500, a list as 64,64,1500, or imix",
                )
            })
        };
        let lower = text.trim().to_ascii_lowercase();
        if lower == "imix" {
            return Ok(Self::internet_mix());
        }
        if let Some((min, max)) = lower.split_once('-') {
            let (min, max) = (number(min)?, number(max)?);
            Self::Range(min, max).check()?;
            return Ok(if min == max { Self::Fixed(min) } else { Self::Range(min, max) });
        }
        if lower.contains(',') {
            let mix = Self::Mix(lower.split(',').map(number).collect::<Result<_>>()?);
            return mix.check().map(|()| mix);
        }
        number(&lower).map(Self::Fixed)
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(size) => write!(f, "{size}"),
            Self::Range(min, max) => write!(f, "{min}-{max}"),
            Self::Mix(sizes) if sizes.as_slice() == INTERNET_MIX => f.write_str("imix"),
            Self::Mix(sizes) => {
                let texts: Vec<String> = sizes.iter().map(u16::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_prints() {
        for text in ["64", "64-1500", "imix", "64,64,1500"] {
            assert_eq!(text.parse::<Sizes>().unwrap().to_string(), text);
        }
        assert_eq!("64-64".parse::<Sizes>().unwrap(), Sizes::Fixed(64));
    }

    #[test]
    fn internet_mix_is_seven_to_four_to_one() {
        let Sizes::Mix(sizes) = Sizes::internet_mix() else { panic!("a mix") };
        let count = |size| sizes.iter().filter(|s| **s == size).count();
        assert_eq!((count(64), count(590), count(1514)), (7, 4, 1));
        assert_eq!(Sizes::internet_mix().mean(), (7.0 * 64.0 + 4.0 * 590.0 + 1514.0) / 12.0);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["", "big", "64-", "1500-64", "70000", "-64", "1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7"]
        {
            assert!(text.parse::<Sizes>().is_err(), "{text}");
        }
    }
}
