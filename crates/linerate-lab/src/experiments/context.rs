//! What every experiment has at hand.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use indicatif::ProgressBar;
use jiff::Zoned;

use super::Experiment;
use crate::bench::Bench;
use crate::facts::Facts;
use crate::interrupt;
use crate::measure::{COLUMNS, Measured, measure};
use crate::model::{Chart, Claim, Summary};
use crate::pages::Reserved;
use crate::peer::Peer;
use crate::progress;
use crate::store::{Sheet, Store};
use crate::traffic::Traffic;

/// Huge pages for a UMEM of 128 MiB, the buffers of a writer, and a spare.
const HUGE_PAGES: u64 = 160;

/// How experiments are run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Fewer points and frames.
    pub quick: bool,
    /// Repeats of each point, at least 1; five or more for a result to be believed.
    pub repeats: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { quick: false, repeats: 5 }
    }
}

/// The two hosts, the folder, and what has been found so far.
pub struct Context {
    /// The two hosts.
    pub bench: Bench,
    /// The run's folder.
    pub store: Store,
    /// How to run.
    pub options: Options,
    /// Found so far.
    pub charts: Vec<Chart>,
    /// Found so far.
    pub claims: Vec<Claim>,
    /// Found so far.
    pub notes: Vec<String>,
    void: Vec<String>,
    facts: Facts,
    raw: Option<Sheet>,
    bar: ProgressBar,
    began: Instant,
    started: String,
    _pages: Option<Reserved>,
}

impl Context {
    pub(super) fn begin(experiment: &Experiment, out: &Path, options: Options) -> Result<Self> {
        let bench = Bench::lay()?;
        let pages = Reserved::at_least(HUGE_PAGES)?;
        let (facts, now) = (Facts::gather(), Zoned::now());
        let date = now.strftime("%Y-%m-%d").to_string();
        let store = Store::create(out, &date, &facts.host, experiment.name)?;
        let mut notes = Vec::new();
        if pages.as_ref().is_none_or(|pages| pages.got < HUGE_PAGES) {
            notes.push(format!(
                "There is no room for {HUGE_PAGES} huge pages; lines with huge pages are missing \
                 or use what there is."
            ));
        }
        if bench.cores.generator == bench.cores.consumer {
            notes.push("One core: generator and consumer take turns on it.".into());
        }
        Ok(Self {
            bench,
            store,
            options,
            charts: Vec::new(),
            claims: Vec::new(),
            notes,
            void: Vec::new(),
            facts,
            raw: None,
            bar: ProgressBar::hidden(),
            began: Instant::now(),
            started: now.strftime("%Y-%m-%d %H:%M:%S").to_string(),
            _pages: pages,
        })
    }

    /// Announces how many measurements there will be.
    pub fn expect(&mut self, measurements: usize) {
        self.bar.finish_and_clear();
        self.bar = progress::bar(measurements as u64);
    }

    /// One or the other, as the run is quick or not.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        if self.options.quick { quick } else { full }
    }

    /// Measures and keeps the row. `None` when a program failed, which is kept as a void run.
    ///
    /// # Errors
    /// When the row cannot be kept, or a signal asks for the end.
    pub fn point(
        &mut self,
        peer: &Peer,
        traffic: &Traffic,
        x: f64,
        repeat: usize,
    ) -> Result<Option<Measured>> {
        let measured = measure(&self.bench, peer, traffic);
        self.keep(&peer.name, x, repeat, measured)
    }

    /// Keeps the row of a measurement that was made elsewhere.
    ///
    /// # Errors
    /// As [`Context::point`].
    pub fn keep(
        &mut self,
        line: &str,
        x: f64,
        repeat: usize,
        measured: Result<Measured>,
    ) -> Result<Option<Measured>> {
        self.bar.set_message(format!("{line} at {x}"));
        self.bar.inc(1);
        interrupt::check()?;
        match measured {
            Ok(measured) => {
                if let Some(why) = &measured.void {
                    self.void.push(format!("{line} at {x}, repeat {repeat}: {why}"));
                }
                let raw = match &mut self.raw {
                    Some(raw) => raw,
                    none => none.insert(self.store.sheet("raw", &COLUMNS)?),
                };
                raw.row(measured.cells(line, x, repeat))?;
                Ok(Some(measured))
            }
            Err(error) => {
                self.void.push(format!("{line} at {x}, repeat {repeat}: {error:#}"));
                Ok(None)
            }
        }
    }

    /// Moves the bar on where a measurement is not kept by [`Context::keep`].
    pub fn step(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.inc(1);
    }

    /// A run that did not count, and why.
    pub fn mark_void(&mut self, why: String) {
        self.void.push(why);
    }

    pub(super) fn finish(self, experiment: &Experiment) -> Result<(Summary, PathBuf)> {
        self.bar.finish_and_clear();
        let summary = Summary {
            experiment: experiment.name.into(),
            title: experiment.title.into(),
            about: experiment.about.into(),
            started: self.started,
            seconds: self.began.elapsed().as_secs_f64(),
            quick: self.options.quick,
            facts: self.facts,
            charts: self.charts,
            claims: self.claims,
            notes: self.notes,
            void: self.void,
        };
        self.store.finish(&summary)?;
        Ok((summary, self.store.folder().to_owned()))
    }
}
