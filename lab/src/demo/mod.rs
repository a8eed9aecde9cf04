//! `linerate lab demo`: capture on real traffic, end to end, and a look at each other job, in two minutes.

mod jobs;
mod ledger;
mod segment;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use jiff::Zoned;
use linerate::cli::stdio;

use crate::experiments::capture::measurement::{Measurement, measure, settle};
use crate::measure::huge_pages::ReservedPages;
use crate::measure::process::Running;
use crate::peers::capture::Peer;
use crate::programs::installed;
use crate::report::distribution::{Distribution, paired_ratio};
use crate::report::environment::Environment;
use crate::report::store::{CsvFile, RunFolder};
use crate::report::summary::{Axis, Chart, Claim, Line, Point, Summary, claim_table, text_table};
use crate::topology::pair::Pair;
use crate::traffic::exchange::Exchange;
use crate::traffic::generated::Traffic;
use crate::{progress, report};
use ledger::{Ledger, Round};
use segment::Split;

/// Floods of each capture, in turns.
const ROUNDS: usize = 5;
/// 64-byte frames of a flood.
const FLOOD: u64 = 1_000_000;

/// Runs it, writes `index.html` and the run's folder to `out`, prints the comparison, and says
/// whether every claim held.
pub(crate) fn run(out: &Path) -> Result<bool> {
    let (began, now) = (Instant::now(), Zoned::now());
    let mut demo = Demo::begin(out, &now)?;
    demo.exchanges()?;
    demo.replay()?;
    demo.segment()?;
    demo.flood()?;
    let mut demo = demo;
    demo.bar.finish_and_clear();
    demo.summary.environment.set_modes(&demo.modes);
    demo.summary.seconds = began.elapsed().as_secs_f64();
    demo.store.write_summary(&demo.summary)?;
    stdio::println(format_args!("\n{}", text_table(&demo.table)))?;
    stdio::println(claim_table(&demo.summary.claims))?;
    for note in &demo.summary.notes {
        stdio::println(note)?;
    }
    for void in &demo.summary.void {
        stdio::println(format_args!("void: {void}"))?;
    }
    let mut summaries = vec![demo.summary];
    let mut claims = Vec::new();
    for job in jobs::JOBS {
        match job.run(out) {
            Ok(summary) => {
                claims.extend(summary.claims.clone());
                summaries.push(summary);
            }
            Err(error) if crate::interrupt::happened() => return Err(error),
            Err(error) => {
                claims.push(job.failure(&error));
                summaries[0].claims.push(job.failure(&error));
            }
        }
    }
    stdio::println(claim_table(&claims))?;
    let page = out.join("index.html");
    report::write(&page, &summaries)?;
    stdio::println(format_args!("report: {}", page.display()))?;
    stdio::println(NEXT)?;
    Ok(summaries.iter().all(Summary::all_claims_hold))
}

/// The last line.
const NEXT: &str = "next, on an interface of your own: `linerate doctor -i IFACE`, then \
                    `sudo linerate capture -i IFACE -w all.pcapng`";

struct Demo {
    store: RunFolder,
    raw: CsvFile,
    summary: Summary,
    table: Vec<[String; 4]>,
    bar: ProgressBar,
    /// Capture files, gone at the end.
    files: tempfile::TempDir,
    tcpdump: bool,
    /// How XDP was attached, by capture.
    modes: BTreeMap<String, String>,
    _pages: Option<ReservedPages>,
}

