//! `linerate lab kernel`: what `make test-kernel` found in its virtual machine, as a run of the report.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use jiff::Zoned;
use serde::Deserialize;

use crate::report::distribution::Distribution;
use crate::report::environment::Environment;
use crate::report::store::RunFolder;
use crate::report::summary::{Axis, Chart, Claim, Line, Point, Role, Summary};

/// What `scripts/test-kernel` writes.
#[derive(Debug, Deserialize)]
struct KernelResults {
    kernel: String,
    commit: String,
    rings: Vec<Ring>,
    messages: Vec<Messages>,
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// The rings of a socket of one kind of memory, mapped and read.
#[derive(Debug, Deserialize)]
struct Ring {
    memory: String,
    mebibytes: u64,
    faults: u64,
    small: u64,
    huge: u64,
    table_kibibytes: u64,
}

/// Instructions a message, with so many headers.
#[derive(Debug, Deserialize)]
struct Messages {
    headers: u32,
    stock: f64,
    remembered: f64,
    send: f64,
}

/// Stores what is in `folder` (`test.json`, and `count.json` if there is one) as a run under `out`.
pub(crate) fn run(folder: &Path, out: &Path) -> Result<(Summary, PathBuf)> {
    let (began, now) = (Instant::now(), Zoned::now());
    let Some(tests) = read(&folder.join("test.json"))? else {
        bail!(
            "{}: no test.json in it; `make test-kernel` in a checkout of Linerate makes one, in \
             target/kernel/6.1",
            folder.display()
        );
    };
    let counts = read(&folder.join("count.json"))?;
    let environment = Environment::gather();
    let mut notes = vec![format!(
        "Linux {} with the patches of kernel/ (commit {}) in a virtual machine without hardware \
         virtualization: pages and instructions are counts, and no times.",
        tests.kernel, tests.commit
    )];
    let mut charts = rings(&tests.rings);
    let mut claims = vec![passed(&tests)];
    claims.extend(["transhuge", "hugetlb"].map(|memory| huge(memory, &tests.rings)));
    if let Some(counts) = counts {
        charts.push(instructions(&counts.messages));
        claims.extend(counts.messages.iter().map(fewer));
        if counts.commit != tests.commit {
            notes.push(format!("Instructions were counted at commit {}.", counts.commit));
        }
    } else {
        notes.push("No instructions: `scripts/test-kernel count` counts them.".into());
    }
    let summary = Summary {
        experiment: "kernel".into(),
        title: "The kernel's patches".into(),
        about: "make test-kernel: rings of 8 MiB of each kind of memory, mapped by a program that reads \
                every page: page faults, entries and page tables. scripts/test-kernel count: \
                instructions of recvmmsg() for a message of 64 bytes with name and control buffer, \
                without remember_mmsghdr() and with it."
            .into(),
        started: now.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        seconds: began.elapsed().as_secs_f64(),
        quick: false,
        environment,
        charts,
        claims,
        notes,
        void: Vec::new(),
    };
    let date = now.strftime("%Y-%m-%d").to_string();
    let store = RunFolder::create(out, &date, &summary.environment.host, &summary.experiment)?;
    store.write_summary(&summary)?;
    Ok((summary, store.folder().to_owned()))
}

fn read(path: &Path) -> Result<Option<KernelResults>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let found = serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is not what scripts/test-kernel writes of a machine that came to its end",
            path.display()
        )
    })?;
    Ok(Some(found))
}

fn passed(found: &KernelResults) -> Claim {
    let KernelResults { passed, failed, skipped, .. } = found;
    let figure = format!("{passed} passed, {failed} failed, {skipped} skipped");
    Claim::new("tests of the patches", figure, "0 failed", *failed == 0 && *passed > 0)
}

fn huge(memory: &str, rings: &[Ring]) -> Claim {
    let claim = format!("pages of the user's mapping, {memory}");
    let bound = "2 MiB, all";
    match rings.iter().find(|ring| ring.memory == memory) {
        Some(ring) => {
            let figure = format!("{} of 2 MiB, {} of 4 KiB", ring.huge, ring.small);
            Claim::new(&claim, figure, bound, ring.small == 0 && ring.huge * 2 == ring.mebibytes)
        }
        None => Claim::open(&claim, "was not tested", bound),
    }
}

/// Fewer instructions from eight headers on, and hardly more below.
fn fewer(messages: &Messages) -> Claim {
    let Messages { headers, stock, remembered, .. } = messages;
    let ratio = remembered / stock;
    let (bound, holds) =
        if *headers < 8 { ("at most 1.03", ratio <= 1.03) } else { ("below 1", ratio < 1.0) };
    let claim = format!("instructions a message, {headers} headers: remembered over stock");
    Claim::new(&claim, format!("{ratio:.3} ({remembered} of {stock})"), bound, holds)
}

