//! `linerate lab demo`: the main job on real traffic, end to end, in a few minutes.

mod account;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use jiff::Zoned;

use crate::bench::Bench;
use crate::facts::{Facts, installed};
use crate::measure::{COLUMNS, Measured, measure, settle};
use crate::model::{Axis, Chart, Claim, Line, Point, Summary, claim_table, text_table};
use crate::pages::Reserved;
use crate::peer::Peer;
use crate::process::Running;
use crate::programs::{self, Exchange};
use crate::statistics::{Spread, paired_ratio};
use crate::store::{Sheet, Store};
use crate::traffic::Traffic;
use crate::{progress, report};
use account::{Account, Seen};

/// Floods of each capture, in turns.
const ROUNDS: usize = 5;
/// 64-byte frames of a flood.
const FLOOD: u64 = 1_000_000;

/// Runs it, writes `index.html` and the run's folder to `out`, prints the comparison, and says
/// whether every claim held.
///
/// # Errors
/// Without root, when a program fails, or when a signal asks for the end.
pub fn run(out: &Path) -> Result<bool> {
    let (began, now) = (Instant::now(), Zoned::now());
    let mut demo = Demo::begin(out, &now)?;
    demo.exchanges()?;
    demo.replay()?;
    demo.flood()?;
    let mut demo = demo;
    demo.bar.finish_and_clear();
    demo.summary.facts.set_modes(&demo.modes);
    demo.summary.seconds = began.elapsed().as_secs_f64();
    demo.store.finish(&demo.summary)?;
    let page = out.join("index.html");
    report::write(&page, std::slice::from_ref(&demo.summary))?;
    println!("\n{}", text_table(&demo.table));
    println!("{}", claim_table(&demo.summary.claims));
    for note in &demo.summary.notes {
        println!("{note}");
    }
    for void in &demo.summary.void {
        println!("void: {void}");
    }
    println!("report: {}", page.display());
    Ok(demo.summary.claims.iter().all(|claim| claim.holds != Some(false)))
}

struct Demo {
    store: Store,
    raw: Sheet,
    summary: Summary,
    table: Vec<[String; 4]>,
    bar: ProgressBar,
    /// Capture files, gone at the end.
    files: tempfile::TempDir,
    tcpdump: bool,
    /// How XDP was attached, by capture.
    modes: BTreeMap<String, String>,
    _pages: Option<Reserved>,
}

