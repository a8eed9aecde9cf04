//! [`Config`]: the configuration of an instance, from a file (TOML) and the command line.
//!
//! ```toml
//! interfaces = ["eth1", "eth2"]
//! max-sessions = "4M"
//! tcp-idle = "10m"
//! metrics = "off"
//! block = ["203.0.113.0/24", "2001:db8:bad::/48"]
//! ```

mod lifetime;
mod max_sessions;
mod selector;
mod units;

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use linerate_flow::file::KeepFree;
use linerate_flow::outputs::Destination;
use linerate_service::ListenAddress;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::{Deserialize as DeserializeTrait, Serialize, Serializer};

pub use lifetime::Lifetime;
pub use max_sessions::MaxSessions;
pub use selector::Selector;
pub use units::{count, duration, write_duration};

use crate::datapath::Mode;
use crate::prefix::Prefix;

/// Range of the table's capacity in sessions.
pub const MAX_SESSIONS_RANGE: RangeInclusive<u64> = 1024..=50_000_000;
/// Range of idle timeouts and of the maximum age.
pub const TIMEOUT_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
/// Range of the revalidation interval.
pub const REVALIDATE_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);
/// Range of the packets before a session is learned: what a candidate counts.
pub const AFTER_PACKETS_RANGE: RangeInclusive<u32> = 1..=127;
/// Range of the heartbeat timeout.
pub const FAIL_OPEN_AFTER_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(600);
/// Range of the active timeout of flow records, and of the time until a file is complete.
pub const ACTIVE_TIMEOUT_RANGE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(86_400);
/// Where metrics are served by default.
pub const DEFAULT_METRICS: ListenAddress = ListenAddress::loopback(9818);
/// Connections that the metrics may have.
pub const MAX_METRICS_CONNECTIONS: usize = 10_000;
/// How often the connections of the metrics are read.
pub const ACCOUNTING_INTERVAL: Duration = Duration::from_secs(5);
/// Interfaces that an instance may have: the width of a port number in a session (`PORTS_MAX` of `bpf/layout.h`).
pub const MAX_INTERFACES: usize = 256;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The text is not TOML, or has an invalid key or value. Shows the line, and says what is valid.
    #[error("{}: {message}", name.display())]
    Text {
        /// The file.
        name: PathBuf,
        /// Line, column, the text there, and the problem.
        message: String,
    },
    /// Each value is valid, but the combination is empty or contradictory.
    #[error("{0}")]
    Whole(String),
}