impl Demo {
    fn begin(out: &Path, now: &Zoned) -> Result<Self> {
        // Checked before anything is created, so that a missing privilege is the first message.
        let driver = Pair::build()?.driver();
        let environment = Environment { driver, ..Environment::gather() };
        let date = now.strftime("%Y-%m-%d").to_string();
        let store = RunFolder::create(out, &date, &environment.host, "demo")?;
        let raw = store.csv_file("raw")?;
        let tcpdump = installed("tcpdump");
        let mut notes = Vec::new();
        if !tcpdump {
            notes.push("skipped: the comparison: tcpdump is not installed".to_owned());
        }
        let summary = Summary {
            experiment: "demo".into(),
            title: "Real traffic, every frame accounted for".into(),
            about: "Two hosts in network namespaces exchange HTTP, DNS and a TCP bulk transfer by \
                    real programs, a recorded file is replayed, and the generator floods 64-byte \
                    frames. Linerate and tcpdump capture each of them to a file; every frame that \
                    was sent must be in the file or in a count of drops."
                .into(),
            started: now.strftime("%Y-%m-%d %H:%M:%S").to_string(),
            seconds: 0.0,
            quick: false,
            environment,
            charts: Vec::new(),
            claims: Vec::new(),
            notes,
            void: Vec::new(),
        };
        Ok(Self {
            store,
            raw,
            summary,
            table: vec![["traffic", "frames", "Linerate", "tcpdump"].map(str::to_owned)],
            bar: progress::bar((Exchange::ALL.len() * 2 + 3 + ROUNDS * 3) as u64),
            files: tempfile::tempdir().context("cannot make a folder for capture files")?,
            tcpdump,
            modes: BTreeMap::new(),
            _pages: ReservedPages::at_least(160)?,
        })
    }

    /// Linerate as it comes, and tcpdump where it is installed, each writing to its file.
    fn captures(&self, name: &str) -> Vec<Peer> {
        let file = |end: &str| self.files.path().join(format!("{name}.{end}"));
        let ours = Peer::capture("auto").named("Linerate").writing(file("pcapng"));
        let theirs = self.tcpdump.then(|| Peer::tcpdump().writing(file("pcap")));
        std::iter::once(ours).chain(theirs).collect()
    }

    fn exchanges(&mut self) -> Result<()> {
        let pair = Pair::build()?;
        pair.add_receiver_address()?;
        // Coalesced frames are not the frames that were sent.
        pair.cable.b.set_gro(false)?;
        let served = tempfile::tempdir().context("cannot make a folder for served files")?;
        for exchange in Exchange::ALL {
            let missing = exchange.missing();
            if !missing.is_empty() {
                let why = format!("{} not installed", missing.join(", "));
                self.summary.notes.push(format!("skipped: {}: {why}", exchange.title()));
                continue;
            }
            let name = format!("{exchange:?}").to_lowercase();
            let mut ledgers = Vec::new();
            for peer in self.captures(&name) {
                self.bar.set_message(format!("{}: {}", exchange.title(), peer.name));
                let drive = || exchange.run(&pair, served.path());
                ledgers.push(Ledger::of(watch(&pair, &peer, drive)?));
                self.bar.inc(1);
            }
            self.add_claim(exchange.title(), &ledgers);
        }
        Ok(())
    }

    /// Replays what Linerate captured of HTTP: one host's half of it.
    fn replay(&mut self) -> Result<()> {
        let file = self.files.path().join("http.pcapng");
        if !file.is_file() {
            self.summary.notes.push("skipped: the replay: nothing was recorded".into());
            return Ok(());
        }
        let pair = Pair::build()?;
        let traffic = Traffic::Replayed { file, loops: 20, rate: None };
        let mut ledgers = Vec::new();
        for peer in self.captures("replay") {
            self.bar.set_message(format!("replayed file: {}", peer.name));
            let measured = measure(&pair, &peer, &traffic)?;
            self.raw.row((&format!("replay: {}", peer.name), 0.0, 1), &measured.cells())?;
            ledgers.push(Ledger::of(Round::new(&measured, count_file(&peer)?)));
            self.bar.inc(1);
        }
        self.add_claim("replayed capture file, 20 times", &ledgers);
        Ok(())
    }

