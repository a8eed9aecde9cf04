//! The capture programs that are compared: how each is started, as its users start it, and how its final
//! report is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use linerate_ring::trace::{Options, Points};
use linerate_ring::xdp;
use linerate_testkit::Command;

use crate::measure::process::{Finished, Running, count};
use crate::programs::{self, installed};
use crate::report::summary::Role;
use crate::topology::pair::{Pair, RECEIVER};
use crate::traffic::generated::Traffic;

/// The name of [`Peer::tcpdump_buffered`].
pub(crate) const BUFFERED: &str = "tcpdump, 128 MiB";
/// The name of [`Peer::xdp_loop`].
pub(crate) const XDP_LOOP: &str = "plain AF_XDP loop";
/// The name of [`Peer::trace`].
pub(crate) const TRACE: &str = "trace";
/// The name of [`Peer::xdpdump`].
pub(crate) const XDPDUMP: &str = "xdpdump";
/// The name of [`Peer::capture_as_xdp_loop`].
pub(crate) const LIKE_XDP_LOOP: &str = "xdp sockets, as the plain loop";

/// The size of the flow table of [`Peer::metering`]: more than a million.
const MAX_FLOWS: &str = "1048576";

/// A program at the receiving end.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its name in charts; up to a comma the family, which shares a colour.
    pub(crate) name: String,
    /// Ours, a peer, or the limit.
    pub(crate) role: Role,
    program: Program,
    /// Where it writes; `None` to throw frames away.
    file: Option<PathBuf>,
    /// The folder of its flow records; `None` without metering.
    flows: Option<PathBuf>,
    /// The source that `linerate run` gives it; `None` where it runs alone.
    under: Option<&'static str>,
}

#[derive(Clone, Debug)]
enum Program {
    Capture {
        source: &'static str,
        options: Vec<&'static str>,
        discard: bool,
    },
    Consumer {
        source: &'static str,
        pages: &'static str,
        delay: u64,
        every: u64,
    },
    XdpLoop,
    Sink,
    Tcpdump {
        buffered: bool,
    },
    Dumpcap,
    Netsniff,
    Xdpdump,
    /// A program that counts what `pcap_loop` hands it.
    Loop,
}

/// What a program reports at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerReport {
    /// Frames that it delivered: wrote, analysed or counted.
    pub(crate) captured: u64,
    /// Frames that it knows it lost, by cause.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// The source that Linerate chose; empty for other programs.
    pub(crate) source: String,
    /// How it attached its XDP program, in its own words; empty where it has none.
    pub(crate) mode: String,
}

impl PeerReport {
    /// All drops together.
    pub(crate) fn lost(&self) -> u64 {
        self.dropped.values().sum()
    }
}

impl Peer {
    /// `linerate capture` from a source, with everything else at its default.
    pub(crate) fn capture(source: &'static str) -> Self {
        let program = Program::Capture { source, options: Vec::new(), discard: false };
        let (name, role) = (source.to_owned(), Role::Ours);
        Self { name, role, program, file: None, flows: None, under: None }
    }

    /// `linerate capture --source xdp` through AF_XDP sockets over these pages.
    pub(crate) fn sockets(pages: &'static str) -> Self {
        let name = match pages {
            "hugetlb" => "xdp sockets, huge pages".to_owned(),
            "thp" => "xdp sockets, transparent".to_owned(),
            pages => format!("xdp sockets, {pages} pages"),
        };
        Self::capture("xdp").with(&["--xdp-delivery", "af-xdp", "--pages", pages]).named(&name)
    }

    /// What the plain loop does, by `linerate capture`: AF_XDP sockets as deep as its own, on huge
    /// pages, and nothing done with the frames.
    pub(crate) fn capture_as_xdp_loop() -> Self {
        Self::sockets("hugetlb").with(&["-B", "16384"]).discarding().named(LIKE_XDP_LOOP)
    }