/// Configuration of an instance. Each field names its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, DeserializeTrait)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Config {
    /// Name of the instance; default: that of the network namespace, `default` for the host's.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "instance")]
    pub instance: Option<String>,
    /// Interfaces to accelerate: packets between any two of them.
    #[serde(deserialize_with = "interfaces")]
    pub interfaces: Vec<String>,
    /// Datapaths that sessions may take; default: the fastest that is right.
    pub datapath: Mode,
    /// How sessions are counted; default: [`Statistics::Slot`].
    pub statistics: Statistics,
    /// Capacity of the table in sessions; default: [`MaxSessions::Auto`].
    pub max_sessions: MaxSessions,
    /// Idle timeout of UDP sessions, in the range [`TIMEOUT_RANGE`]; default: 30 s.
    #[serde(serialize_with = "time", deserialize_with = "idle")]
    pub udp_idle: Duration,
    /// Idle timeout of TCP sessions, in the range [`TIMEOUT_RANGE`]; default: 5 min.
    #[serde(serialize_with = "time", deserialize_with = "idle")]
    pub tcp_idle: Duration,
    /// Maximum session age, in the range [`TIMEOUT_RANGE`]; default: off. A session that is still active is learned
    /// again.
    pub lifetime: Lifetime,
    /// Interval in which a packet of each session goes through the kernel, in the range [`REVALIDATE_RANGE`];
    /// default: 1 min. This bounds how long an unreported kernel change goes undetected (`watch`).
    #[serde(serialize_with = "time", deserialize_with = "revalidate")]
    pub revalidate: Duration,
    /// How long the programs forward without a heartbeat, in the range [`FAIL_OPEN_AFTER_RANGE`]; default: 1 s.
    #[serde(serialize_with = "time", deserialize_with = "fail_open_after")]
    pub fail_open_after: Duration,
    /// Listen address of the metrics; default: 127.0.0.1:9818.
    pub metrics: ListenAddress,
    /// The metrics have the packets and bytes of this many connections, the largest, read every
    /// [`ACCOUNTING_INTERVAL`]; up to [`MAX_METRICS_CONNECTIONS`]; default: 0.
    #[serde(deserialize_with = "metrics_connections")]
    pub metrics_connections: usize,
    /// Listen address of the page with charts; default: off.
    pub web: ListenAddress,
    /// Where flow records go: folders and collectors; default: none.
    #[serde(serialize_with = "destinations", deserialize_with = "read_destinations")]
    pub flows: Vec<Destination>,
    /// The name of this instance in the paths of flow records; default: the host's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sensor: Option<String>,
    /// A group of users that may read the files of flow records; default: only their owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// A session that continues gets a flow record after this time, in [`ACTIVE_TIMEOUT_RANGE`]; default: 1 min.
    #[serde(serialize_with = "time", deserialize_with = "active_timeout")]
    pub active_timeout: Duration,
    /// A file of flow records is complete after this time, in [`ACTIVE_TIMEOUT_RANGE`]; default: 1 min.
    #[serde(serialize_with = "time", deserialize_with = "active_timeout")]
    pub flow_file_time: Duration,
    /// Files of flow records are deleted so long after their hour; default: [`Lifetime::Off`].
    pub flows_keep: Lifetime,
    /// What is kept free on the file system of flow records, as [`KeepFree`] reads it; default: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows_keep_free: Option<String>,
    /// Verify TCP and UDP checksums of tracked sessions where conntrack does; default: false, as nftables' flowtable.
    pub verify_checksums: bool,
    /// Only these sessions are accelerated; default: all. In a file, one may stand without the brackets of a list.
    #[serde(deserialize_with = "one_or_more")]
    pub accelerate: Vec<Selector>,
    /// These sessions stay with the kernel; default: none. Written as [`Config::accelerate`].
    #[serde(deserialize_with = "one_or_more")]
    pub exempt: Vec<Selector>,
    /// Packets of each direction that the kernel gets before a session is learned, in the range
    /// [`AFTER_PACKETS_RANGE`]; default: 2.
    #[serde(deserialize_with = "after_packets")]
    pub after_packets: u32,
    /// A rule with a counter keeps its sessions with the kernel, so that it counts all packets; default: false.
    pub strict: bool,
    /// Programs and tables stay when the daemon ends, for the next run to adopt; default: false.
    pub persist: bool,
    /// Fix interface settings that prevent acceleration, if the fix is reversible (`preflight`); otherwise
    /// only report them. Default: true.
    pub fix: bool,
    /// Send a few frames out of each interface at the start to verify that it transmits (`preflight`);
    /// default: true.
    pub probe: bool,
    /// Addresses and prefixes to drop from the start.
    pub block: Vec<Prefix>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            instance: None,
            interfaces: Vec::new(),
            datapath: Mode::Auto,
            statistics: Statistics::default(),
            max_sessions: MaxSessions::default(),
            udp_idle: Duration::from_secs(30),
            tcp_idle: Duration::from_secs(300),
            lifetime: Lifetime::default(),
            revalidate: Duration::from_secs(60),
            fail_open_after: Duration::from_secs(1),
            metrics: DEFAULT_METRICS,
            metrics_connections: 0,
            web: ListenAddress::Off,
            flows: Vec::new(),
            sensor: None,
            group: None,
            active_timeout: Duration::from_secs(60),
            flow_file_time: Duration::from_secs(60),
            flows_keep: Lifetime::Off,
            flows_keep_free: None,
            verify_checksums: false,
            accelerate: Vec::new(),
            exempt: Vec::new(),
            after_packets: 2,
            strict: false,
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
    /// [`ConfigError::File`], [`ConfigError::Text`]. Missing interfaces are not an error here, because the command
    /// line may name some; [`Config::check`] verifies that.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Reads the text of a file called `name`.
    ///
    /// # Errors
    /// [`ConfigError::Text`].
    pub fn parse(text: &str, name: &Path) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::Text {
            name: name.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })
    }

    /// Checks every value against its range and against the others, from whatever source.
    ///
    /// # Errors
    /// [`ConfigError::Whole`] for the first that does not fit.
    pub fn check(&self) -> Result<(), ConfigError> {
        let sound = || {
            if self.interfaces.is_empty() {
                return Err("no interface is named; they are written as interfaces = \
                            [\"eth1\", \"eth2\"] in the file"
                    .to_owned());
            }
            if let Some(name) = &self.instance {
                check_instance(name)?;
            }
            check_interfaces(&self.interfaces)?;
            check_sessions(self.max_sessions)?;
            check_connections(&self.metrics_connections)?;
            check_after_packets(&self.after_packets)?;
            if let Some(text) = &self.flows_keep_free {
                text.parse::<KeepFree>().map_err(|reason| format!("flows-keep-free: {reason}"))?;
            }
            let has_folder = || self.flows.iter().any(|one| matches!(one, Destination::Folder(_)));
            if (self.flows_keep != Lifetime::Off || self.flows_keep_free.is_some()) && !has_folder()
            {
                let reason =
                    "flows-keep and flows-keep-free: flows names no folder whose files they delete";
                return Err(reason.to_owned());
            }
            let lifetime = match self.lifetime {
                Lifetime::Off => *TIMEOUT_RANGE.end(),
                Lifetime::For(time) => time,
            };
            for (name, time, range) in [
                ("udp-idle", self.udp_idle, TIMEOUT_RANGE),
                ("tcp-idle", self.tcp_idle, TIMEOUT_RANGE),
                ("lifetime", lifetime, TIMEOUT_RANGE),
                ("revalidate", self.revalidate, REVALIDATE_RANGE),
                ("fail-open-after", self.fail_open_after, FAIL_OPEN_AFTER_RANGE),
                ("active-timeout", self.active_timeout, ACTIVE_TIMEOUT_RANGE),
                ("flow-file-time", self.flow_file_time, ACTIVE_TIMEOUT_RANGE),
            ] {
                check_time(time, &range).map_err(|reason| format!("{name}: {reason}"))?;
            }
            if !self.flows.is_empty() && self.statistics == Statistics::None {
                return Err("flows: with statistics = \"none\" no packet of a session is counted"
                    .to_owned());
            }
            Ok(())
        };
        sound().map_err(ConfigError::Whole)
    }

    /// The configuration as a file, with every value.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every value has a form in TOML")
    }
}

