use super::*;

#[path = "../../../linerate-bpf/tests/it/filter/corpus.rs"]
#[allow(dead_code, reason = "shared with the filter tests, which use more of it")]
mod corpus;

use std::process::Command;

/// tcpdump's lines without what it adds below them.
fn tcpdump(frames: &[(Vec<u8>, u32)], options: &[&str]) -> Option<Vec<String>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = Vec::new();
    let mut word = |number: u32| bytes.extend(number.to_le_bytes());
    [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65535, 1].into_iter().for_each(&mut word);
    for (index, (frame, wire_len)) in frames.iter().enumerate() {
        let time = time(index);
        let mut word = |number: u32| bytes.extend(number.to_le_bytes());
        let header = [time.seconds() as u32, time.subsecond_nanos(), frame.len() as u32, *wire_len];
        header.into_iter().for_each(&mut word);
        bytes.extend(frame);
    }
    std::fs::write(file.path(), bytes).unwrap();
    let mut command = Command::new("tcpdump");
    command.env("TZ", "UTC").arg("-n").args(options).arg("-r").arg(file.path());
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| !line.starts_with('\t')).map(str::to_owned);
    Some(lines.collect())
}

fn time(index: usize) -> Timestamp {
    Timestamp((1_700_000_000 + index as u64) * 1_000_000_000 + index as u64 * 1_234_567)
}

fn ours(frames: &[(Vec<u8>, u32)], nanoseconds: bool) -> Vec<String> {
    let mut printer = Printer::with_zone(1, nanoseconds, TimeZone::UTC);
    let mut lines = String::new();
    for (index, (frame, wire_len)) in frames.iter().enumerate() {
        printer.print(&mut lines, Some(time(index)), frame, *wire_len);
    }
    lines.lines().map(str::to_owned).collect()
}

/// A line without the flags of TCP, as with `-q`; the flags.
fn without_flags(line: &str) -> (&str, Option<&str>) {
    match line.strip_suffix(']').and_then(|line| line.rsplit_once(" [")) {
        Some((start, flags)) if start.contains("tcp ") && !flags.contains(' ') => {
            (start, Some(flags))
        }
        _ => (line, None),
    }
}

/// What we name by its number where tcpdump may have a printer for it.
fn is_other_protocol(line: &str) -> bool {
    let transport = line.contains(":  ip-proto-") && !line.contains(" ip-proto-255 ");
    transport || line.contains(", ethertype 0x") || line.contains(", LLC, length ")
}

#[test]
fn prints_what_tcpdump_prints() {
    let mut frames = Vec::new();
    for (index, frame) in corpus::whole(10).into_iter().enumerate() {
        let length = frame.len();
        frames.push((frame.clone(), length as u32));
        let step = if index % 10 == 0 { 1 } else { 9 };
        for cut in (1 + index % step..length.min(100)).step_by(step) {
            frames.push((frame[..cut].to_vec(), cut as u32));
            frames.push((frame[..cut].to_vec(), length as u32));
        }
    }
    let (Some(expected), Some(in_full)) = (tcpdump(&frames, &["-q"]), tcpdump(&frames, &["-S"]))
    else {
        linerate_testkit::skip!("needs tcpdump");
    };
    let ours = ours(&frames, false);
    assert_eq!((ours.len(), ours.len()), (expected.len(), in_full.len()));
    let (mut same, mut tcp) = (0, 0);
    let lines = ours.iter().zip(&expected).zip(&in_full);
    for (((ours, expected), in_full), (frame, wire_len)) in lines.zip(&frames) {
        let (ours, flags) = without_flags(ours);
        if let (Some(flags), Some((_, rest))) = (flags, in_full.split_once("Flags [")) {
            assert_eq!(Some(flags), rest.split(']').next(), "{in_full}");
            tcp += 1;
        }
        // Behind the time, which has 16 characters.
        let line = &ours[16..];
        let allowed = is_other_protocol(line) || line.contains(" [|");
        if !allowed {
            assert_eq!(ours, expected, "{wire_len} bytes, {frame:02x?}");
            same += 1;
        }
    }
    assert!(tcp > 50, "{tcp} lines with flags");
    assert!(same > 1000, "{same} of {} lines were compared", ours.len());
}

#[test]
fn prints_nine_digits_when_asked() {
    let frames: Vec<_> = corpus::whole(1000)
        .into_iter()
        .take(20)
        .map(|frame| (frame.len() as u32, frame))
        .map(|(length, frame)| (frame, length))
        .collect();
    let Some(expected) = tcpdump(&frames, &["-q", "--time-stamp-precision=nano"]) else {
        linerate_testkit::skip!("needs tcpdump");
    };
    let ours = ours(&frames, true);
    let ours: Vec<_> = ours.iter().map(|line| without_flags(line).0).collect();
    assert_eq!(ours, expected);
}

#[test]
fn prints_local_time() {
    let zone = TimeZone::fixed(jiff::tz::offset(-5));
    let mut printer = Printer::with_zone(RAW_IP, false, zone);
    let mut line = String::new();
    let packet = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 2, 0, 0, 10, 0, 0, 1, 224, 0, 0, 1];
    printer.print(&mut line, Some(Timestamp(3_600_000_000_000)), &packet, 20);
    assert_eq!(line, "20:00:00.000000 IP 10.0.0.1 > 224.0.0.1: igmp\n");
}
