//! [`Rate`]: how fast frames go.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result};

/// How fast frames go. Bits count the frame as in memory, without preamble, frame check sequence and gap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Rate {
    /// As fast as the machine can.
    #[default]
    Max,
    /// Frames per second, above 0.
    Packets(f64),
    /// Bits per second, above 0.
    Bits(f64),
}

impl Rate {
    /// Frames per second at a mean frame length in bytes; `None` at full speed.
    pub fn packets(self, mean_len: f64) -> Option<f64> {
        match self {
            Self::Max => None,
            Self::Packets(packets) => Some(packets),
            Self::Bits(bits) => Some(bits / 8.0 / mean_len),
        }
    }
}

/// Lateness that is no missed rate: what one late wake-up of the sender makes.
const MAX_LATE_SECONDS: f64 = 0.005;

/// The part of the requested rate, 0 to 1, of a run that took `seconds` and was to take `scheduled`; 1 where
/// the difference is below a hundredth, or what one late wake-up makes.
pub(crate) fn reached(scheduled: f64, seconds: f64) -> f64 {
    let late = seconds - scheduled;
    if late <= MAX_LATE_SECONDS || late <= seconds / 100.0 { 1.0 } else { scheduled / seconds }
}

impl FromStr for Rate {
    type Err = Error;

    /// `max`; a number of frames per second, as `450k`, `450kpps`, `1Mpps`; or of bits, as `2Gbps`,
    /// `100Mbit`, `800Mb/s`. Factors are `k`, `M` and `G`, powers of 1000 in either case.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |reason: &str| Error::argument(format!("rate {text:?}"), reason);
        let lower = text.trim().to_ascii_lowercase();
        if lower == "max" {
            return Ok(Self::Max);
        }
        let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
        let (number, unit) = lower.split_at(digits);
        let number: f64 = number.parse().map_err(|_| {
            wrong("expected max, frames per second as 450kpps, or bits per second as 2Gbps")
        })?;
        let unit = unit.trim();
        let (factor, unit) = match unit.as_bytes().first() {
            Some(b'k') => (1e3, &unit[1..]),
            Some(b'm') => (1e6, &unit[1..]),
            Some(b'g') => (1e9, &unit[1..]),
            _ => (1.0, unit),
        };
        let value = number * factor;
        if value <= 0.0 || !value.is_finite() {
            return Err(wrong("must be a number above 0"));
        }
        match unit {
            "" | "pps" | "p/s" => Ok(Self::Packets(value)),
            "bps" | "bit" | "bits" | "bit/s" | "bits/s" | "b/s" | "b" => Ok(Self::Bits(value)),
            _ => Err(wrong("its unit must be pps (frames per second) or bps (bits per second)")),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self {
            Self::Max => return f.write_str("max"),
            Self::Packets(value) => (*value, "pps"),
            Self::Bits(value) => (*value, "bps"),
        };
        match value {
            value if value >= 1e9 => write!(f, "{}G{unit}", value / 1e9),
            value if value >= 1e6 => write!(f, "{}M{unit}", value / 1e6),
            value if value >= 1e3 => write!(f, "{}k{unit}", value / 1e3),
            value => write!(f, "{value}{unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_factors() {
        for (text, rate) in [
            ("max", Rate::Max),
            ("450k", Rate::Packets(450e3)),
            ("450kpps", Rate::Packets(450e3)),
            ("1Mpps", Rate::Packets(1e6)),
            ("0.5 Mpps", Rate::Packets(0.5e6)),
            ("7", Rate::Packets(7.0)),
            ("2Gbps", Rate::Bits(2e9)),
            ("100Mbit", Rate::Bits(100e6)),
            ("800Mb/s", Rate::Bits(800e6)),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap(), rate, "{text}");
            assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate, "{rate}");
        }
    }

    #[test]
    fn a_rate_is_missed_by_more_than_a_hundredth() {
        for (scheduled, seconds, part) in [
            (1.0, 1.005, 1.0),
            (1.0, 0.5, 1.0),
            (0.001, 0.005, 1.0),
            (1.0, 2.0, 0.5),
            (0.0, 0.0, 1.0),
        ] {
            assert_eq!(reached(scheduled, seconds), part, "{seconds} for {scheduled}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_text() {
        for text in ["", "fast", "0", "-1", "1x", "1Mpp", "k", "1..2", "1Tbps"] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