/// How sessions are counted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, DeserializeTrait,
)]
#[serde(rename_all = "kebab-case")]
pub enum Statistics {
    /// In the session itself, by the CPU that forwards it.
    #[default]
    Slot,
    /// Not at all.
    None,
}

linerate_net::named!(Statistics, "place for counters": Slot = "slot", None = "none");

/// A number with a factor, or a time, as a string: TOML has neither.
#[derive(DeserializeTrait)]
#[serde(untagged)]
enum Scalar {
    Number(i64),
    Text(String),
    Other(#[allow(dead_code)] serde::de::IgnoredAny),
}

/// A value that `check` accepts.
fn checked<'de, T: DeserializeTrait<'de>, D: Deserializer<'de>>(
    from: D,
    check: impl FnOnce(&T) -> Result<(), String>,
) -> Result<T, D::Error> {
    let value = T::deserialize(from)?;
    check(&value).map_err(D::Error::custom)?;
    Ok(value)
}

fn instance<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    checked(from, |name: &String| check_instance(name)).map(Some)
}

fn interfaces<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    checked(from, |names: &Vec<String>| check_interfaces(names))
}

fn idle<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    bounded(from, &TIMEOUT_RANGE)
}

fn revalidate<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    bounded(from, &REVALIDATE_RANGE)
}

fn after_packets<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    checked(from, check_after_packets)
}

fn metrics_connections<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    checked(from, check_connections)
}

fn fail_open_after<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    bounded(from, &FAIL_OPEN_AFTER_RANGE)
}

fn active_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    bounded(from, &ACTIVE_TIMEOUT_RANGE)
}

/// Selectors: a text, or a list of texts.
fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Selector>, D::Error> {
    #[derive(DeserializeTrait)]
    #[serde(untagged, expecting = "neither a text such as \"eth1\" nor a list of such texts")]
    enum Selectors {
        One(String),
        Several(Vec<String>),
    }
    let texts = match Selectors::deserialize(from)? {
        Selectors::One(text) => vec![text],
        Selectors::Several(texts) => texts,
    };
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

fn read_destinations<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Destination>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

fn destinations<S: Serializer>(all: &[Destination], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(all.iter().map(Destination::to_string))
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

/// Refuses what cannot be the name of an instance: it becomes a directory of bpffs, which allows no dots.
///
/// # Errors
/// The reason.
pub fn check_instance(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=64).contains(&name.len()) && name.chars().all(plain) {
        return Ok(());
    }
    Err(format!("{name:?} is not a valid instance name: 1 to 64 letters, digits, '-' and '_'"))
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
            return Err(format!(
                "{name:?} is not a valid interface name: `ip -br link` lists them"
            ));
        }
        if names[..at].contains(name) {
            return Err(format!("interface {name} is named twice: name each once"));
        }
    }
    Ok(())
}

fn check_sessions(sessions: MaxSessions) -> Result<(), String> {
    let MaxSessions::Number(number) = sessions else { return Ok(()) };
    if MAX_SESSIONS_RANGE.contains(&number) {
        return Ok(());
    }
    Err(format!(
        "max-sessions is {number}; it can be {} to {}",
        MAX_SESSIONS_RANGE.start(),
        MAX_SESSIONS_RANGE.end()
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

fn check_after_packets(number: &u32) -> Result<(), String> {
    if AFTER_PACKETS_RANGE.contains(number) {
        return Ok(());
    }
    let (least, most) = AFTER_PACKETS_RANGE.into_inner();
    Err(format!("after-packets is {number}; it has to be {least} to {most}"))
}

fn check_connections(number: &usize) -> Result<(), String> {
    if *number <= MAX_METRICS_CONNECTIONS {
        return Ok(());
    }
    Err(format!("metrics-connections is a number up to {MAX_METRICS_CONNECTIONS}"))
}

#[cfg(test)]
mod tests;