    /// Linerate's rings under a program that hashes every byte and works on every `every`-th frame
    /// for `delay` × 1000 multiplications (Trivelloni 2018, section 6.3.3).
    pub(crate) fn consumer(
        source: &'static str,
        pages: &'static str,
        delay: u64,
        every: u64,
    ) -> Self {
        let program = Program::Consumer { source, pages, delay, every };
        let name = if source == "xdp" { Self::sockets(pages).name } else { source.to_owned() };
        Self { program, ..Self::capture(source).named(&name) }
    }

    /// A plain AF_XDP loop without Linerate's library.
    pub(crate) fn xdp_loop() -> Self {
        Self::limit(XDP_LOOP, Program::XdpLoop)
    }

    /// Counts and drops in the driver.
    pub(crate) fn sink() -> Self {
        Self::limit("nothing (XDP drop)", Program::Sink)
    }

    /// tcpdump, with everything at its default.
    pub(crate) fn tcpdump() -> Self {
        Self::other("tcpdump", Program::Tcpdump { buffered: false })
    }

    /// tcpdump with a buffer as large as Linerate's default, for a fair comparison.
    pub(crate) fn tcpdump_buffered() -> Self {
        Self::other(BUFFERED, Program::Tcpdump { buffered: true })
    }

    /// dumpcap, with everything at its default.
    pub(crate) fn dumpcap() -> Self {
        Self::other("dumpcap", Program::Dumpcap)
    }

    /// netsniff-ng, with everything at its default.
    pub(crate) fn netsniff() -> Self {
        Self::other("netsniff-ng", Program::Netsniff)
    }

    /// `linerate capture` of the frames that an XDP program gets, as they come.
    pub(crate) fn trace() -> Self {
        Self::capture(TRACE).with(&["--trace-at", "entry"])
    }

    /// xdpdump, with everything at its default.
    pub(crate) fn xdpdump() -> Self {
        Self::other(XDPDUMP, Program::Xdpdump)
    }

    /// The least that a program can do with libpcap: it counts packets.
    pub(crate) fn pcap_loop() -> Self {
        Self::other("pcap_loop", Program::Loop)
    }

    /// The same program under `linerate run --source SOURCE`, as it is.
    #[must_use]
    pub(crate) fn with_linerate_run(mut self, source: &'static str) -> Self {
        self.name = format!("{}, {source}", self.name);
        self.role = Role::Ours;
        self.under = Some(source);
        self
    }

    /// Each source of Linerate at its default, tcpdump with both buffers, and the plain loop.
    pub(crate) fn sources_and_rivals() -> Vec<Self> {
        vec![
            Self::capture("xdp"),
            Self::sockets("hugetlb"),
            Self::capture("packet"),
            Self::capture("tee"),
            Self::tcpdump(),
            Self::tcpdump_buffered(),
            Self::xdp_loop(),
        ]
    }

    fn other(name: &str, program: Program) -> Self {
        let (name, role) = (name.into(), Role::Peer);
        Self { name, role, program, file: None, flows: None, under: None }
    }

    fn limit(name: &str, program: Program) -> Self {
        Self { role: Role::Limit, ..Self::other(name, program) }
    }

    /// The same with more options of `linerate capture`; for others, the same.
    #[must_use]
    fn with(mut self, more: &[&'static str]) -> Self {
        if let Program::Capture { options, .. } = &mut self.program {
            options.extend(more);
        }
        self
    }

    /// The same, counting the frames and writing them nowhere, where it is `linerate capture`.
    #[must_use]
    pub(crate) fn discarding(mut self) -> Self {
        if let Program::Capture { discard, .. } = &mut self.program {
            *discard = true;
            self.name += ", discarding";
        }
        self
    }

    /// The same, with flow records in a folder, if it is `linerate capture`.
    #[must_use]
    pub(crate) fn metering(mut self, folder: PathBuf) -> Self {
        self.flows = Some(folder);
        self
    }

    /// The same, writing to a file.
    #[must_use]
    pub(crate) fn writing(mut self, file: PathBuf) -> Self {
        self.file = Some(file);
        self
    }

    /// The same under another name.
    #[must_use]
    pub(crate) fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// The name and role of its line in a chart.
    pub(crate) fn line(&self) -> (String, Role) {
        (self.name.clone(), self.role)
    }

    /// Where it writes; `None` when frames are thrown away.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    fn is_installed(&self) -> bool {
        match self.program {
            Program::Tcpdump { .. } => installed("tcpdump"),
            Program::Dumpcap => installed("dumpcap"),
            Program::Netsniff => installed("netsniff-ng"),
            Program::Xdpdump => installed("xdpdump"),
            _ => true,
        }
    }

