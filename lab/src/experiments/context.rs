//! Shared state of an experiment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use indicatif::ProgressBar;
use jiff::Zoned;

use super::selection::Selection;
use crate::experiments::capture::measurement::{Measurement, measure};
use crate::interrupt;
use crate::measure::cores::Cores;
use crate::measure::huge_pages::ReservedPages;
use crate::peers::capture::Peer;
use crate::progress;
use crate::report::environment::Environment;
use crate::report::store::{CsvFile, RunFolder};
use crate::report::summary::{Chart, Claim, Summary};
use crate::topology::pair::Pair;
use crate::traffic::generated::Traffic;

/// Huge pages for a UMEM of 128 MiB, the buffers of a writer, and a spare.
const HUGE_PAGES: u64 = 160;

/// One experiment.
#[derive(Clone, Copy)]
pub(crate) struct Experiment {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    /// Measures, draws and judges.
    pub(super) run: fn(&mut Context) -> Result<()>,
}

/// How experiments are run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Fewer points and frames.
    pub(crate) quick: bool,
    /// Repeats of each point, at least 1; five or more for a result to be believed.
    pub(crate) repeats: usize,
    /// Which measurements are made.
    pub(crate) only: Selection,
}

impl Default for Options {
    fn default() -> Self {
        Self { quick: false, repeats: 5, only: Selection::default() }
    }
}

/// The planned measurements and their estimated duration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Measurements, without the search below a rate at which frames were lost.
    pub(crate) measurements: usize,
    /// About how long they take, on a machine like that of docs/figures.md.
    pub(crate) seconds: f64,
    /// The names of all measurements, those that `--only` leaves out among them.
    pub(crate) names: Vec<String>,
}

/// The two hosts, the folder, and what has been found so far. In a dry run there are no hosts and no folder:
/// it measures nothing and returns the plan.
pub(crate) struct Context {
    pub(crate) options: Options,
    pub(crate) charts: Vec<Chart>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) notes: Vec<String>,
    plan: Plan,
    void: Vec<String>,
    /// How XDP was attached, by line, as the captures reported.
    modes: BTreeMap<String, String>,
    run: Option<Run>,
}

/// State that exists only in a real run.
struct Run {
    pair: Pair,
    store: RunFolder,
    sheets: BTreeMap<&'static str, CsvFile>,
    environment: Environment,
    bar: ProgressBar,
    began: Instant,
    started: String,
    _pages: Option<ReservedPages>,
}

impl Context {
    pub(super) fn dry_run(options: Options) -> Self {
        Self {
            options,
            charts: Vec::new(),
            claims: Vec::new(),
            notes: Vec::new(),
            plan: Plan::default(),
            void: Vec::new(),
            modes: BTreeMap::new(),
            run: None,
        }
    }

    /// For a run that `plan` was made for.
    pub(super) fn begin(
        experiment: &Experiment,
        out: &Path,
        options: Options,
        plan: &Plan,
    ) -> Result<Self> {
        let pair = Pair::build()?;
        let pages = ReservedPages::at_least(HUGE_PAGES)?;
        let (mut environment, now) = (Environment::gather(), Zoned::now());
        environment.driver = pair.driver();
        let date = now.strftime("%Y-%m-%d").to_string();
        let store = RunFolder::create(out, &date, &environment.host, experiment.name)?;
        let mut context = Self::dry_run(options);
        if pages.as_ref().is_none_or(|pages| pages.got < HUGE_PAGES) {
            context.notes.push(format!(
                "There is no room for {HUGE_PAGES} huge pages; lines with huge pages are missing \
                 or use what there is."
            ));
        }
        if pair.cores.generator == pair.cores.consumer {
            context.notes.push("One core: generator and consumer take turns on it.".into());
        }
        if !context.options.only.is_all() {
            let only = context.options.only.words();
            context.notes.push(format!("Measurement only: {only}. Claims on the rest are open."));
        }
        context.run = Some(Run {
            pair,
            store,
            sheets: BTreeMap::new(),
            environment,
            bar: progress::bar(plan.measurements as u64),
            began: Instant::now(),
            started: now.strftime("%Y-%m-%d %H:%M:%S").to_string(),
            _pages: pages,
        });
        Ok(context)
    }

    /// One or the other, as the run is quick or not.
    pub(crate) fn quick_or_full<T>(&self, quick: T, full: T) -> T {
        if self.options.quick { quick } else { full }
    }

