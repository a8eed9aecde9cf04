//! The machine and the programs of a run, which a reader needs to judge its numbers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::programs::installed;

/// The machine and the programs, as they were when the run began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub(crate) host: String,
    pub(crate) kernel: String,
    pub(crate) cpu: String,
    /// Processors that may be used.
    pub(crate) cores: usize,
    /// The hypervisor of a virtual machine; empty on bare metal.
    pub(crate) hypervisor: String,
    /// Memory in GiB.
    pub(crate) memory_gib: f64,
    pub(crate) nodes: usize,
    /// Bytes of a small page.
    pub(crate) page_size: usize,
    /// Huge pages: size in KiB to pages in the pool.
    pub(crate) huge_pages: BTreeMap<u64, u64>,
    /// The chosen setting of transparent huge pages.
    pub(crate) transparent_huge_pages: String,
    /// Whether the processor's own event counters can be read.
    pub(crate) pmu: bool,
    /// The interfaces' driver; empty where there were none.
    pub(crate) driver: String,
    /// How XDP ran on them, by line, as the captures reported it; empty where none did.
    pub(crate) xdp_mode: String,
    /// Versions of Linerate and of the peers that are installed.
    pub(crate) versions: BTreeMap<String, String>,
}

/// Peers whose version is worth keeping: the program and the option that prints it.
const PEERS: [(&str, &str); 10] = [
    ("tcpdump", "--version"),
    ("dumpcap", "--version"),
    ("netsniff-ng", "--version"),
    ("tcpreplay", "--version"),
    ("tshark", "--version"),
    ("curl", "--version"),
    ("dnsmasq", "--version"),
    ("dig", "-v"),
    ("iperf3", "--version"),
    ("python3", "--version"),
];

impl Environment {
    /// Reads the machine's properties. What cannot be read stays empty.
    pub(crate) fn gather() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let meminfo = read("/proc/meminfo");
        let total_kib = field(&meminfo, "MemTotal").and_then(|text| number(&text)).unwrap_or(0);
        let mut versions = BTreeMap::from([("linerate".into(), env!("CARGO_PKG_VERSION").into())]);
        versions.extend(
            PEERS.iter().filter_map(|(name, flag)| Some(((*name).into(), version(name, flag)?))),
        );
        Self {
            host: read("/proc/sys/kernel/hostname"),
            kernel: read("/proc/sys/kernel/osrelease"),
            cpu: field(&cpuinfo, "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            hypervisor: hypervisor(&cpuinfo),
            memory_gib: total_kib as f64 / f64::from(1 << 20),
            nodes: count_nodes(),
            page_size: rustix::param::page_size(),
            huge_pages: huge_pages(),
            transparent_huge_pages: bracketed(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
            pmu: Path::new("/sys/bus/event_source/devices/cpu").exists()
                || Path::new("/sys/bus/event_source/devices/cpu_core").exists(),
            driver: String::new(),
            xdp_mode: String::new(),
            versions,
        }
    }

    /// Takes over what each line of the run reported of its XDP program.
    pub(crate) fn set_modes(&mut self, modes: &BTreeMap<String, String>) {
        let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (line, mode) in modes {
            lines.entry(mode).or_default().push(line);
        }
        let words: Vec<String> =
            lines.iter().map(|(mode, lines)| format!("{}: {mode}", lines.join(", "))).collect();
        self.xdp_mode = words.join("; ");
    }

    /// The environment as name and value, for people.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let machine = if self.hypervisor.is_empty() {
            String::new()
        } else {
            format!(" ({} virtual machine)", self.hypervisor)
        };
        let or_none = |text: &str, none: &str| if text.is_empty() { none } else { text }.to_owned();
        let mut driver = or_none(&self.driver, "no interfaces");
        if driver == "veth" {
            driver += " (a veth pair; these are not the numbers of a network card)";
        }
        let huge: Vec<String> =
            self.huge_pages.iter().map(|(size, count)| format!("{count} of {size} KiB")).collect();
        let versions: Vec<String> =
            self.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
        vec![
            ("kernel", self.kernel.clone()),
            ("processor", format!("{}, {} cores{machine}", self.cpu, self.cores)),
            ("memory", format!("{:.1} GiB, {} NUMA node(s)", self.memory_gib, self.nodes)),
            ("small page", format!("{} bytes", self.page_size)),
            ("huge pages reserved", if huge.is_empty() { "none".into() } else { huge.join(", ") }),
            ("transparent huge pages", self.transparent_huge_pages.clone()),
            ("event counters (PMU)", if self.pmu { "yes" } else { "none on this machine" }.into()),
            ("interfaces", driver),
            ("XDP", or_none(&self.xdp_mode, "not used, or not reported")),
            ("programs", versions.join(", ")),
        ]
    }
}