    /// Splits the super-packets of a captured TCP bulk transfer.
    fn segment(&mut self) -> Result<()> {
        let title = "TCP bulk transfer, super-packets split";
        let missing = Exchange::Bulk.missing();
        if !missing.is_empty() {
            let why = format!("{} not installed", missing.join(", "));
            self.summary.notes.push(format!("skipped: {title}: {why}"));
            return Ok(());
        }
        self.bar.set_message(title);
        let split = Split::of_bulk_transfer(self.files.path())?;
        self.bar.inc(1);
        let (sent, words) = (split.before.frames.to_string(), split.words());
        self.table.push([title.to_owned(), sent.clone(), words.clone(), "–".to_owned()]);
        self.summary.claims.push(Claim::new(
            &format!("{title}: every byte of the stream is there, and no frame is over the MTU"),
            format!("{sent} frames of at most {} bytes became {words}", split.before.longest),
            "the same payload; frames of at most 1514 bytes",
            split.is_right(),
        ));
        Ok(())
    }

    fn flood(&mut self) -> Result<()> {
        let pair = Pair::build()?;
        let mut peers = self.captures("flood");
        peers[0].name = "Linerate, auto".into();
        let file = self.files.path().join("flood-xdp.pcapng");
        let xdp = Peer::capture("xdp").named("Linerate, xdp").writing(file);
        match xdp.unavailable(&pair)? {
            None => peers.insert(0, xdp),
            Some(why) => {
                let note = format!("skipped: the flood with --source xdp: {why}");
                self.summary.notes.push(note);
            }
        }
        let traffic = Traffic::smallest(FLOOD, None);
        let mut runs: Vec<Vec<Measurement>> = vec![Vec::new(); peers.len()];
        let mut ledgers = vec![Ledger::default(); peers.len()];
        for round in 1..=ROUNDS {
            for ((peer, runs), ledger) in peers.iter().zip(&mut runs).zip(&mut ledgers) {
                self.bar.set_message(format!("flood of 64-byte frames, {round}: {}", peer.name));
                let measured = measure(&pair, peer, &traffic)?;
                self.raw.row((&format!("flood: {}", peer.name), 64.0, round), &measured.cells())?;
                if let Some(why) = &measured.void {
                    let void = format!("flood: {}, round {round}: {why}", peer.name);
                    self.summary.void.push(void);
                }
                if !measured.peer_report.mode.is_empty() {
                    self.modes.insert(peer.name.clone(), measured.peer_report.mode.clone());
                }
                ledger.add(Round::new(&measured, count_file(peer)?));
                runs.push(measured);
                self.bar.inc(1);
            }
        }
        let find = |name: &str| peers.iter().position(|peer| peer.name == name);
        let of = |at: Option<usize>| at.map(|at| ledgers[at].clone());
        let (xdp, auto, tcpdump) = (find("Linerate, xdp"), find("Linerate, auto"), find("tcpdump"));
        let mut theirs = of(tcpdump);
        for (ours, title) in [(xdp, "flood of 64-byte frames"), (auto, "the flood, --source auto")]
        {
            if let Some(ours) = of(ours) {
                self.add_claim(
                    title,
                    &std::iter::once(ours).chain(theirs.take()).collect::<Vec<_>>(),
                );
            }
        }
        self.draw(&peers, &runs);
        if let (Some(xdp), Some(tcpdump)) = (xdp, tcpdump) {
            self.summary.claims.push(Claim::at_least(
                "the flood is captured faster than by tcpdump: rate over rate, --source xdp",
                paired_ratio(&rates(&runs[xdp]), &rates(&runs[tcpdump])),
                1.0,
                ROUNDS,
            ));
        }
        Ok(())
    }