    /// About how many seconds a measurement takes: start, sending, and what is left to settle. The
    /// speeds are those at which the machine of docs/figures.md sends 64-byte frames to each.
    pub(crate) fn expected_seconds(&self, traffic: &Traffic) -> f64 {
        let full_speed = match &self.program {
            Program::Sink => 5e6,
            Program::Capture { source: "xdp", .. } | Program::XdpLoop => 2.8e6,
            _ if self.under == Some("xdp") => 2.5e6,
            _ => 1e6,
        };
        let rate = traffic.rate().map_or(full_speed, |rate| rate as f64);
        1.2 + self.flush_delay().as_secs_f64() + traffic.frames() as f64 / rate
    }

    /// How long frames may wait in its ring before it reads them. tcpdump asks libpcap for a time limit of a
    /// second, after which the kernel retires a block that is not full; dumpcap for a quarter of that.
    pub(crate) fn flush_delay(&self) -> Duration {
        match self.program {
            Program::Tcpdump { .. } | Program::Loop => Duration::from_millis(1300),
            _ => Duration::from_millis(600),
        }
    }

    /// Whether it never sleeps, so that its CPU time does not tell when it has read everything. What
    /// spins here has room for 8,192 frames: a few milliseconds.
    pub(crate) fn busy_polls(&self) -> bool {
        matches!(self.program, Program::XdpLoop)
    }

    /// Whether it takes frames with an XDP program.
    pub(crate) fn uses_xdp(&self) -> bool {
        match self.program {
            Program::Capture { source, .. } | Program::Consumer { source, .. } => {
                source != "packet"
            }
            Program::XdpLoop | Program::Sink | Program::Xdpdump => true,
            _ => self.under.is_some_and(|source| source != "packet"),
        }
    }

    /// Whether it traces an XDP program of another, which has to be there first.
    pub(crate) fn traces(&self) -> bool {
        matches!(self.program, Program::Capture { source: TRACE, .. } | Program::Xdpdump)
    }

    /// Starts the program that those trace that do: it drops every frame.
    pub(crate) fn start_traced(pair: &Pair) -> Result<Running> {
        let sink = Self::sink();
        let mut traced = Running::start(&sink.name, &mut sink.command(pair)?)?;
        pair.wait_until_listening(&mut traced)?;
        Ok(traced)
    }

    /// Why this machine cannot run it, by the probe of what it needs; `None` where it can.
    pub(crate) fn unavailable(&self, pair: &Pair) -> Result<Option<String>> {
        if !self.is_installed() {
            return Ok(Some("it is not installed".to_owned()));
        }
        let source = match self.program {
            Program::Capture { source, .. } | Program::Consumer { source, .. } => source,
            Program::XdpLoop => "xdp",
            Program::Xdpdump => TRACE,
            _ => match self.under {
                Some(source) => source,
                None => return Ok(None),
            },
        };
        if source == TRACE {
            let traced = Self::start_traced(pair)?;
            let options = Options { buffer: 4096, ..Options::default() };
            let trace = || options.xdp(RECEIVER, Points::Entry).err();
            let refused = pair.receiver.run(trace)?.map(|why| why.to_string());
            traced.stop(Duration::from_secs(10))?;
            pair.wait_until_free()?;
            return Ok(refused);
        }
        Ok(pair.receiver.run(|| match source {
            "xdp" => xdp::probe(RECEIVER).unavailable.map(|why| why.to_string()),
            "tee" => linerate_bpf::tee::probe(RECEIVER).err().map(|why| why.to_string()),
            _ => None,
        })?)
    }

