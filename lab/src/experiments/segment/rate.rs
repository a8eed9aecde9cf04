//! `segment-rate`: what a segment costs, by its size, beside other splitters and the limits of memory.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use linerate_wire::{ip, ipv4, tcp};

use crate::experiments::context::{Context, Experiment};
use crate::experiments::samples::Samples;
use crate::helpers::splitter::{self, Method};
use crate::measure::process::Running;
use crate::peers::splitters::{self as peers, BuiltPeer};
use crate::programs;
use crate::report::distribution::Distribution;
use crate::report::summary::{Axis, Chart, Claim, Role};
use crate::topology::pair::Pair;

pub(in crate::experiments) const EXPERIMENT: Experiment = Experiment {
    name: "segment-rate",
    title: "Splitting a 64 KiB super-packet",
    about: "One TCP/IPv4 packet of close to 64 KiB is split, with checksums, into a ring of buffers, again \
            and again, on one core, by each program in turns (A B A B …). The time of a segment is the median \
            of batches of 50 packets. The limits are a bare memcpy of the payload into the same buffers, the \
            same with a second pass for the sum (our best loop) over the finished segment or over its source, \
            and copy and sum in one pass. rte_gso leaves the payload where it is; \"copied\" adds what the \
            others do. What each program makes is compared with what it should be, byte for byte.",
    run,
};

/// Ethernet, IPv4, TCP with timestamps.
const HEADERS: usize = 14 + 20 + 32;
/// The segment size that claims are about.
const MSS: u16 = 1448;

enum Splitter {
    Own(Method),
    Peer(BuiltPeer),
}

impl Splitter {
    fn name(&self) -> String {
        match self {
            Self::Own(method) => method.name(),
            Self::Peer(peer) => peer.name.into(),
        }
    }

    fn role(&self) -> Role {
        match self {
            Self::Own(method) if method.splits() => Role::Ours,
            Self::Own(_) => Role::Limit,
            Self::Peer(_) => Role::Peer,
        }
    }
}

struct Measurement {
    batches: usize,
    segments: u64,
    nanoseconds: f64,
}

/// The time of a segment of this size.
struct Time {
    mss: f64,
    nanoseconds: f64,
}

fn run(context: &mut Context) -> Result<()> {
    let sizes: &[u16] =
        context.quick_or_full(&[536, MSS, 8960], &[536, 1220, MSS, 2048, 4096, 6000, 8960]);
    let milliseconds = context.quick_or_full(50, 150);
    let folder = tempfile::tempdir().context("cannot make a folder for the peers")?;
    let splitters = splitters(context, folder.path(), sizes);
    let mut frames = Vec::new();
    for &mss in sizes {
        let frame = super_packet(mss)?;
        let path = folder.path().join(format!("frame-{mss}"));
        fs::write(&path, &frame)?;
        frames.push((path, splitter::segments(Method::OneByOne, &frame, mss)?));
    }
    let seconds = 0.3 + f64::from(milliseconds) / 1000.0;
    let lines = splitters.iter().map(|one| (one.name(), one.role())).collect();
    let xs: Vec<f64> = sizes.iter().map(|&mss| f64::from(mss)).collect();
    let times = Samples::collect(context, lines, &xs, |context, splitter, place, repeat| {
        let (splitter, mss, x) = (&splitters[splitter], sizes[place], xs[place]);
        let (path, right) = &frames[place];
        let name = splitter.name();
        let measured = context.try_measure(&name, x, repeat, seconds, |pair| {
            measure(pair, splitter, path, mss, milliseconds, right)
        })?;
        let Some(measured) = measured else { return Ok(None) };
        let cells = [
            ("batches", measured.batches.to_string()),
            ("segments", measured.segments.to_string()),
            ("ns_a_segment", format!("{:.2}", measured.nanoseconds)),
            ("gigabytes_a_second", format!("{:.3}", x / measured.nanoseconds)),
        ];
        context.row("raw", (&name, x, repeat), &cells)?;
        Ok(Some(Time { mss: x, nanoseconds: measured.nanoseconds }))
    })?;
    let x = || Axis::logarithmic("payload of a segment", "bytes");
    context.charts.extend([
        Chart::lines(
            "time",
            "Time of a segment",
            "Lower is better.",
            x(),
            Axis::linear("time", "ns a segment"),
            times.lines(|one| one.nanoseconds),
        ),
        Chart::lines(
            "rate",
            "Payload split a second",
            "Higher is better.",
            x(),
            Axis::linear("payload", "GB/s"),
            times.lines(|one| one.mss / one.nanoseconds),
        ),
    ]);
    claims(context, &splitters, &times);
    Ok(())
}