    fn draw(&mut self, peers: &[Peer], runs: &[Vec<Measurement>]) {
        let bars = |value: fn(&Measurement) -> f64, factor: f64| {
            let bar = |(peer, runs): (&Peer, &Vec<Measurement>)| {
                let spread =
                    Distribution::of(counted(runs, value)).map(|spread| spread.map(|v| v * factor));
                let void = runs.iter().filter(|run| !run.counts()).count();
                let loss =
                    Distribution::of(counted(runs, Measurement::loss)).map_or(0.0, |s| s.median);
                let remark = (loss > 0.0).then(|| format!("{:.3}% lost", loss * 100.0));
                let points = vec![Point { x: 0.0, spread, void, remark }];
                Line { name: peer.name.clone(), role: peer.role, points }
            };
            peers.iter().zip(runs).map(bar).collect()
        };
        self.summary.charts = vec![
            Chart::bars(
                "flood",
                "A flood of 64-byte frames, captured to a file",
                "Longer is better.",
                Axis::linear("captured", "million frames a second"),
                bars(Measurement::rate, 1e-6),
            ),
            Chart::bars(
                "loss",
                "Frames of the flood that were lost",
                "Shorter is better; each of them is in a count of drops.",
                Axis::linear("lost", "%"),
                bars(Measurement::loss, 100.0),
            ),
            Chart::bars(
                "cpu",
                "CPU time of the capturing program for a frame",
                "Shorter is better.",
                Axis::linear("CPU time", "ns a frame"),
                bars(Measurement::cpu_per_frame, 1.0),
            ),
        ];
    }

    /// A row of the table, and a claim for Linerate's half of it.
    fn add_claim(&mut self, title: &str, ledgers: &[Ledger]) {
        let Some(ours) = ledgers.first() else { return };
        let theirs = ledgers.get(1).map_or_else(|| "–".to_owned(), Ledger::words);
        let source = ours.source();
        self.table.push([title.to_owned(), ours.sent(), ours.words() + &source, theirs]);
        self.summary.claims.push(Claim::new(
            &format!("{title}: every frame is in the file or in a count of drops"),
            format!("sent: {}; {}{source}", ours.sent(), ours.words()),
            "sent = in file + dropped",
            ours.balances(),
        ));
        for (capture, ledger) in ["Linerate", "tcpdump"].into_iter().zip(ledgers) {
            let open = ledger.open().map(|open| format!("{capture}, {title}: {open}"));
            self.summary.void.extend(open);
        }
    }
}

/// The rates of the runs that count, NaN for the others.
fn rates(runs: &[Measurement]) -> Vec<f64> {
    counted(runs, Measurement::rate)
}

fn counted(runs: &[Measurement], value: fn(&Measurement) -> f64) -> Vec<f64> {
    runs.iter().map(|run| if run.counts() { value(run) } else { f64::NAN }).collect()
}

/// Captures while `drive` lets two programs talk. Who taps the stack sees both directions; who
/// taps the driver sees what came in.
fn watch(pair: &Pair, peer: &Peer, drive: impl FnOnce() -> Result<()>) -> Result<Round> {
    let mut capture = Running::start(&peer.name, &mut peer.command(pair)?)?;
    pair.wait_until_listening(&mut capture)?;
    let (a, b) = (pair.cable.a.statistics()?, pair.cable.b.statistics()?);
    drive()?;
    settle(pair, peer, &capture)?;
    capture.check()?;
    let peer_report = peer.peer_report(capture.stop(Duration::from_secs(30))?)?;
    let (a_now, b_now) = (pair.cable.a.statistics()?, pair.cable.b.statistics()?);
    pair.wait_until_free()?;
    let inwards = a_now.tx_packets - a.tx_packets;
    let outwards = b_now.tx_packets - b.tx_packets;
    let only_inwards = matches!(peer_report.source.as_str(), "xdp" | "tee");
    Ok(Round {
        sent: if only_inwards { inwards } else { inwards + outwards },
        in_file: count_file(peer)?,
        interface_dropped: 0,
        peer_report,
    })
}

/// The frames in a capture's file, counted by capinfos where it is installed, else by Linerate.
fn count_file(peer: &Peer) -> Result<u64> {
    let file = peer.file().context("the capture has no file")?;
    if !installed("capinfos") {
        return Ok(segment::Contents::read(file)?.frames);
    }
    let output = Command::new("capinfos").args(["-M", "-c"]).arg(file).output()?;
    ensure!(
        output.status.success(),
        "{} cannot be read: {}",
        file.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = said.split_once("Number of packets:").map(|(_, rest)| {
        rest.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>()
    });
    number
        .and_then(|digits| digits.parse().ok())
        .with_context(|| format!("no program counts the frames in {}", file.display()))
}
