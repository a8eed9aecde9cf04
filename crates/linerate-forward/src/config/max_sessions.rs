//! [`MaxSessions`]: the size of the table.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};
use serde::{Serialize, Serializer};

use super::Scalar;
use super::units::count;

/// Sessions that the table has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MaxSessions {
    /// From the machine's memory and `nf_conntrack_max`: `auto`. An instance that is adopted keeps its size.
    #[default]
    Auto,
    /// This many, in the range [`super::MAX_SESSIONS_RANGE`].
    Number(u64),
}

impl FromStr for MaxSessions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self::Auto) } else { count(text).map(Self::Number) }
    }
}

impl fmt::Display for MaxSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl Serialize for MaxSessions {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => to.serialize_str("auto"),
            Self::Number(number) => to.serialize_u64(*number),
        }
    }
}

impl<'de> Deserialize<'de> for MaxSessions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let sessions = match Scalar::deserialize(from)? {
            Scalar::Number(number) => {
                u64::try_from(number).map(Self::Number).map_err(|_| format!("{number} is negative"))
            }
            Scalar::Text(text) => text.parse(),
            Scalar::Other(_) => {
                Err("not a number: write \"auto\", 65536, \"500k\" or \"2M\"".to_owned())
            }
        };
        let sessions = sessions.map_err(D::Error::custom)?;
        super::check_sessions(sessions).map_err(D::Error::custom)?;
        Ok(sessions)
    }
}
