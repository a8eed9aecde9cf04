//! What the `receive-*` experiments share: their readers, and cells of repeats.

use std::collections::BTreeMap;

use anyhow::Result;

use super::messages::{Load, Reader, ReceiveOutcome, Testbed};
use crate::experiments::context::Context;
use crate::peers::quinn;
use crate::report::distribution::{Distribution, paired_ratio};
use crate::report::summary::{Line, Point, Role};

/// The back ends of `linerate receive`, with who is compared with them.
pub(super) const BACK_ENDS: [&str; 4] = ["recvmmsg", "gro", "uring", "xdp"];

const QUINN: &str = "quinn-udp";

/// One line of a chart.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) name: &'static str,
    pub(super) role: Role,
    pub(super) reader: Reader,
}

/// Everybody who can be measured here, and notes on who cannot. In a rehearsal everybody can.
pub(super) fn candidates(context: &mut Context, rivals: bool) -> Vec<Candidate> {
    let ours = |name| Candidate { name, role: Role::Ours, reader: Reader::Linerate(name) };
    let mut all: Vec<_> = BACK_ENDS.iter().map(|&name| ours(name)).chain([ours("auto")]).collect();
    // The seed's "regular kernel": what a careful program does today.
    all[0].role = Role::Peer;
    if !rivals {
        return all;
    }
    all.push(Candidate { name: "plain AF_XDP loop", role: Role::Limit, reader: Reader::XdpLoop });
    let only = &context.options.only;
    if !["1", "64", "0"].iter().any(|x| only.admits(&format!("{QUINN} at {x}"))) {
        return all;
    }
    let quinn = match context.folder() {
        None => Ok(std::path::PathBuf::new()),
        Some(folder) => quinn::build(folder),
    };
    match quinn {
        Ok(program) => {
            let reader = Reader::Quinn(program);
            all.push(Candidate { name: QUINN, role: Role::Peer, reader });
        }
        Err(error) => context.notes.push(format!("skipped: {QUINN}: {error:#}")),
    }
    all
}

/// Values of one kind, by line and x, repeat by repeat; NaN where a repeat does not count.
#[derive(Debug, Default)]
pub(super) struct Cells(BTreeMap<(String, u64), Vec<f64>>);

impl Cells {
    pub(super) fn add(&mut self, line: &str, x: f64, value: f64) {
        self.0.entry((line.to_owned(), x.to_bits())).or_default().push(value);
    }

    pub(super) fn of(&self, line: &str, x: f64) -> &[f64] {
        self.0.get(&(line.to_owned(), x.to_bits())).map_or(&[], Vec::as_slice)
    }

    /// One line over the other at `x`, pair by pair.
    pub(super) fn ratio(&self, x: f64, ours: &str, theirs: &str) -> Option<Distribution> {
        paired_ratio(self.of(ours, x), self.of(theirs, x))
    }

    pub(super) fn median(&self, line: &str, x: f64) -> Option<f64> {
        Distribution::of(self.of(line, x).iter().copied()).map(|spread| spread.median)
    }

    /// A bar for each candidate that was measured at `x`.
    pub(super) fn bars(&self, candidates: &[Candidate], x: f64) -> Vec<Line> {
        self.lines(candidates, &[x])
            .into_iter()
            .map(|mut line| {
                line.points.iter_mut().for_each(|point| point.x = 0.0);
                line
            })
            .collect()
    }

    pub(super) fn lines(&self, candidates: &[Candidate], places: &[f64]) -> Vec<Line> {
        let mut lines = Vec::new();
        for Candidate { name, role, .. } in candidates {
            let points: Vec<_> = places
                .iter()
                .filter(|&&x| !self.of(name, x).is_empty())
                .map(|&x| {
                    let values = self.of(name, x);
                    let spread = Distribution::of(values.iter().copied());
                    let void = values.iter().filter(|value| !value.is_finite()).count();
                    Point { x, spread, void, remark: None }
                })
                .collect();
            if !points.is_empty() {
                lines.push(Line { name: (*name).to_owned(), role: *role, points });
            }
        }
        lines
    }
}

/// Measures `candidate` once, and keeps its row.
pub(super) fn once(
    context: &mut Context,
    candidate: &Candidate,
    x: f64,
    repeat: usize,
    load: &Load,
    more: &[&str],
) -> Result<Option<ReceiveOutcome>> {
    let seconds = 2.5 + load.rate.map_or(1e6, |rate| rate as f64).recip() * load.messages as f64;
    let name = candidate.name;
    let seen = context.attempt(name, x, repeat, seconds, |_| {
        Testbed::build()?.measure(&candidate.reader, load, more)
    })?;
    let Some(seen) = seen else { return Ok(None) };
    if let Some(why) = &seen.void {
        context.void(name, x, repeat, why);
    }
    let void = seen.void.clone().unwrap_or_default();
    let cells = [
        name.to_owned(),
        x.to_string(),
        repeat.to_string(),
        seen.sent.frames.to_string(),
        seen.messages.to_string(),
        seen.lost.to_string(),
        format!("{:.6}", seen.sent.seconds),
        format!("{:.6}", seen.cpu),
        seen.calls.map(|calls| calls.to_string()).unwrap_or_default(),
        void,
    ];
    let columns = [
        "line",
        "x",
        "repeat",
        "sent",
        "received",
        "lost",
        "seconds",
        "cpu_seconds",
        "calls",
        "void",
    ];
    context.row("raw", &columns, cells)?;
    Ok(Some(seen))
}
