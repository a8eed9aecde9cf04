//! `capture-keep-free`: a disk that is full many times over.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use linerate_pcapfile::Reader;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::statvfs;

use crate::experiments::context::{Context, Experiment};
use crate::interrupt;
use crate::measure::process::{Running, count};
use crate::programs::{self, words};
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim, Line, Point, Role};
use crate::topology::pair::{Pair, RECEIVER, SENDER};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "capture-keep-free",
    title: "A part of the disk stays free",
    about: "1000-byte frames at 20,000 a second, for ten minutes (90 seconds when quick), to a capture that \
            writes files of 16 MB to a tmpfs of 1 GiB with --keep-free 10%. What is free is read every \
            millisecond. At the end every file that was kept is read.",
    run,
};

const NAME: &str = "tee";
/// Frames a second, and bytes of each.
const RATE: u64 = 20_000;
const SIZE: u32 = 1000;
/// What the capture keeps free, in percent.
const KEPT_FREE: f64 = 10.0;

/// What came of it.
struct Outcome {
    /// What was free, in percent, every second: the least of it.
    free: Vec<f64>,
    sent: u64,
    captured: u64,
    deleted: u64,
    /// Frames in the kept files, and the files.
    frames: u64,
    files: usize,
    /// Files that are not whole, and why.
    broken: Vec<String>,
}

fn run(context: &mut Context) -> Result<()> {
    let seconds = context.quick_or_full(90, 600);
    if !context.is_selected(NAME, f64::from(SIZE)) {
        return Ok(());
    }
    let measured = context.try_measure(NAME, f64::from(SIZE), 1, seconds as f64 + 5.0, |pair| {
        measure(pair, seconds)
    })?;
    let Some(outcome) = measured else { return Ok(()) };
    for (second, free) in outcome.free.iter().enumerate() {
        let cells = [("second", second.to_string()), ("least_free_percent", format!("{free:.3}"))];
        context.row("free", &cells)?;
    }
    let every = outcome.free.len().div_ceil(60).max(1);
    let points = outcome.free.chunks(every).enumerate().map(|(at, free)| Point {
        x: (at * every) as f64,
        spread: Distribution::of(free.iter().copied().reduce(f64::min)),
        void: 0,
        remark: None,
    });
    let line = Line { name: NAME.into(), role: Role::Ours, points: points.collect() };
    context.charts.push(Chart::lines(
        "free",
        "Free on the disk: the least",
        "The capture keeps 10% free.",
        Axis::linear("time", "s"),
        Axis::linear("free", "%"),
        vec![line],
    ));
    context.claims.extend(claims(&outcome));
    Ok(())
}

fn claims(outcome: &Outcome) -> [Claim; 3] {
    let least = outcome.free.iter().copied().fold(f64::INFINITY, f64::min);
    let Outcome { sent, captured, deleted, frames, files, broken, .. } = outcome;
    [
        Claim::new(
            "least that was free with --keep-free 10%",
            format!("{least:.3}% over {} s, {deleted} files deleted", outcome.free.len()),
            "at least 10%",
            // A disk that never filled shows nothing.
            (KEPT_FREE..KEPT_FREE + 5.0).contains(&least) && *deleted > 0,
        ),
        Claim::new(
            "kept files that are not whole",
            format!("{} of {files}, with {frames} frames; {}", broken.len(), broken.join("; ")),
            "0",
            broken.is_empty() && *files > 0,
        ),
        Claim::new(
            "frames captured of those sent",
            format!("{captured} of {sent}"),
            "all",
            captured == sent,
        ),
    ]
}

/// A file system in memory, unmounted at the end.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount(options: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        mount(Some("tmpfs"), folder.path(), Some("tmpfs"), MsFlags::empty(), Some(options))
            .context("cannot mount a tmpfs")?;
        Ok(Self(folder))
    }

    /// What is free, in percent.
    fn free(&self) -> Result<f64> {
        let found = statvfs(self.0.path())?;
        Ok(found.blocks_available() as f64 / found.blocks() as f64 * 100.0)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

fn measure(pair: &Pair, seconds: u64) -> Result<Outcome> {
    let disk = Disk::mount("size=1g")?;
    let mut command = programs::linerate(
        &pair.receiver,
        pair.cores.consumer,
        words(&format!(
            "capture -i {RECEIVER} --source {NAME} -b filesize:16000 --keep-free {KEPT_FREE}% --json --quiet -w"
        )),
    )?;
    let mut capture = Running::start(NAME, command.arg(disk.0.path().join("r.pcapng")))?;
    pair.wait_until_listening(&mut capture)?;
    // Live frames cost a core at so low a rate.
    let (frames, mac) = (seconds * RATE, pair.cable.b.mac());
    let mut command = programs::linerate(
        &pair.sender,
        pair.cores.generator,
        words(&format!(
            "generate -i {SENDER} --backend packet --json --quiet --size {SIZE} --count {frames} --rate {RATE}pps \
             --dst-mac {mac}"
        )),
    )?;
    let sender = Running::start("linerate generate", &mut command)?;
    let (start, mut free) = (Instant::now(), Vec::new());
    while start.elapsed() < Duration::from_secs(seconds + 1) {
        let second = start.elapsed().as_secs() as usize;
        free.resize(second + 1, 100.0_f64);
        free[second] = free[second].min(disk.free()?);
        capture.check()?;
        interrupt::sleep(Duration::from_millis(1))?;
    }
    let report = sender.wait(Duration::from_secs(60))?.success()?.json()?;
    let sent = count(&report, "sent")? - count(&report, "refused")?;
    interrupt::sleep(Duration::from_secs(1))?;
    let report = capture.stop(Duration::from_secs(60))?.success()?.json()?;
    let (frames, files, broken) = read(disk.0.path())?;
    Ok(Outcome {
        free,
        sent,
        captured: count(&report, "captured")?,
        deleted: count(&report, "deleted_files")?,
        frames,
        files,
        broken,
    })
}

/// Reads all files: their frames, how many there are, and those that are not whole.
fn read(folder: &Path) -> Result<(u64, usize, Vec<String>)> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    files.sort();
    let (mut frames, mut broken) = (0, Vec::new());
    for file in &files {
        let mut read = || -> Result<()> {
            let mut reader = Reader::open(file)?;
            while let Some(record) = reader.next()? {
                anyhow::ensure!(record.frame.len() == SIZE as usize, "a frame is cut");
                frames += 1;
            }
            anyhow::ensure!(
                reader.interfaces().iter().all(|interface| interface.statistics.is_some()),
                "the statistics at the end are missing"
            );
            Ok(())
        };
        if let Err(error) = read() {
            broken.push(format!("{}: {error:#}", file.display()));
        }
    }
    Ok((frames, files.len(), broken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_never_filled_shows_nothing() {
        let outcome = |least: f64, deleted, broken: &[&str]| Outcome {
            free: vec![90.0, least],
            sent: 5,
            captured: 5,
            deleted,
            frames: 5,
            files: 1,
            broken: broken.iter().map(|&file| file.into()).collect(),
        };
        let holds = |outcome: &Outcome| claims(outcome).map(|claim| claim.holds == Some(true));
        assert_eq!(holds(&outcome(10.5, 3, &[])), [true; 3]);
        assert_eq!(holds(&outcome(9.9, 3, &["a"])), [false, false, true]);
        assert_eq!(holds(&outcome(60.0, 0, &[])), [false, true, true]);
    }
}