    /// The command line, to run at the receiving host on the consumer's core.
    pub(crate) fn command(&self, pair: &Pair) -> Result<Command> {
        let file = self.file.as_ref().map_or("/dev/null", |file| file.to_str().unwrap_or("-"));
        let (host, core) = (&pair.receiver, pair.cores.consumer);
        let ours = |words: &[&str]| programs::linerate(host, core, words);
        let helper = |words: &[&str]| programs::helper(host, core, words);
        let theirs = |program: &str, words: &[&str]| {
            if let Some(source) = self.under {
                let run = ["run", "--quiet", "--source", source, "--", program];
                return ours(&[&run, words].concat());
            }
            let mut command = host.command_killed_with_parent(program);
            command.args(words).cpus([core]);
            Ok(command)
        };
        match &self.program {
            Program::Capture { source, options, discard } => {
                let mut words = vec!["capture", "-i", RECEIVER, "--source", source];
                words.extend(["--json", "--quiet"]);
                words.extend(if *discard { vec!["--discard"] } else { vec!["-w", file] });
                words.extend(options);
                let mut command = ours(&words)?;
                if let Some(folder) = &self.flows {
                    command.arg("--flows").arg(folder).args(["--max-flows", MAX_FLOWS]);
                }
                Ok(command)
            }
            Program::Consumer { source, pages, delay, every } => {
                let (delay, every) = (delay.to_string(), every.to_string());
                let mut words = vec!["consumer", "-i", RECEIVER, "--source", source];
                words.extend(["--pages", pages, "--delay", &delay, "--every", &every]);
                helper(&words)
            }
            Program::XdpLoop => helper(&["xdp-loop", "-i", RECEIVER, "--huge"]),
            Program::Sink => helper(&["sink", "-i", RECEIVER]),
            // -Z root: Debian's tcpdump would else change to a user who may not write the file.
            Program::Tcpdump { buffered } => {
                let mut words = vec!["-i", RECEIVER, "-n", "-Z", "root", "-w", file];
                if *buffered {
                    words.extend(["-B", "131072"]);
                }
                theirs("tcpdump", &words)
            }
            Program::Dumpcap => theirs("dumpcap", &["-q", "-i", RECEIVER, "-w", file]),
            Program::Loop => {
                let own = programs::current_exe()?;
                let own = own.to_str().context("the path of linerate-lab is not UTF-8")?;
                theirs(own, &["helper", "pcap-loop", "-i", RECEIVER])
            }
            Program::Xdpdump => theirs("xdpdump", &["-i", RECEIVER, "-w", file]),
            Program::Netsniff => {
                theirs("netsniff-ng", &["--in", RECEIVER, "--out", file, "--silent"])
            }
        }
    }

    /// Reads its final report.
    pub(crate) fn peer_report(&self, finished: Finished) -> Result<PeerReport> {
        match self.program {
            Program::Capture { .. }
            | Program::Consumer { .. }
            | Program::XdpLoop
            | Program::Loop
            | Program::Sink => from_json(&finished.success()?.json()?),
            Program::Tcpdump { .. } => tcpdump(&finished.stderr),
            Program::Dumpcap => dumpcap(&finished.stderr),
            Program::Netsniff => netsniff(&(finished.stdout + &finished.stderr)),
            Program::Xdpdump => xdpdump(&(finished.stdout + &finished.stderr)),
        }
        .with_context(|| format!("cannot read the output of {}", self.name))
    }
}