    /// The run's folder; `None` in a dry run.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.run.as_ref().map(|run| run.store.folder())
    }

    /// Who works where; `None` in a dry run.
    pub(crate) fn cores(&self) -> Option<Cores> {
        self.run.as_ref().map(|run| run.pair.cores)
    }

    /// Whether a line is measured at `x`.
    pub(crate) fn is_selected(&mut self, line: &str, x: f64) -> bool {
        let name = format!("{line} at {x}");
        let admitted = self.options.only.matches(&name);
        if !self.plan.names.contains(&name) {
            self.plan.names.push(name);
        }
        admitted
    }

    /// Those of `peers` that are measured at `x` and that this machine can run.
    pub(crate) fn select_peers(&mut self, mut peers: Vec<Peer>, x: f64) -> Result<Vec<Peer>> {
        peers.retain(|peer| self.is_selected(&peer.name, x));
        self.runnable_peers(peers)
    }

    /// Those of `peers` that this machine can run.
    pub(crate) fn runnable_peers(&mut self, peers: Vec<Peer>) -> Result<Vec<Peer>> {
        let mut runnable = Vec::with_capacity(peers.len());
        for peer in peers {
            if self.can_run(&peer)? {
                runnable.push(peer);
            }
        }
        Ok(runnable)
    }

    /// Whether this machine can run `peer`, by a probe; where it cannot, a note says why. In a dry run
    /// all of them can.
    pub(crate) fn can_run(&mut self, peer: &Peer) -> Result<bool> {
        let Some(run) = &self.run else { return Ok(true) };
        let Some(why) = peer.unavailable(&run.pair)? else { return Ok(true) };
        let note = format!("skipped: {}: {why}", peer.name);
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
        Ok(false)
    }

    /// Does `work`, which takes about `seconds`. `None` in a dry run, and when it failed, which is
    /// kept as a void run.
    pub(crate) fn try_measure<T>(
        &mut self,
        line: &str,
        x: f64,
        repeat: usize,
        seconds: f64,
        work: impl FnOnce(&Pair) -> Result<T>,
    ) -> Result<Option<T>> {
        self.plan.measurements += 1;
        self.plan.seconds += seconds;
        let Some(run) = &mut self.run else { return Ok(None) };
        run.bar.set_message(format!("{line} at {x}"));
        let done = work(&run.pair);
        if run.bar.length().is_some_and(|length| run.bar.position() >= length) {
            run.bar.inc_length(1);
        }
        run.bar.inc(1);
        interrupt::check()?;
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) => {
                self.void.push(format!("{line} at {x}, repeat {repeat}: {error:#}"));
                Ok(None)
            }
        }
    }

    /// Keeps why a measurement that was made does not count.
    pub(crate) fn record_void(&mut self, line: &str, x: f64, repeat: usize, why: &str) {
        self.void.push(format!("{line} at {x}, repeat {repeat}: {why}"));
    }

    /// The same for a measurement, whose row is kept.
    pub(crate) fn keep(
        &mut self,
        line: &str,
        x: f64,
        repeat: usize,
        seconds: f64,
        work: impl FnOnce(&Pair) -> Result<Measurement>,
    ) -> Result<Option<Measurement>> {
        let Some(measured) = self.try_measure(line, x, repeat, seconds, work)? else {
            return Ok(None);
        };
        if let Some(why) = &measured.void {
            self.void.push(format!("{line} at {x}, repeat {repeat}: {why}"));
        }
        self.attached(line, &measured.peer_report.mode);
        self.row("raw", (line, x, repeat), &measured.cells())?;
        Ok(Some(measured))
    }

    /// Remembers how a line's XDP program was attached, in its own words; nothing where it has none.
    pub(crate) fn attached(&mut self, line: &str, mode: &str) {
        if !mode.is_empty() {
            self.modes.insert(line.to_owned(), mode.to_owned());
        }
    }

    /// Measures `peer` under `traffic`.
    pub(crate) fn point(
        &mut self,
        peer: &Peer,
        traffic: &Traffic,
        x: f64,
        repeat: usize,
    ) -> Result<Option<Measurement>> {
        let seconds = peer.expected_seconds(traffic);
        self.keep(&peer.name, x, repeat, seconds, |pair| measure(pair, peer, traffic))
    }

    /// Keeps a row of raw data: the line, the place and the repeat that were measured, and these cells.
    pub(crate) fn row(
        &mut self,
        name: &'static str,
        of: (&str, f64, usize),
        cells: &[(&'static str, String)],
    ) -> Result<()> {
        let Some(run) = &mut self.run else { return Ok(()) };
        let sheet = match run.sheets.entry(name) {
            std::collections::btree_map::Entry::Occupied(kept) => kept.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(run.store.csv_file(name)?)
            }
        };
        sheet.row(of, cells)
    }

    pub(super) fn plan(self) -> Plan {
        self.plan
    }

    /// Stores what a run has found; `None` after a dry run.
    pub(super) fn finish(self, experiment: &Experiment) -> Result<Option<(Summary, PathBuf)>> {
        let Some(mut run) = self.run else { return Ok(None) };
        run.bar.finish_and_clear();
        run.environment.set_modes(&self.modes);
        let summary = Summary {
            experiment: experiment.name.into(),
            title: experiment.title.into(),
            about: experiment.about.into(),
            started: run.started,
            seconds: run.began.elapsed().as_secs_f64(),
            quick: self.options.quick,
            environment: run.environment,
            charts: self.charts,
            claims: self.claims,
            notes: self.notes,
            void: self.void,
        };
        run.store.write_summary(&summary)?;
        Ok(Some((summary, run.store.folder().to_owned())))
    }
}