fn version(program: &str, flag: &str) -> Option<String> {
    if !installed(program) {
        return None;
    }
    let output = Command::new(program).arg(flag).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    first_version(&String::from_utf8_lossy(&text))
}

/// The first word that looks like a version: digits with a dot between.
fn first_version(text: &str) -> Option<String> {
    text.split(|c: char| c.is_whitespace() || c == ',' || c == '(' || c == ')')
        .map(|word| word.trim_start_matches("DiG-").trim_start_matches('v').trim_end_matches('.'))
        .find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))
        .map(str::to_owned)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

fn number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// The chosen one of a kernel file that lists choices as `always [madvise] never`.
fn bracketed(text: &str) -> String {
    text.split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or_else(|| "not in this kernel".to_owned(), |(chosen, _)| chosen.to_owned())
}

fn hypervisor(cpuinfo: &str) -> String {
    let flags = field(cpuinfo, "flags").unwrap_or_default();
    if !flags.split(' ').any(|flag| flag == "hypervisor") {
        return String::new();
    }
    match read("/sys/hypervisor/type") {
        name if !name.is_empty() => name,
        _ if flags.split(' ').any(|flag| flag == "vmmcall") => "KVM-like".into(),
        _ => "unknown".into(),
    }
}

fn count_nodes() -> usize {
    let nodes = fs::read_dir("/sys/devices/system/node").map(|entries| {
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names
            .filter_map(|name| name.strip_prefix("node").map(str::to_owned))
            .filter(|rest| rest.parse::<u32>().is_ok())
            .count()
    });
    nodes.unwrap_or(1).max(1)
}

fn huge_pages() -> BTreeMap<u64, u64> {
    let Ok(entries) = fs::read_dir("/sys/kernel/mm/hugepages") else { return BTreeMap::new() };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
            Some((size, count.trim().parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_where_programs_print_them() {
        for (text, expected) in [
            ("tcpdump version 4.99.3\nlibpcap version 1.10.3", "4.99.3"),
            ("Dumpcap (Wireshark) 4.0.17 (Git v4.0.17)", "4.0.17"),
            ("DiG 9.18.33-1~deb12u2-Debian", "9.18.33-1~deb12u2-Debian"),
            ("curl 7.88.1 (x86_64-pc-linux-gnu)", "7.88.1"),
            ("Python 3.11.2", "3.11.2"),
        ] {
            assert_eq!(first_version(text).as_deref(), Some(expected));
        }
        assert_eq!(first_version("no number here"), None);
    }

    #[test]
    fn the_chosen_setting_is_the_bracketed_one() {
        assert_eq!(bracketed("always [madvise] never"), "madvise");
        assert_eq!(bracketed(""), "not in this kernel");
    }

    #[test]
    fn lines_with_the_same_mode_are_told_together() {
        let mut environment = Environment::default();
        assert!(environment.lines().contains(&("XDP", "not used, or not reported".into())));
        let modes = [("tee", "native XDP"), ("xdp", "generic XDP"), ("xdp 2", "generic XDP")];
        environment.set_modes(&modes.map(|(line, mode)| (line.into(), mode.into())).into());
        assert_eq!(environment.xdp_mode, "xdp, xdp 2: generic XDP; tee: native XDP");
    }

    #[test]
    fn this_machine_has_a_kernel_and_a_processor() {
        let environment = Environment::gather();
        assert!(
            environment.kernel.contains('.')
                && environment.cores > 0
                && environment.memory_gib > 0.0
        );
        assert!(environment.page_size.is_power_of_two());
        assert_eq!(environment.lines().len(), 10);
    }
}
