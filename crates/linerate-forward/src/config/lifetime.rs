//! [`Lifetime`]: the maximum age of a session.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::units::{duration, write_duration};
use crate::named::as_text;

/// The maximum age of a session, with or without packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lifetime {
    /// Unlimited: `off`.
    #[default]
    Off,
    /// This long after it was first learned.
    For(Duration),
}

impl FromStr for Lifetime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" { Ok(Self::Off) } else { duration(text).map(Self::For) }
    }
}

impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::For(time) => f.write_str(&write_duration(*time)),
        }
    }
}

as_text!(Lifetime);