fn rings(rings: &[Ring]) -> Vec<Chart> {
    let chart =
        |id: &str, title: &str, label: &str, unit: &str, value: &dyn Fn(&Ring) -> u64| Chart {
            id: id.into(),
            title: title.into(),
            caption: "Shorter is better.".into(),
            x: None,
            y: Axis::linear(label, unit),
            lines: rings
                .iter()
                .map(|ring| {
                    let role = if ring.memory == "any" { Role::Peer } else { Role::Ours };
                    line(&ring.memory, role, vec![point(0.0, value(ring) as f64)])
                })
                .collect(),
        };
    vec![
        chart("faults", "Page faults of a mapping of 8 MiB", "faults", "", &|ring| ring.faults),
        chart("small", "Its page-table entries of 4 KiB", "entries", "", &|ring| ring.small),
        chart("huge", "Its page-table entries of 2 MiB", "entries", "", &|ring| ring.huge),
        chart("tables", "Its page tables", "memory", "KiB", &|ring| ring.table_kibibytes),
    ]
}

fn instructions(messages: &[Messages]) -> Chart {
    let points = |value: &dyn Fn(&Messages) -> f64| -> Vec<Point> {
        messages.iter().map(|one| point(f64::from(one.headers), value(one))).collect()
    };
    Chart::lines(
        "instructions",
        "Instructions of recvmmsg() for a message of 64 bytes",
        "Lower is better. To send one, and have it put into the queue, is what it costs \
                  the receiver.",
        Axis::logarithmic("headers", ""),
        Axis::linear("instructions", "a message"),
        vec![
            line("stock", Role::Peer, points(&|one| one.stock)),
            line("remembered", Role::Ours, points(&|one| one.remembered)),
            line("sending", Role::Limit, points(&|one| one.send)),
        ],
    )
}

fn line(name: &str, role: Role, points: Vec<Point>) -> Line {
    Line { name: name.into(), role, points }
}

fn point(x: f64, value: f64) -> Point {
    Point { x, spread: Distribution::of([value]), void: 0, remark: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TESTS: &str = r#"{"kernel": "6.1.0", "commit": "abc",
        "rings": [
            {"memory": "any", "mebibytes": 8, "faults": 1, "small": 2048, "huge": 0, "table_kibibytes": 20},
            {"memory": "transhuge", "mebibytes": 8, "faults": 5, "small": 0, "huge": 4, "table_kibibytes": 4}
        ], "messages": [], "passed": 70, "failed": 0, "skipped": 0}"#;
    const COUNTS: &str = r#"{"kernel": "6.1.0", "commit": "abd", "rings": [],
        "messages": [
            {"headers": 1, "stock": 100, "remembered": 102, "send": 900},
            {"headers": 8, "stock": 100, "remembered": 100, "send": 900}
        ], "passed": 1, "failed": 0, "skipped": 0}"#;

    #[test]
    fn what_was_found_is_judged_and_drawn() {
        let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let error = run(folder.path(), out.path()).unwrap_err().to_string();
        assert!(error.contains("make test-kernel"), "{error}");

        fs::write(folder.path().join("test.json"), TESTS).unwrap();
        let (summary, _) = run(folder.path(), out.path()).unwrap();
        let verdicts = |summary: &Summary| -> Vec<&'static str> {
            summary.claims.iter().map(Claim::verdict).collect()
        };
        assert_eq!(verdicts(&summary), ["yes", "yes", "open"]);
        assert_eq!(summary.charts.len(), 4);

        fs::write(folder.path().join("count.json"), COUNTS).unwrap();
        let (summary, stored) = run(folder.path(), out.path()).unwrap();
        assert_eq!(verdicts(&summary), ["yes", "yes", "open", "yes", "no"]);
        assert!(summary.notes.iter().any(|note| note.contains("abd")), "{:?}", summary.notes);
        let page = crate::report::page(&crate::report::store::summaries(&stored).unwrap());
        assert!(page.contains("Its page-table entries of 4 KiB") && page.contains("2048"));
    }

    #[test]
    fn a_machine_that_did_not_end_is_no_report() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("test.json"), "{\"kernel\": \"6.1.0\", ").unwrap();
        let error = run(folder.path(), folder.path()).unwrap_err().to_string();
        assert!(error.contains("came to its end"), "{error}");
    }
}
