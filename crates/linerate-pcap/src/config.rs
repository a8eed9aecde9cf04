//! [`Config`]: the source of an interface. It comes from the environment, which `linerate run` sets, and
//! otherwise from a configuration file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use linerate_capture::source::SourceKind;
use linerate_ring::Delivery;
use linerate_ring::region::Pages;
use serde::Deserialize;

use crate::environment::variable;

/// The configuration file, unless `LINERATE_CONFIG` names another.
const DEFAULT_FILE: &str = "/etc/linerate/pcap.toml";

/// The configuration of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) source: SourceChoice,
    /// The host need not get the frames: `auto` is `xdp`, where that works.
    pub(crate) take_over: bool,
    pub(crate) delivery: Delivery,
    pub(crate) pages: Pages,
    /// Bytes of buffer.
    pub(crate) buffer: Option<u64>,
    /// Handles that share the packets of the interface; 0 and 1 for none.
    pub(crate) threads: usize,
    /// The cluster whose handles, in any process, share the packets of the interface.
    pub(crate) cluster: Option<u16>,
}

/// The requested source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SourceChoice {
    /// Packet sockets: program and host see the same frames as under libpcap.
    #[default]
    Auto,
    /// This one, by name.
    Source(SourceKind),
    /// libpcap alone.
    Libpcap,
}

impl FromStr for SourceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "libpcap" => Ok(Self::Libpcap),
            "packet" | "xdp" | "tee" => text.parse().map(Self::Source),
            _ => Err(format!(
                "unknown source `{text}`: choose one of auto, packet, xdp, tee, libpcap"
            )),
        }
    }
}

/// The configuration file: a section for all interfaces, and one for each interface.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    default: Section,
    #[serde(default)]
    interface: BTreeMap<String, Section>,
}

/// A section of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Section {
    source: Option<String>,
    take_over: Option<bool>,
    xdp_delivery: Option<String>,
    pages: Option<String>,
    /// KiB.
    buffer: Option<u64>,
    threads: Option<usize>,
    cluster: Option<u16>,
}

impl Config {
    /// The configuration of `interface`, and the errors in file and environment.
    pub(crate) fn load(interface: &str) -> (Self, Vec<String>) {
        let named = variable("LINERATE_CONFIG").map(PathBuf::from);
        let file = named.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
        let mut errors = Vec::new();
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            // Only a file that was named must exist.
            Err(_) if named.is_none() => String::new(),
            Err(error) => {
                errors.push(format!("cannot read {}: {error}", file.display()));
                String::new()
            }
        };
        let variable =
            |name: &str| variable(name)?.into_string().ok().filter(|value| !value.is_empty());
        (Self::parse(interface, &file, &text, variable, &mut errors), errors)
    }

    /// Forgets the options of XDP, which do not apply to packet sockets.
    pub(crate) fn forget_xdp(&mut self) {
        (self.take_over, self.delivery, self.pages) = Default::default();
    }

    fn parse(
        interface: &str,
        file: &Path,
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
        errors: &mut Vec<String>,
    ) -> Self {
        let mut config = Self::default();
        match toml::from_str::<File>(text) {
            Ok(mut parsed) => {
                let own = parsed.interface.remove(interface).unwrap_or_default();
                for (section, part) in [("default", parsed.default), (interface, own)] {
                    let place = format!("{}, [{section}]", file.display());
                    config.apply(part, &place, errors);
                }
            }
            Err(error) => errors.push(format!("{}: {}", file.display(), error.message())),
        }
        let mut found = Section {
            source: variable("LINERATE_SOURCE"),
            take_over: None,
            xdp_delivery: variable("LINERATE_XDP_DELIVERY"),
            pages: variable("LINERATE_PAGES"),
            buffer: number(&variable, "LINERATE_BUFFER", "a number of KiB", errors),
            threads: number(&variable, "LINERATE_THREADS", "a number", errors),
            cluster: number(&variable, "LINERATE_CLUSTER", "0 to 65535", errors),
        };
        if let Some(value) = variable("LINERATE_TAKE_OVER") {
            found.take_over = Some(matches!(value.as_str(), "1" | "yes" | "true"));
            if !matches!(value.as_str(), "1" | "yes" | "true" | "0" | "no" | "false") {
                errors.push(format!(
                    "LINERATE_TAKE_OVER={value}: expected yes or no; nothing is taken"
                ));
            }
        }
        config.apply(found, "environment", errors);
        config
    }

    fn apply(&mut self, section: Section, place: &str, errors: &mut Vec<String>) {
        set(&mut self.source, section.source, place, errors);
        set(&mut self.delivery, section.xdp_delivery, place, errors);
        set(&mut self.pages, section.pages, place, errors);
        self.take_over = section.take_over.unwrap_or(self.take_over);
        self.threads = section.threads.unwrap_or(self.threads);
        self.cluster = section.cluster.or(self.cluster);
        self.buffer = section.buffer.map(|kib| kib.saturating_mul(1024)).or(self.buffer);
    }
}

/// The number in a variable, where it is set and is one.
fn number<T: FromStr>(
    variable: impl Fn(&str) -> Option<String>,
    name: &str,
    expected: &str,
    errors: &mut Vec<String>,
) -> Option<T> {
    let value = variable(name)?;
    let number = value.parse().ok();
    if number.is_none() {
        errors.push(format!("{name}={value}: expected {expected}"));
    }
    number
}

/// Sets a value if there is a text for it and it can be parsed.
fn set<T: FromStr<Err: std::fmt::Display>>(
    place: &mut T,
    text: Option<String>,
    where_from: &str,
    errors: &mut Vec<String>,
) {
    match text.map(|text| text.parse()) {
        Some(Ok(value)) => *place = value,
        Some(Err(error)) => errors.push(format!("{where_from}: {error}")),
        None => {}
    }
}

#[cfg(test)]
mod tests;
