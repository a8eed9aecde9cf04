//! The readers of messages that are compared.

use anyhow::Result;

use super::messages::{Reader, ReceiveOutcome};
use super::testbed::{Load, Testbed};
use crate::experiments::context::Context;
use crate::peers::quinn;
use crate::report::summary::Role;

/// The backends of `linerate receive`.
pub(super) const BACKENDS: [&str; 4] = ["recvmmsg", "gro", "uring", "xdp"];

pub(super) const QUINN: &str = "quinn-udp";

/// A reader and its line in a chart.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) name: &'static str,
    pub(super) role: Role,
    pub(super) reader: Reader,
}

/// All readers that can be measured here, and notes on the others. In a dry run all can.
pub(super) fn candidates(context: &mut Context, rivals: bool) -> Vec<Candidate> {
    let ours = |name| Candidate { name, role: Role::Ours, reader: Reader::Linerate(name) };
    let mut all: Vec<_> = BACKENDS.iter().map(|&name| ours(name)).chain([ours("auto")]).collect();
    // What a careful program does today.
    all[0].role = Role::Peer;
    if !rivals {
        return all;
    }
    all.push(Candidate { name: "plain AF_XDP loop", role: Role::Limit, reader: Reader::XdpLoop });
    let only = &context.options.only;
    if !["1", "64", "0"].iter().any(|x| only.matches(&format!("{QUINN} at {x}"))) {
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

pub(super) fn lines(candidates: &[Candidate]) -> Vec<(String, Role)> {
    candidates.iter().map(|one| (one.name.to_owned(), one.role)).collect()
}

/// A value of a measurement, where that counts.
pub(super) fn counted(one: &ReceiveOutcome, value: impl Fn(&ReceiveOutcome) -> f64) -> f64 {
    if one.void.is_none() { value(one) } else { f64::NAN }
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
    let seen = context.try_measure(name, x, repeat, seconds, |_| {
        Testbed::build()?.measure(&candidate.reader, load, more)
    })?;
    let Some(seen) = seen else { return Ok(None) };
    if let Some(why) = &seen.void {
        context.record_void(name, x, repeat, why);
    }
    let void = seen.void.clone().unwrap_or_default();
    let cells = [
        ("sent", seen.sent.frames.to_string()),
        ("received", seen.messages.to_string()),
        ("lost", seen.lost.to_string()),
        ("seconds", format!("{:.6}", seen.sent.seconds)),
        ("cpu_seconds", format!("{:.6}", seen.cpu)),
        ("calls", seen.calls.map(|calls| calls.to_string()).unwrap_or_default()),
        ("void", void),
    ];
    context.row("raw", (name, x, repeat), &cells)?;
    Ok(Some(seen))
}