impl Demo {
    fn begin(out: &Path, now: &Zoned) -> Result<Self> {
        // Said before anything is made, so that a missing right is the first thing one reads.
        let driver = Bench::lay()?.driver();
        let facts = Facts { driver, ..Facts::gather() };
        let date = now.strftime("%Y-%m-%d").to_string();
        let store = Store::create(out, &date, &facts.host, "demo")?;
        let raw = store.sheet("raw", &COLUMNS)?;
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
            facts,
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
            bar: progress::bar((Exchange::ALL.len() * 2 + 2 + ROUNDS * 3) as u64),
            files: tempfile::tempdir().context("cannot make a folder for capture files")?,
            tcpdump,
            modes: BTreeMap::new(),
            _pages: Reserved::at_least(160)?,
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
        let bench = Bench::lay()?;
        programs::address(&bench)?;
        // Coalesced frames are not the frames that were sent.
        bench.cable.b.set_gro(false)?;
        let served = tempfile::tempdir().context("cannot make a folder for served files")?;
        for exchange in Exchange::ALL {
            let missing = exchange.missing();
            if !missing.is_empty() {
                let why = format!("{} not installed", missing.join(", "));
                self.summary.notes.push(format!("skipped: {}: {why}", exchange.title()));
                continue;
            }
            let name = format!("{exchange:?}").to_lowercase();
            let mut accounts = Vec::new();
            for peer in self.captures(&name) {
                self.bar.set_message(format!("{}: {}", exchange.title(), peer.name));
                let drive = || exchange.run(&bench, served.path());
                accounts.push(Account::of(watch(&bench, &peer, drive)?));
                self.bar.inc(1);
            }
            self.judge(exchange.title(), &accounts);
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
        let bench = Bench::lay()?;
        let traffic = Traffic::Replayed { file, loops: 20, rate: None };
        let mut accounts = Vec::new();
        for peer in self.captures("replay") {
            self.bar.set_message(format!("replayed file: {}", peer.name));
            let measured = measure(&bench, &peer, &traffic)?;
            self.raw.row(measured.cells(&format!("replay: {}", peer.name), 0.0, 1))?;
            accounts.push(Account::of(Seen::new(&measured, count_file(&peer)?)));
            self.bar.inc(1);
        }
        self.judge("replayed capture file, 20 times", &accounts);
        Ok(())
    }

    fn flood(&mut self) -> Result<()> {
        let bench = Bench::lay()?;
        let mut peers = self.captures("flood");
        peers[0].name = "Linerate, auto".into();
        let file = self.files.path().join("flood-xdp.pcapng");
        let xdp = Peer::capture("xdp").named("Linerate, xdp").writing(file);
        match xdp.obstacle(&bench)? {
            None => peers.insert(0, xdp),
            Some(why) => {
                let note = format!("skipped: the flood with --source xdp: {why}");
                self.summary.notes.push(note);
            }
        }
        let traffic = Traffic::smallest(FLOOD, None);
        let mut runs: Vec<Vec<Measured>> = vec![Vec::new(); peers.len()];
        let mut accounts = vec![Account::default(); peers.len()];
        for round in 1..=ROUNDS {
            for ((peer, runs), account) in peers.iter().zip(&mut runs).zip(&mut accounts) {
                self.bar.set_message(format!("flood of 64-byte frames, {round}: {}", peer.name));
                let measured = measure(&bench, peer, &traffic)?;
                self.raw.row(measured.cells(&format!("flood: {}", peer.name), 64.0, round))?;
                if let Some(why) = &measured.void {
                    let void = format!("flood: {}, round {round}: {why}", peer.name);
                    self.summary.void.push(void);
                }
                if !measured.tally.mode.is_empty() {
                    self.modes.insert(peer.name.clone(), measured.tally.mode.clone());
                }
                account.add(Seen::new(&measured, count_file(peer)?));
                runs.push(measured);
                self.bar.inc(1);
            }
        }
        let find = |name: &str| peers.iter().position(|peer| peer.name == name);
        let of = |at: Option<usize>| at.map(|at| accounts[at].clone());
        let (xdp, auto, tcpdump) = (find("Linerate, xdp"), find("Linerate, auto"), find("tcpdump"));
        let mut theirs = of(tcpdump);
        for (ours, title) in [(xdp, "flood of 64-byte frames"), (auto, "the flood, --source auto")]
        {
            if let Some(ours) = of(ours) {
                self.judge(title, &std::iter::once(ours).chain(theirs.take()).collect::<Vec<_>>());
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

    fn draw(&mut self, peers: &[Peer], runs: &[Vec<Measured>]) {
        let bars = |value: fn(&Measured) -> f64, factor: f64| {
            let bar = |(peer, runs): (&Peer, &Vec<Measured>)| {
                let spread = Spread::of(counted(runs, value)).map(|spread| spread.scaled(factor));
                let void = runs.iter().filter(|run| !run.counts()).count();
                let loss = Spread::of(counted(runs, Measured::loss)).map_or(0.0, |s| s.median);
                let remark = (loss > 0.0).then(|| format!("{:.3}% lost", loss * 100.0));
                let points = vec![Point { x: 0.0, spread, void, remark }];
                Line { name: peer.name.clone(), role: peer.role, points }
            };
            peers.iter().zip(runs).map(bar).collect()
        };
        let chart = |id: &str, title: &str, caption: &str, label: &str, unit: &str, lines| Chart {
            id: id.into(),
            title: title.into(),
            caption: caption.into(),
            x: None,
            y: Axis::linear(label, unit),
            lines,
        };
        self.summary.charts = vec![
            chart(
                "flood",
                "A flood of 64-byte frames, captured to a file",
                "Longer is better.",
                "captured",
                "million frames a second",
                bars(Measured::rate, 1e-6),
            ),
            chart(
                "loss",
                "Frames of the flood that were lost",
                "Shorter is better; each of them is in a count of drops.",
                "lost",
                "%",
                bars(Measured::loss, 100.0),
            ),
            chart(
                "cpu",
                "CPU time of the capturing program for a frame",
                "Shorter is better.",
                "CPU time",
                "ns a frame",
                bars(Measured::cpu_per_frame, 1.0),
            ),
        ];
    }

    /// A row of the table, and a claim for Linerate's half of it.
    fn judge(&mut self, title: &str, accounts: &[Account]) {
        let Some(ours) = accounts.first() else { return };
        let theirs = accounts.get(1).map_or_else(|| "–".to_owned(), Account::words);
        let source = ours.source();
        self.table.push([title.to_owned(), ours.sent(), ours.words() + &source, theirs]);
        self.summary.claims.push(Claim::new(
            &format!("{title}: every frame is in the file or in a count of drops"),
            format!("sent: {}; {}{source}", ours.sent(), ours.words()),
            "sent = in file + dropped",
            ours.balances(),
        ));
        for (whose, account) in ["Linerate", "tcpdump"].into_iter().zip(accounts) {
            let open = account.open().map(|open| format!("{whose}, {title}: {open}"));
            self.summary.void.extend(open);
        }
    }
}

/// The rates of the runs that count, NaN for the others.
fn rates(runs: &[Measured]) -> Vec<f64> {
    counted(runs, Measured::rate)
}

fn counted(runs: &[Measured], value: fn(&Measured) -> f64) -> Vec<f64> {
    runs.iter().map(|run| if run.counts() { value(run) } else { f64::NAN }).collect()
}

/// Captures while `drive` lets two programs talk. Who taps the stack sees both directions; who
/// taps the driver sees what came in.
fn watch(bench: &Bench, peer: &Peer, drive: impl FnOnce() -> Result<()>) -> Result<Seen> {
    let mut capture = Running::start(&peer.name, &mut peer.command(bench)?)?;
    bench.wait_until_listening(&mut capture)?;
    let (a, b) = (bench.cable.a.counters()?, bench.cable.b.counters()?);
    drive()?;
    settle(bench, peer, &capture)?;
    capture.check()?;
    let tally = peer.tally(capture.stop(Duration::from_secs(30))?)?;
    let (a_now, b_now) = (bench.cable.a.counters()?, bench.cable.b.counters()?);
    bench.wait_until_free()?;
    let inwards = a_now.tx_packets - a.tx_packets;
    let outwards = b_now.tx_packets - b.tx_packets;
    let only_inwards = matches!(tally.source.as_str(), "xdp" | "tee");
    Ok(Seen {
        sent: if only_inwards { inwards } else { inwards + outwards },
        in_file: count_file(peer)?,
        interface_dropped: 0,
        tally,
    })
}

/// The frames in a capture's file, counted by capinfos where it is installed, else by Linerate.
fn count_file(peer: &Peer) -> Result<u64> {
    let file = peer.file().context("the capture has no file")?;
    let (output, marker) = if installed("capinfos") {
        let output = Command::new("capinfos").args(["-M", "-c"]).arg(file).output()?;
        (output, "Number of packets:")
    } else {
        let program = std::env::current_exe().context("cannot find the linerate program")?;
        let arguments = ["--json", "--quiet", "-w", "/dev/null", "-r"];
        let output = Command::new(program).arg("capture").args(arguments).arg(file).output()?;
        (output, "\"captured\":")
    };
    ensure!(
        output.status.success(),
        "{} cannot be read: {}",
        file.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = said.split_once(marker).map(|(_, rest)| {
        rest.trim_start().chars().take_while(char::is_ascii_digit).collect::<String>()
    });
    number
        .and_then(|digits| digits.parse().ok())
        .with_context(|| format!("nobody says how many frames are in {}", file.display()))
}
