//! [`Plan`]: which source an interface is to have. From the environment, which `linerate run` sets, and
//! from a configuration file, where the environment says nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use linerate_capture::choose::Kind;
use linerate_capture::open::Through;
use linerate_ring::packet::Allocation;
use linerate_ring::region::Pages;
use serde::Deserialize;

/// The file that is read where `LINERATE_CONFIG` names none.
const FILE: &str = "/etc/linerate/pcap.toml";

/// What is wanted for one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) source: Wanted,
    pub(crate) take_over: bool,
    pub(crate) through: Through,
    pub(crate) pages: Pages,
    pub(crate) allocation: Allocation,
    /// Bytes of buffer.
    pub(crate) buffer: Option<u64>,
    /// Handles on the interface that share its packets; 0 and 1 for none.
    pub(crate) threads: usize,
}

/// The source that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Packet sockets: what a program sees and what the host sees is as under libpcap.
    #[default]
    Auto,
    /// This one, by name.
    Source(Kind),
    /// libpcap as it is.
    Plain,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "libpcap" => Ok(Self::Plain),
            _ => text.parse().map(Self::Source).map_err(|_| {
                format!("unknown source `{text}`: choose one of auto, packet, xdp, tee, libpcap")
            }),
        }
    }
}

/// The configuration file: what holds for all interfaces, and what for one of them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    default: Section,
    #[serde(default)]
    interface: BTreeMap<String, Section>,
}

/// A part of the file, as it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Section {
    source: Option<String>,
    take_over: Option<bool>,
    xdp_through: Option<String>,
    pages: Option<String>,
    ring_allocation: Option<String>,
    /// KiB.
    buffer: Option<u64>,
    threads: Option<usize>,
}

impl Plan {
    /// The plan for `interface`, and what was wrong with the words that were found.
    pub(crate) fn of(interface: &str) -> (Self, Vec<String>) {
        let named = std::env::var_os("LINERATE_CONFIG").map(PathBuf::from);
        let file = named.clone().unwrap_or_else(|| PathBuf::from(FILE));
        let mut wrong = Vec::new();
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            // Only a file that was named has to be there.
            Err(_) if named.is_none() => String::new(),
            Err(error) => {
                wrong.push(format!("cannot read {}: {error}", file.display()));
                String::new()
            }
        };
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        (Self::made(interface, &file, &text, variable, &mut wrong), wrong)
    }

    fn made(
        interface: &str,
        file: &Path,
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
        wrong: &mut Vec<String>,
    ) -> Self {
        let mut plan = Self::default();
        match toml::from_str::<File>(text) {
            Ok(mut parsed) => {
                let own = parsed.interface.remove(interface).unwrap_or_default();
                for (section, part) in [("default", parsed.default), (interface, own)] {
                    let place = format!("{}, [{section}]", file.display());
                    plan.take_section(part, &place, wrong);
                }
            }
            Err(error) => wrong.push(format!("{}: {}", file.display(), error.message())),
        }
        let mut found = Section {
            source: variable("LINERATE_SOURCE"),
            take_over: None,
            xdp_through: variable("LINERATE_XDP_THROUGH"),
            pages: variable("LINERATE_PAGES"),
            ring_allocation: variable("LINERATE_RING_ALLOCATION"),
            buffer: None,
            threads: None,
        };
        if let Some(value) = variable("LINERATE_TAKE_OVER") {
            found.take_over = Some(value != "0");
        }
        if let Some(value) = variable("LINERATE_BUFFER") {
            match value.parse() {
                Ok(kib) => found.buffer = Some(kib),
                Err(_) => wrong.push(format!("LINERATE_BUFFER={value}: a number of KiB is wanted")),
            }
        }
        if let Some(value) = variable("LINERATE_THREADS") {
            match value.parse() {
                Ok(threads) => found.threads = Some(threads),
                Err(_) => wrong.push(format!("LINERATE_THREADS={value}: a number is wanted")),
            }
        }
        plan.take_section(found, "environment", wrong);
        plan
    }

    fn take_section(&mut self, section: Section, place: &str, wrong: &mut Vec<String>) {
        set(&mut self.source, section.source, place, wrong);
        set(&mut self.through, section.xdp_through, place, wrong);
        set(&mut self.pages, section.pages, place, wrong);
        set(&mut self.allocation, section.ring_allocation, place, wrong);
        self.take_over = section.take_over.unwrap_or(self.take_over);
        self.threads = section.threads.unwrap_or(self.threads);
        self.buffer = section.buffer.map(|kib| kib.saturating_mul(1024)).or(self.buffer);
    }
}

/// Puts a value in its place if there is one and it can be read.
fn set<T: FromStr<Err: std::fmt::Display>>(
    place: &mut T,
    text: Option<String>,
    where_from: &str,
    wrong: &mut Vec<String>,
) {
    match text.map(|text| text.parse()) {
        Some(Ok(value)) => *place = value,
        Some(Err(error)) => wrong.push(format!("{where_from}: {error}")),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        [default]
        source = 'packet'
        buffer = 1024
        [interface.eth1]
        source = 'xdp'
        take-over = true
        pages = 'hugetlb'
        threads = 2
    ";

    fn made(interface: &str, text: &str, variables: &[(&str, &str)]) -> (Plan, Vec<String>) {
        let mut wrong = Vec::new();
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let plan = Plan::made(interface, Path::new("pcap.toml"), text, variable, &mut wrong);
        (plan, wrong)
    }

    #[test]
    fn an_interface_has_its_own_section_above_the_default() {
        let (plan, wrong) = made("eth1", TEXT, &[]);
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!(plan.source, Wanted::Source(Kind::Xdp));
        assert!(plan.take_over);
        assert_eq!((plan.buffer, plan.threads), (Some(1 << 20), 2));
        assert_eq!(plan.pages, "hugetlb".parse().expect("pages"));
        assert_eq!(made("eth0", TEXT, &[]).0.source, Wanted::Source(Kind::Packet));
        assert_eq!(made("eth0", "", &[]).0, Plan::default());
    }

    #[test]
    fn the_environment_is_above_the_file() {
        let variables = [
            ("LINERATE_SOURCE", "libpcap"),
            ("LINERATE_TAKE_OVER", "0"),
            ("LINERATE_THREADS", "4"),
        ];
        let (plan, wrong) = made("eth1", TEXT, &variables);
        assert!(wrong.is_empty(), "{wrong:?}");
        assert_eq!((plan.source, plan.take_over, plan.threads), (Wanted::Plain, false, 4));
    }

    #[test]
    fn a_wrong_word_is_named_with_its_place_and_leaves_the_rest() {
        let (plan, wrong) = made("eth1", TEXT, &[("LINERATE_SOURCE", "fast")]);
        assert_eq!(plan.source, Wanted::Source(Kind::Xdp));
        assert!(wrong[0].starts_with("environment: unknown source `fast`"), "{wrong:?}");
        let (_, wrong) = made("eth1", "[interface.eth1]\nsorce = 'xdp'", &[]);
        assert!(wrong[0].contains("pcap.toml") && wrong[0].contains("sorce"), "{wrong:?}");
    }
}
