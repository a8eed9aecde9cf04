//! `replay-gaps`: how well replayed frames keep the recorded gaps between them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use linerate_pcapfile::{
    Encoder, Format, InterfaceDescription, PacketOptions, Reader, Record, SectionHeader,
};
use linerate_ring::{Frame, Timestamp};
use nix::sys::signal::Signal;

use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::interrupt;
use crate::measure::process::Running;
use crate::programs::{self, words};
use crate::report::distribution::quantile;
use crate::report::summary::{Axis, Chart, Claim, Role};
use crate::topology::pair::{Pair, RECEIVER, SENDER};

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "replay-gaps",
    title: "Recorded gaps, replayed",
    about: "A file is replayed at its recorded speed into a veth pair, and a tcpdump at the other end stamps \
            what comes. The error of a gap is its distance from the recorded one. Half of the gaps are those \
            of a busy 1 Gbit/s link (1 to 12 µs), the others are longer, up to 5 ms. Drift is how much longer \
            or shorter the whole takes.",
    run,
};

const LINERATE: &str = "linerate replay";
const TCPREPLAY: &str = "tcpreplay";
/// The parts of the gaps whose error is below the figure.
const PARTS: [(f64, &str); 3] = [(0.5, "50%"), (0.9, "90%"), (0.99, "99%")];
/// The most that Linerate's error may be, as a ratio to tcpreplay's.
const MAX_RATIO: f64 = 1.5;
/// Bytes of a frame.
const X: f64 = 200.0;

/// What came of one replay.
struct Replayed {
    /// Errors of the gaps in µs, by [`PARTS`].
    errors: [f64; 3],
    /// Seconds more than recorded.
    drift: f64,
}

fn run(context: &mut Context) -> Result<()> {
    let frames = context.quick_or_full(20_000, 60_000);
    let recorded = recorded(frames);
    let seconds = *recorded.last().unwrap_or(&0) as f64 / 1e9;
    let mut lines = vec![(LINERATE.to_owned(), Role::Ours)];
    match programs::installed(TCPREPLAY) {
        true => lines.push((TCPREPLAY.to_owned(), Role::Peer)),
        false => context.notes.push(format!("skipped: {TCPREPLAY}: it is not installed")),
    }
    let file = match context.folder() {
        Some(folder) => {
            let file = folder.join("recorded.pcap");
            write(&file, &recorded)?;
            file
        }
        None => Default::default(),
    };
    let names: Vec<_> = lines.iter().map(|(name, _)| name.clone()).collect();
    let samples = Samples::collect(context, lines, &[X], |context, line, _, repeat| {
        let name = names[line].as_str();
        let replayed = context.try_measure(name, X, repeat, seconds + 3.0, |pair| {
            measure(pair, name, &file, &recorded)
        })?;
        if let Some(Replayed { errors: [p50, p90, p99], drift }) = &replayed {
            let cells = [
                ("p50_us", format!("{p50:.2}")),
                ("p90_us", format!("{p90:.2}")),
                ("p99_us", format!("{p99:.2}")),
                ("drift_us", format!("{:.1}", drift * 1e6)),
            ];
            context.row("gaps", (name, X, repeat), &cells)?;
        }
        Ok(replayed)
    })?;
    for (part, (_, percent)) in PARTS.into_iter().enumerate() {
        context.charts.push(Chart::bars(
            format!("error-{}", percent.trim_end_matches('%')),
            format!("Error of a gap: {percent} are below"),
            "Shorter is better.",
            Axis::linear("error", "µs"),
            samples.bars(X, |one| one.errors[part]),
        ));
    }
    let repeats = context.options.repeats;
    for (part, (_, percent)) in PARTS.into_iter().enumerate().skip(1) {
        let error = |name| samples.median((name, X), |one: &Replayed| one.errors[part]);
        let figures = format!(": {:.1} and {:.1} µs", error(LINERATE), error(TCPREPLAY));
        let ratio = samples.ratio((LINERATE, X), (TCPREPLAY, X), |one| one.errors[part]);
        let claim = format!("error of a gap at {percent}, over tcpreplay's");
        context.claims.push(Claim::at_most(&claim, ratio, MAX_RATIO, repeats).adding(&figures));
    }
    let drift = samples.distribution((LINERATE, X), |one| one.drift.abs() * 1e6);
    context.claims.push(Claim::at_most("drift of the whole, µs", drift, 1000.0, repeats));
    Ok(())
}

