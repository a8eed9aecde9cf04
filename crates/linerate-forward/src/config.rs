//! [`Config`]: what an instance is told, by a file (TOML) and by the command line.
//!
//! ```toml
//! interfaces = ["eth1", "eth2"]
//! max-sessions = "4M"
//! tcp-idle = "10m"
//! metrics = "off"
//! block = ["203.0.113.0/24", "2001:db8:bad::/48"]
//! ```

mod lifetime;
mod metrics;
mod units;

use std::fmt;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::{Deserialize as DeserializeTrait, Serialize, Serializer};

pub use lifetime::Lifetime;
pub use metrics::Metrics;
pub use units::{count, duration, write_duration};

use crate::prefix::Prefix;

/// Sessions that a table may have room for.
pub const MAX_SESSIONS: RangeInclusive<u64> = 1024..=50_000_000;
/// How long a session may be idle, and how old it may become.
pub const IDLE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
/// How long a session may go without asking the kernel again.
pub const REVALIDATE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// How long the programs may go on without a daemon.
pub const FAIL_OPEN_AFTER: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(600);
/// Interfaces that an instance may have: the width of a port number in a session (`PORTS_MAX`).
pub const MAX_INTERFACES: usize = crate::table::layout::PORTS_MAX as usize;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The file could not be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The text is not TOML, or has a key or a value that is none. Says the line, shows it, and says what
    /// would do.
    #[error("{}: {message}", name.display())]
    Text {
        /// The file.
        name: PathBuf,
        /// Line, column, what stands there, and what is wrong with it.
        message: String,
    },
    /// Everything by itself is right, but there is nothing to do, or it does not go together.
    #[error("{0}")]
    Whole(String),
}