/// Linerate, the limits, and the peers that could be built; in a dry run all of them.
fn splitters(context: &mut Context, folder: &Path, sizes: &[u16]) -> Vec<Splitter> {
    let mut splitters: Vec<Splitter> = Method::all().into_iter().map(Splitter::Own).collect();
    let mut wanted = peers::NAMES.to_vec();
    wanted.retain(|name| {
        // Each is asked, as asking makes the name known.
        sizes.iter().filter(|mss| context.is_selected(name, f64::from(**mss))).count() > 0
    });
    let built = match context.folder() {
        Some(_) => {
            let built = peers::build(folder, &wanted);
            context.notes.push(peers::versions());
            built
        }
        None => {
            let planned = |&name: &&'static str| BuiltPeer {
                name,
                program: Ok(folder.to_owned()),
                last: None,
                without: 0,
            };
            wanted.iter().map(planned).collect()
        }
    };
    for peer in built {
        match &peer.program {
            Ok(_) => splitters.push(Splitter::Peer(peer)),
            Err(why) => context.notes.push(format!("skipped: {}: {why}", peer.name)),
        }
    }
    splitters
}

/// The largest packet of whole segments: an Ethernet frame of at most 65,535 bytes, as DPDK's buffers
/// hold no more.
fn super_packet(mss: u16) -> Result<Vec<u8>> {
    let mss = usize::from(mss);
    let payload = (usize::from(u16::MAX) - HEADERS) / mss * mss;
    let mut frame = vec![0; HEADERS + payload];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    for (at, byte) in frame[HEADERS..].iter_mut().enumerate() {
        *byte = (at as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()[0];
    }
    let network = ipv4::Repr {
        source: [198, 18, 0, 1].into(),
        destination: [198, 18, 0, 2].into(),
        protocol: ip::Protocol::TCP,
        payload_len: 32 + payload,
        ttl: 64,
        traffic_class: 0,
        identification: 7,
        dont_fragment: true,
    };
    network.emit(&mut frame[14..])?;
    frame[34..38].copy_from_slice(&[0x13, 0x88, 0, 80]);
    frame[46] = 0x80;
    frame[47] = (tcp::Flags::ACK.0 | tcp::Flags::PSH.0) as u8;
    frame[54..66].copy_from_slice(&[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]);
    Ok(frame)
}

fn measure(
    pair: &Pair,
    splitter: &Splitter,
    frame: &Path,
    mss: u16,
    milliseconds: u16,
    right: &[Vec<u8>],
) -> Result<Measurement> {
    let out = frame.with_extension("out");
    let common: [OsString; 5] = [
        frame.into(),
        HEADERS.to_string().into(),
        mss.to_string().into(),
        milliseconds.to_string().into(),
        out.clone().into(),
    ];
    let (mut command, without) = match splitter {
        Splitter::Own(method) => {
            let arguments: [OsString; 2] = ["split".into(), method.name().into()];
            let arguments = arguments.into_iter().chain(common);
            (programs::helper(&pair.receiver, pair.cores.consumer, arguments)?, 0)
        }
        Splitter::Peer(BuiltPeer { program, last, without, .. }) => {
            let program = program.as_ref().map_err(|why| anyhow::anyhow!("{why}"))?;
            let mut command = pair.receiver.command_killed_with_parent(program);
            // Where DPDK puts its files, which go with the folder.
            let runtime = frame.parent().unwrap_or(frame);
            command.args(common).args(*last).cpus([pair.cores.consumer]);
            command.env("RUNTIME_DIRECTORY", runtime);
            (command, *without)
        }
    };
    let name = splitter.name();
    let finished = Running::start(&name, &mut command)?.wait(Duration::from_secs(60))?.success()?;
    if splitter.role() != Role::Limit {
        compare(&fs::read(&out)?, right, without)?;
        fs::remove_file(&out)?;
    }
    read(&finished.stdout)
}

/// Whether `made` is what every splitter should make.
fn compare(made: &[u8], right: &[Vec<u8>], without: usize) -> Result<()> {
    let mut rest = made;
    for (number, right) in (1..).zip(right) {
        let segment = rest
            .split_first_chunk()
            .and_then(|(len, rest)| rest.split_at_checked(u32::from_ne_bytes(*len) as usize));
        let (segment, after) = segment.context("segments are missing")?;
        ensure!(segment == &right[without..], "segment {number} is not what it should be");
        rest = after;
    }
    ensure!(rest.is_empty(), "there are segments too many");
    Ok(())
}

fn read(printed: &str) -> Result<Measurement> {
    let mut each = Vec::new();
    let mut all = 0;
    for line in printed.lines() {
        let batch: serde_json::Value = serde_json::from_str(line)?;
        let count = |name: &str| batch[name].as_u64().context("a batch without its counts");
        let (segments, nanoseconds) = (count("segments")?, count("nanoseconds")?);
        ensure!(segments > 0, "a batch without segments");
        each.push(nanoseconds as f64 / segments as f64);
        all += segments;
    }
    let batches = each.len();
    let spread = Distribution::of(each).context("no batch was measured")?;
    Ok(Measurement { batches, segments: all, nanoseconds: spread.median })
}

fn claims(context: &mut Context, splitters: &[Splitter], times: &Samples<Time>) {
    let (x, time) = (f64::from(MSS), |one: &Time| one.nanoseconds);
    // The line of the lowest median.
    let fastest = |wanted: &dyn Fn(&Splitter) -> bool| {
        let names = splitters.iter().filter(|one| wanted(one)).map(Splitter::name);
        let known = names.map(|name| (times.median((&name, x), time), name));
        let known = known.filter(|(median, _)| median.is_finite());
        known.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
    };
    let method = |wanted: &[Method]| {
        fastest(&|one| matches!(one, Splitter::Own(method) if wanted.contains(method)))
    };
    let ours = method(&[Method::Segments]);
    let subject = format!("64 KiB to segments of {MSS} bytes with checksums: linerate");
    for (against, rival, bound) in [
        ("the fastest peer", fastest(&|one| matches!(one, Splitter::Peer(_))), 0.6),
        (
            "memcpy and a second pass, the faster of the two",
            method(&[Method::CopyThenSegment, Method::CopyThenSource]),
            0.75,
        ),
        ("memcpy", method(&[Method::Copy]), 1.5),
    ] {
        let both = ours.as_ref().zip(rival.as_ref());
        let ratio = both.and_then(|(ours, rival)| times.ratio((ours, x), (rival, x), time));
        let claim = format!("{subject} over {against}");
        let claim = Claim::at_most(&claim, ratio, bound, context.options.repeats);
        let against = rival.map(|name| format!("; against {name}")).unwrap_or_default();
        context.claims.push(claim.adding(&against));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packet_is_close_to_64_kib_and_splits_evenly() {
        for mss in [536, 1448, 8960] {
            let frame = super_packet(mss).unwrap();
            assert!(frame.len() > 55_000 && frame.len() <= 65_535);
            let segments = splitter::segments(Method::OneByOne, &frame, mss).unwrap();
            assert!(segments.iter().all(|segment| segment.len() == HEADERS + usize::from(mss)));
            for method in Method::all().into_iter().filter(|method| method.splits()) {
                assert_eq!(
                    splitter::segments(method, &frame, mss).unwrap(),
                    segments,
                    "{method:?}"
                );
            }
        }
    }

    #[test]
    fn a_peer_that_makes_something_else_is_found_out() {
        let right = [vec![1, 2, 3], vec![4, 5]];
        let file = |segments: &[&[u8]]| -> Vec<u8> {
            let lengths = segments.iter().map(|segment| (segment.len() as u32).to_ne_bytes());
            lengths.zip(segments).flat_map(|(len, segment)| [&len, *segment].concat()).collect()
        };
        compare(&file(&[&[1, 2, 3], &[4, 5]]), &right, 0).unwrap();
        compare(&file(&[&[2, 3], &[5]]), &right, 1).unwrap();
        for (wrong, why) in [
            (file(&[&[1, 2, 3]]), "missing"),
            (file(&[&[1, 2, 3], &[4, 6]]), "segment 2"),
            (file(&[&[1, 2, 3], &[4, 5], &[6]]), "too many"),
        ] {
            let error = compare(&wrong, &right, 0).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_time_is_the_median_of_the_batches() {
        let line = |nanoseconds| format!("{{\"segments\": 10, \"nanoseconds\": {nanoseconds}}}\n");
        let measured = read(&[900, 100, 200].map(line).concat()).unwrap();
        assert_eq!((measured.batches, measured.segments, measured.nanoseconds), (3, 30, 20.0));
        assert!(read("").is_err() && read("{}").is_err());
    }
}