/// `{"captured": n, "dropped": {"cause": n, …}, …}`. Beside causes there stand their sum, how often
/// a ring froze, and the interface's own count, which [`crate::measure`] reads itself.
fn from_json(report: &serde_json::Value) -> Result<PeerReport> {
    let dropped = report["dropped"].as_object().context("no object \"dropped\"")?;
    let dropped = dropped
        .iter()
        .filter(|(cause, _)| !matches!(cause.as_str(), "total" | "freezes" | "interface"))
        .map(|(cause, value)| {
            let value = value.as_u64().with_context(|| format!("{cause} is not a count"))?;
            Ok((cause.clone(), value))
        })
        .collect::<Result<BTreeMap<_, _>>>()?;
    Ok(PeerReport {
        captured: count(report, "captured")?,
        dropped: dropped.into_iter().filter(|(_, value)| *value > 0).collect(),
        source: report["source"].as_str().unwrap_or_default().to_owned(),
        mode: mode(report),
    })
}

/// How the XDP program of `linerate capture` is attached: the first note on its interface, where the
/// source is one of XDP. The helper `consumer` has a field for it.
fn mode(report: &serde_json::Value) -> String {
    let mode = match report["source"].as_str() {
        Some("xdp" | "tee") => &report["interfaces"][0]["notes"][0],
        Some(_) => return String::new(),
        None => &report["mode"],
    };
    mode.as_str().unwrap_or_default().to_owned()
}

/// `12 packets captured`, `15 packets received by filter`, `2 packets dropped by kernel`,
/// `1 packet dropped by interface` (which [`crate::measure`] reads itself). What was received but neither
/// captured nor dropped was still in the ring when tcpdump ended, and is lost.
fn tcpdump(said: &str) -> Result<PeerReport> {
    let line = |end: &str| {
        said.lines().find_map(|line| {
            let line = line.trim();
            let (number, words) = line.split_once(' ')?;
            let words = words.strip_prefix("packets ").or(words.strip_prefix("packet "))?;
            if words == end { number.parse::<u64>().ok() } else { None }
        })
    };
    let captured = line("captured").context("no line \"packets captured\"")?;
    let received = line("received by filter").context("no line \"received by filter\"")?;
    let kernel = line("dropped by kernel").unwrap_or(0);
    let left = received.saturating_sub(captured + kernel);
    Ok(peer_report(captured, [("kernel", kernel), ("left in the ring", left)]))
}

/// `Packets captured: 12`, and
/// `Packets received/dropped on interface 'in0': 12/3 (pcap:3/dumpcap:0/flushed:0/ps_ifdrop:0) (80.0%)`.
fn dumpcap(said: &str) -> Result<PeerReport> {
    let line = said
        .lines()
        .find(|line| line.starts_with("Packets received/dropped on interface"))
        .context("no line \"Packets received/dropped\"")?;
    let counts = line.split_once("': ").context("no counts")?.1;
    let (received, rest) = counts.split_once('/').context("no received count")?;
    let inner = rest.split_once('(').and_then(|(_, inner)| inner.split_once(')'));
    let inner = inner.context("no causes of drops")?.0;
    let causes = inner.split('/').filter_map(|cause| {
        let (name, value) = cause.split_once(':')?;
        Some((name, value.parse().ok()?))
    });
    Ok(peer_report(received.trim().parse()?, causes))
}

/// `12 packets captured`, `3 packets dropped by perf ring`.
fn xdpdump(said: &str) -> Result<PeerReport> {
    let number = |end: &str| {
        said.lines().find_map(|line| line.trim().strip_suffix(end)?.trim().parse::<u64>().ok())
    };
    let captured = number("packets captured").context("no line \"packets captured\"")?;
    Ok(peer_report(captured, [("perf ring", number("packets dropped by perf ring").unwrap_or(0))]))
}