/// What an instance is told. What is not said has the value that the field names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, DeserializeTrait)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Config {
    /// Name of the instance; unset, that of the network namespace, `default` for the one of the host.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "instance")]
    pub instance: Option<String>,
    /// Interfaces to accelerate: packets between any two of them.
    #[serde(deserialize_with = "interfaces")]
    pub interfaces: Vec<String>,
    /// [`Statistics::Slot`].
    pub statistics: Statistics,
    /// Sessions that the table has room for, in [`MAX_SESSIONS`]; 1 million.
    #[serde(deserialize_with = "max_sessions")]
    pub max_sessions: u64,
    /// A UDP session without packets for so long is forgotten, in [`IDLE`]; 30 s.
    #[serde(serialize_with = "time", deserialize_with = "idle")]
    pub udp_idle: Duration,
    /// A TCP session without packets for so long is forgotten, in [`IDLE`]; 5 min.
    #[serde(serialize_with = "time", deserialize_with = "idle")]
    pub tcp_idle: Duration,
    /// A session of this age ends, packets or not, in [`IDLE`]; off. If it goes on it is learned anew.
    pub lifetime: Lifetime,
    /// A packet of each session asks the kernel again after so long, in [`REVALIDATE`]; 1 min. It bounds for
    /// how long a change that the kernel tells nobody of goes unnoticed (`watch`).
    #[serde(serialize_with = "time", deserialize_with = "revalidate")]
    pub revalidate: Duration,
    /// The programs forward for so long without a sign of the daemon, in [`FAIL_OPEN_AFTER`]; 10 s.
    #[serde(serialize_with = "time", deserialize_with = "fail_open_after")]
    pub fail_open_after: Duration,
    /// Where metrics are served; 127.0.0.1:9818.
    pub metrics: Metrics,
    /// At the end programs and tables stay for the next run to adopt; false.
    pub persist: bool,
    /// What stands in the way of an interface is put right where that can be undone (`preflight`), and
    /// otherwise only said; true.
    pub fix: bool,
    /// A few frames are sent out of each interface at the start to prove that it can (`preflight`); true.
    pub probe: bool,
    /// Addresses and prefixes that are dropped from the start.
    pub block: Vec<Prefix>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            instance: None,
            interfaces: Vec::new(),
            statistics: Statistics::default(),
            max_sessions: 1_000_000,
            udp_idle: Duration::from_secs(30),
            tcp_idle: Duration::from_secs(300),
            lifetime: Lifetime::default(),
            revalidate: Duration::from_secs(60),
            fail_open_after: Duration::from_secs(10),
            metrics: Metrics::default(),
            persist: false,
            fix: true,
            probe: true,
            block: Vec::new(),
        }
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Invalid::File`], [`Invalid::Text`]. That no interface is named is no error here: the command
    /// line may name some. [`Config::check`] sees to it.
    pub fn read(path: &Path) -> Result<Self, Invalid> {
        let text = fs::read_to_string(path)
            .map_err(|source| Invalid::File { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads the text of a file called `name`.
    ///
    /// # Errors
    /// [`Invalid::Text`].
    pub fn parse(text: &str, name: &Path) -> Result<Self, Invalid> {
        toml::from_str(text).map_err(|error| Invalid::Text {
            name: name.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })
    }

    /// Holds every value against its range and against the others, wherever it came from.
    ///
    /// # Errors
    /// [`Invalid::Whole`] for the first that does not fit.
    pub fn check(&self) -> Result<(), Invalid> {
        let sound = || {
            if self.interfaces.is_empty() {
                return Err("no interface is named: give --interface, once for each, or \
                            interfaces = [\"eth1\", \"eth2\"] in the file"
                    .to_owned());
            }
            if let Some(name) = &self.instance {
                check_instance(name)?;
            }
            check_interfaces(&self.interfaces)?;
            check_sessions(self.max_sessions)?;
            let lifetime = match self.lifetime {
                Lifetime::Off => *IDLE.end(),
                Lifetime::For(time) => time,
            };
            for (name, time, range) in [
                ("udp-idle", self.udp_idle, IDLE),
                ("tcp-idle", self.tcp_idle, IDLE),
                ("lifetime", lifetime, IDLE),
                ("revalidate", self.revalidate, REVALIDATE),
                ("fail-open-after", self.fail_open_after, FAIL_OPEN_AFTER),
            ] {
                check_time(time, &range).map_err(|reason| format!("{name}: {reason}"))?;
            }
            Ok(())
        };
        sound().map_err(Invalid::Whole)
    }

    /// The whole as a file, with every value.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every value has a form in TOML")
    }
}

/// How sessions are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, DeserializeTrait)]
#[serde(rename_all = "kebab-case")]
pub enum Statistics {
    /// In the session itself, by the CPU that forwards it.
    #[default]
    Slot,
    /// Not at all.
    None,
}

impl Statistics {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Slot, Self::None];

    /// Its name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Statistics {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|one| one.name() == text).copied();
        found.ok_or_else(|| format!("{text:?} is not a kind of statistics; choose slot or none"))
    }
}

/// A number that may be written with a factor, or a time: TOML has neither.
#[derive(DeserializeTrait)]
#[serde(untagged)]
enum Scalar {
    Number(i64),
    Text(String),
    Other(#[allow(dead_code)] serde::de::IgnoredAny),
}

fn instance<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(from)?;
    check_instance(&name).map_err(D::Error::custom)?;
    Ok(Some(name))
}

fn interfaces<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    check_interfaces(&names).map_err(D::Error::custom)?;
    Ok(names)
}

fn max_sessions<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let number = match Scalar::deserialize(from)? {
        Scalar::Number(number) => {
            u64::try_from(number).map_err(|_| format!("{number} is negative"))
        }
        Scalar::Text(text) => count(&text),
        Scalar::Other(_) => Err("not a number: write 65536, \"500k\" or \"2M\"".to_owned()),
    };
    let number = number.map_err(D::Error::custom)?;
    check_sessions(number).map_err(D::Error::custom)?;
    Ok(number)
}

fn idle<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    bounded(from, &IDLE)
}

fn revalidate<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    bounded(from, &REVALIDATE)
}

fn fail_open_after<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    bounded(from, &FAIL_OPEN_AFTER)
}

fn bounded<'de, D: Deserializer<'de>>(
    from: D,
    range: &RangeInclusive<Duration>,
) -> Result<Duration, D::Error> {
    let time = match Scalar::deserialize(from)? {
        Scalar::Text(text) => duration(&text),
        Scalar::Number(number) => Err(format!(
            "{number} lacks its unit: write \"{number}s\" for seconds, or \"{number}ms\""
        )),
        Scalar::Other(_) => Err("not a time: write \"500ms\", \"30s\" or \"10m\"".to_owned()),
    };
    let time = time.map_err(D::Error::custom)?;
    check_time(time, range).map_err(D::Error::custom)?;
    Ok(time)
}

fn time<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&write_duration(*time))
}

/// The name becomes a directory of bpffs, which takes no dots.
fn check_instance(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=64).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(format!("{name:?} is no name of an instance: 1 to 64 letters, digits, '-' and '_'"))
}

/// The kernel's `dev_valid_name` (net/core/dev.c), and each once.
fn check_interfaces(names: &[String]) -> Result<(), String> {
    if names.len() > MAX_INTERFACES {
        return Err(format!("{} interfaces; an instance takes {MAX_INTERFACES}", names.len()));
    }
    for (at, name) in names.iter().enumerate() {
        let fits = (1..=15).contains(&name.len()) && name != "." && name != "..";
        if !fits || name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c == '\0')
        {
            return Err(format!("{name:?} is no name of an interface: `ip -br link` lists them"));
        }
        if names[..at].contains(name) {
            return Err(format!("interface {name} is named twice: name each once"));
        }
    }
    Ok(())
}

fn check_sessions(number: u64) -> Result<(), String> {
    if MAX_SESSIONS.contains(&number) {
        return Ok(());
    }
    Err(format!(
        "max-sessions is {number}; it can be {} to {}",
        MAX_SESSIONS.start(),
        MAX_SESSIONS.end()
    ))
}

fn check_time(time: Duration, range: &RangeInclusive<Duration>) -> Result<(), String> {
    if range.contains(&time) {
        return Ok(());
    }
    Err(format!(
        "{} is out of range; it can be {} to {}",
        write_duration(time),
        write_duration(*range.start()),
        write_duration(*range.end())
    ))
}

#[cfg(test)]
mod tests;