/// When each frame was recorded, in nanoseconds: the same in every run.
fn recorded(frames: usize) -> Vec<u64> {
    // Numerical Recipes' generator: any will do.
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut time = 0;
    let gap = |_| {
        time += match random(100) {
            0..50 => 1_000 + random(11_000),
            50..90 => 12_000 + random(188_000),
            90..99 => 200_000 + random(800_000),
            _ => 1_000_000 + random(4_000_000),
        };
        time
    };
    (0..frames).map(gap).collect()
}

/// Writes frames of these times, of a protocol that no host answers.
fn write(path: &Path, times: &[u64]) -> Result<()> {
    let format = Format::Pcap { nanoseconds: true };
    let encoder = Encoder { format, snaplen: 65_535, options: PacketOptions::default() };
    let interface = InterfaceDescription { linktype: 1, ..InterfaceDescription::default() };
    let mut bytes = Vec::new();
    encoder.encode_file_header(&mut bytes, &SectionHeader::default(), &[interface]);
    let mut frame = [0; X as usize];
    // Local Experimental EtherType 1 (IEEE 802), to everybody.
    frame[..6].fill(0xff);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    for time in times {
        let mut frame = Frame::new(&frame);
        frame.timestamp = Some(Timestamp(1_700_000_000_000_000_000 + time));
        encoder.encode(&mut bytes, &Record { frame, interface: 0, comment: None });
    }
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Replays the file once.
fn measure(pair: &Pair, name: &str, file: &Path, recorded: &[u64]) -> Result<Replayed> {
    let came = file.with_file_name("came.pcap");
    let mut tcpdump = pair.receiver.command_killed_with_parent("tcpdump");
    tcpdump.cpus([pair.cores.consumer]);
    tcpdump.args(words(&format!("-i {RECEIVER} -B 65536 --nano -Z root -w"))).arg(&came);
    let mut tcpdump = Running::start("tcpdump", tcpdump.args(words("ether proto 0x88b5")))?;
    pair.wait_until_listening(&mut tcpdump)?;
    let mut command = match name {
        LINERATE => programs::linerate(
            &pair.sender,
            pair.cores.generator,
            words(&format!("replay -i {SENDER} --quiet")),
        )?,
        _ => {
            let mut command = pair.sender.command_killed_with_parent(name);
            command.cpus([pair.cores.generator]).args(words(&format!("-i {SENDER}")));
            command
        }
    };
    let sender = Running::start(name, command.arg(file))?;
    sender.wait(Duration::from_secs(600))?.success()?;
    // The kernel gives tcpdump a block that is not full after a second.
    interrupt::sleep(Duration::from_millis(1500))?;
    tcpdump.signal(Signal::SIGINT)?;
    tcpdump.wait(Duration::from_secs(30))?.success()?;
    let mut reader = Reader::open(&came)?;
    let mut times = Vec::with_capacity(recorded.len());
    while let Some(record) = reader.next()? {
        times.push(record.frame.timestamp.context("a frame without a time")?.0);
    }
    ensure!(times.len() == recorded.len(), "{} of {} frames came", times.len(), recorded.len());
    Ok(compare(recorded, &times))
}

fn compare(recorded: &[u64], came: &[u64]) -> Replayed {
    let gaps = |times: &[u64]| -> Vec<i64> {
        times.windows(2).map(|pair| pair[1].cast_signed() - pair[0].cast_signed()).collect()
    };
    let of_each = gaps(recorded).into_iter().zip(gaps(came));
    let mut errors: Vec<_> = of_each.map(|(one, two)| (one - two).abs() as f64 / 1e3).collect();
    errors.sort_by(f64::total_cmp);
    let whole =
        |times: &[u64]| times.last().zip(times.first()).map_or(0, |(last, first)| last - first);
    let drift = (whole(came).cast_signed() - whole(recorded).cast_signed()) as f64 / 1e9;
    Replayed { errors: PARTS.map(|(part, _)| quantile(&errors, part)), drift }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_distances_from_the_recorded_gaps() {
        let recorded = [0, 10_000, 20_000, 30_000, 40_000];
        // All late by the same, then one later by 5 µs, which makes the next gap shorter.
        let came = [7_000, 17_000, 32_000, 37_000, 47_000];
        let Replayed { errors, drift } = compare(&recorded, &came);
        assert_eq!((errors[0], errors[2].round(), drift), (2.5, 5.0, 0.0));
        let times = super::recorded(1000);
        assert!(times.is_sorted() && times == super::recorded(1000));
    }
}