/// `12  packets incoming (2 unread on exit)`, `10  packets passed filter`,
/// `2  packets failed filter (out of space)`.
fn netsniff(said: &str) -> Result<PeerReport> {
    let number = |words: &str| {
        said.lines().find_map(|line| {
            let (number, rest) = line.trim().split_once("  packets ")?;
            if rest.starts_with(words) { number.trim().parse::<u64>().ok() } else { None }
        })
    };
    let passed = number("passed filter").context("no line \"packets passed filter\"")?;
    let failed = number("failed filter").unwrap_or(0);
    let unread = said
        .lines()
        .find_map(|line| {
            let (_, rest) = line.split_once("packets incoming (")?;
            rest.split_once(" unread")?.0.parse::<u64>().ok()
        })
        .unwrap_or(0);
    let Some(captured) = passed.checked_sub(unread) else { bail!("more unread than passed") };
    Ok(peer_report(captured, [("out of space", failed), ("unread on exit", unread)]))
}

fn peer_report<'a>(captured: u64, dropped: impl IntoIterator<Item = (&'a str, u64)>) -> PeerReport {
    let dropped = dropped.into_iter().filter(|(_, count)| *count > 0);
    let dropped = dropped.map(|(cause, count)| (cause.to_owned(), count)).collect();
    PeerReport { captured, dropped, ..PeerReport::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcpdump_is_read() {
        let said = "tcpdump: listening on in0, link-type EN10MB\n10 packets captured\n\
            15 packets received by filter\n3 packets dropped by kernel\n";
        let read = tcpdump(said).unwrap();
        assert_eq!(read, peer_report(10, [("kernel", 3), ("left in the ring", 2)]));
        let one = "1 packet captured\n1 packet received by filter\n0 packets dropped by kernel\n\
            2 packets dropped by interface\n";
        assert_eq!(tcpdump(one).unwrap(), peer_report(1, []));
        assert!(tcpdump("tcpdump: in0: no such device").is_err());
    }

    #[test]
    fn dumpcap_is_read() {
        let said = "Capturing on 'in0'\nFile: /dev/null\nPackets captured: 5\n\
            Packets received/dropped on interface 'in0': 5/4 \
            (pcap:3/dumpcap:1/flushed:0/ps_ifdrop:0) (55.6%)\n";
        assert_eq!(dumpcap(said).unwrap(), peer_report(5, [("pcap", 3), ("dumpcap", 1)]));
        assert!(dumpcap("").is_err());
    }

    #[test]
    fn netsniff_is_read() {
        let said = "\r         105  packets incoming (2 unread on exit)\n\
            \r          102  packets passed filter\n\r  3  packets failed filter (out of space)\n\
            \r      2.8571%  packet droprate\n\r  4 sec, 5 usec in total\n";
        let expected = peer_report(100, [("out of space", 3), ("unread on exit", 2)]);
        assert_eq!(netsniff(said).unwrap(), expected);
        assert!(netsniff("").is_err());
    }

    #[test]
    fn xdpdump_is_read() {
        let said = "listening on in0, ingress XDP program ID 5 func sink, capture mode entry, \
            capture size 262144 bytes\n\n12 packets captured\n3 packets dropped by perf ring\n";
        assert_eq!(xdpdump(said).unwrap(), peer_report(12, [("perf ring", 3)]));
        assert!(xdpdump("").is_err());
    }

    #[test]
    fn our_own_json_is_read() {
        let report =
            serde_json::json!({"captured": 7, "dropped": {"disk": 0, "ring": 2, "total": 2}});
        assert_eq!(from_json(&report).unwrap(), peer_report(7, [("ring", 2)]));
        assert!(from_json(&serde_json::json!({"captured": 7})).is_err());
        let notes = serde_json::json!([{"notes": ["native XDP, a ring buffer", "more"]}]);
        let of = |source| serde_json::json!({"source": source, "interfaces": notes});
        assert_eq!(mode(&of("xdp")), "native XDP, a ring buffer");
        assert_eq!(mode(&of("packet")), "");
        assert_eq!(mode(&serde_json::json!({"mode": "generic XDP"})), "generic XDP");
    }
}
