//! `linerate replay` as a user runs it.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use linerate_testkit::{Process, root_or_skip, skip, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::LINERATE;
use crate::capture::support::Cable;

fn replay(cable: &Cable, file: &Path, arguments: &str) -> Output {
    let mut command = cable.near.command(LINERATE);
    command.args(["replay", "-i", "near"]).arg(file);
    command.args(arguments.split_whitespace()).output().unwrap()
}

/// A classic pcap file (the format has no simpler author than these few lines) of `count` frames of
/// growing length, one every `gap` microseconds.
fn write_pcap(path: &Path, count: u32, gap: u32, linktype: u32) -> Vec<Vec<u8>> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, linktype] {
        file.extend_from_slice(&u32::to_le_bytes(word));
    }
    let frames: Vec<Vec<u8>> = (0..count)
        .map(|number| {
            let mut frame = vec![number as u8; 60 + number as usize];
            frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
            frame
        })
        .collect();
    for (number, frame) in frames.iter().enumerate() {
        let time = number as u32 * gap;
        let len = frame.len() as u32;
        for word in [1_700_000_000 + time / 1_000_000, time % 1_000_000, len, len] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(frame);
    }
    std::fs::write(path, file).unwrap();
    frames
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn in_folder(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    (folder, path)
}

#[test]
fn a_speed_that_is_not_reached_is_said() {
    root_or_skip!();
    let cable = Cable::new();
    let (_folder, file) = in_folder("in.pcap");
    write_pcap(&file, 200, 1000, 1);
    let enough = replay(&cable, &file, "--json --strict");
    // A busy machine may be too slow even for that, and then says so.
    let said = String::from_utf8_lossy(&enough.stderr).contains("rate was not reached");
    assert_ne!(enough.status.success(), said, "{enough:?}");
    for (options, status) in [("", 0), ("--strict", 1)] {
        let output = replay(&cable, &file, &format!("--pps 900M --loop 1000 --json {options}"));
        let said = String::from_utf8_lossy(&output.stderr).contains("rate was not reached");
        assert!(said, "{output:?}");
        assert_eq!(output.status.code(), Some(status), "{output:?}");
    }
}

#[test]
fn what_was_not_due_before_the_end_is_not_missed() {
    root_or_skip!();
    let cable = Cable::new();
    let (_folder, file) = in_folder("in.pcap");
    write_pcap(&file, 2, 600_000_000, 1);
    let mut command = cable.near.command(LINERATE);
    command.args(["replay", "-i", "near", "--strict", "--json"]).arg(&file);
    let replay =
        Process::from(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    wait_for("the first frame", || cable.veth().b.statistics().unwrap().rx_packets > 0);
    std::thread::sleep(Duration::from_millis(100));
    replay.signal(Signal::SIGINT);
    let (status, out, printed) = replay.wait();
    assert!(status.success(), "{printed}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let counts = ["frames", "sent", "rate_reached"].map(|key| report[key].as_f64().unwrap());
    assert_eq!(counts, [1.0; 3], "{report}");
}

#[test]
fn what_nobody_else_wants_is_not_lost_by_a_capture() {
    root_or_skip!();
    let cable = Cable::new();
    let (folder, file) = in_folder("in.pcap");
    write_pcap(&file, 50, 100, 1);
    // Frames of VLANs that the host does not have.
    let frames = std::fs::read(&file).unwrap();
    let tags = frames.windows(2).enumerate().filter(|(_, two)| *two == [0x88, 0xb5]);
    let mut tagged = frames.clone();
    tags.for_each(|(at, _)| tagged[at..at + 6].copy_from_slice(&[0x81, 0, 0, 5, 0x88, 0xb5]));
    std::fs::write(&file, tagged).unwrap();
    let out = folder.path().join("out.pcapng");
    let capture = cable.capture(&format!("--source packet --json -w {}", out.display()));
    json(&replay(&cable, &file, "--json"));
    wait_for("all frames", || cable.veth().b.statistics().unwrap().rx_dropped >= 50);
    let (status, report, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert_eq!((&report["captured"], &report["dropped"]["total"]), (&50.into(), &0.into()));
}

#[test]
fn a_file_arrives_as_it_is() {
    root_or_skip!();
    let cable = Cable::new();
    let (folder, file) = in_folder("in.pcap");
    write_pcap(&file, 100, 1000, 1);
    let copy = folder.path().join("out.pcap");
    // Its default buffer has room for 32 packets in this mode.
    let Ok(tcpdump) = cable
        .far
        .command("tcpdump")
        .args(["-i", "far", "-c", "100", "--immediate-mode", "-B", "16384", "-U", "-w"])
        .arg(&copy)
        .stderr(Stdio::piped())
        .spawn()
    else {
        skip!("needs tcpdump");
    };
    let mut tcpdump = Process::from(tcpdump);
    tcpdump.until("listening on");
    let report = json(&replay(&cable, &file, "--json"));
    assert_eq!((&report["sent"], &report["accepted"]), (&100.into(), &100.into()));
    assert!(report["seconds"].as_f64().is_some_and(|seconds| seconds >= 0.099), "{report}");
    assert!(tcpdump.wait().0.success());
    assert_eq!(hex_dump(&file), hex_dump(&copy));
}

/// All bytes of all frames, without their times.
fn hex_dump(file: &Path) -> String {
    let output = Command::new("tcpdump").args(["-t", "-xx", "-r"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn loops_and_limits_at_top_speed() {
    root_or_skip!();
    let cable = Cable::new();
    let (_folder, file) = in_folder("in.pcap");
    let frames = write_pcap(&file, 20, 1_000_000, 1);
    let report = json(&replay(&cable, &file, "--topspeed --loop 10 --limit 150 --json"));
    assert_eq!((&report["sent"], &report["rounds"]), (&150.into(), &8.into()), "{report}");
    let bytes: usize = frames.iter().cycle().take(150).map(Vec::len).sum();
    assert_eq!(report["bytes"], bytes);
    wait_for("all frames", || cable.received() >= 150);
    assert_eq!(cable.received(), 150);
}

#[test]
fn endless_rounds_that_take_no_time_end_by_the_clock() {
    root_or_skip!();
    let cable = Cable::new();
    let (_folder, file) = in_folder("in.pcap");
    write_pcap(&file, 1, 0, 1);
    let report = json(&replay(&cable, &file, "--loop 0 --duration 0.2 --json"));
    let seconds = report["seconds"].as_f64().unwrap();
    assert!((0.2..5.0).contains(&seconds), "{report}");
}

#[test]
fn speeds_are_those_asked_for() {
    root_or_skip!();
    let cable = Cable::new();
    let (_folder, file) = in_folder("in.pcap");
    write_pcap(&file, 50, 10_000, 1);
    for (arguments, least) in [("--pps 500", 0.098), ("--mbps 0.4", 0.08), ("-x 5", 0.098)] {
        let report = json(&replay(&cable, &file, &format!("{arguments} --json")));
        let seconds = report["seconds"].as_f64().unwrap();
        assert!(seconds >= least, "{arguments}: {seconds}");
        assert_eq!(report["sent"], 50);
    }
}

#[test]
fn refusals_say_what_is_wrong() {
    root_or_skip!();
    let cable = Cable::new();
    let (folder, file) = in_folder("in.pcap");
    write_pcap(&file, 5, 0, 1);
    let text = folder.path().join("text");
    std::fs::write(&text, "no capture").unwrap();
    for (file, arguments, words) in [
        (&text, "", "not a capture file"),
        (&folder.path().join("missing"), "", "No such file"),
        (&file, "--pps 0", "above 0"),
        (&file, "--mbps 0", "above 0"),
        (&file, "-x 0", "above 0"),
        (&file, "--pps 1 --topspeed", "cannot be used with"),
        (&file, "--loop x", "expected a whole number"),
    ] {
        let output = replay(&cable, file, arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments}");
        assert!(complaint.contains(words), "{arguments}: {complaint}");
        assert!(complaint.matches("os error").count() <= 1, "said twice: {complaint}");
    }
}

#[test]
fn frames_over_the_mtu_are_reported() {
    root_or_skip!();
    let cable = Cable::new();
    let (_folder, file) = in_folder("in.pcap");
    write_pcap(&file, 120, 0, 1);
    cable.veth().a.set_mtu(100).unwrap();
    let output = replay(&cable, &file, "--topspeed --json --skip");
    let report = json(&output);
    // 100 bytes of packet, the Ethernet header, and room for a tag: frames of 60 to 118 bytes go.
    assert_eq!((&report["sent"], &report["too_long"]), (&59.into(), &61.into()), "{report}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("longer than 118 bytes; `ip link set dev near mtu N`"), "{said}");
}

/// A frame of a capture: its bytes, how long it was, and its time in microseconds.
type Recorded = (Vec<u8>, u32, u64);

fn pcap(linktype: u32, frames: &[Recorded]) -> Vec<u8> {
    let head = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 262_144, linktype];
    let mut file: Vec<u8> = head.iter().flat_map(|word| u32::to_le_bytes(*word)).collect();
    for (bytes, wire_len, time) in frames {
        let (seconds, rest) = (time / 1_000_000, time % 1_000_000);
        for word in [seconds as u32, rest as u32, bytes.len() as u32, *wire_len] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(bytes);
    }
    file
}

/// What must become of a capture: frames sent, too long, too short, unsupported.
type Account = [u64; 4];

/// Captures of odd sizes, times and link types.
fn odd_captures() -> Vec<(&'static str, Vec<u8>, Account)> {
    let frame = |len: usize| {
        let mut bytes = vec![7; len];
        let header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
        bytes[..len.min(14)].copy_from_slice(&header[..len.min(14)]);
        bytes
    };
    let one = |len: usize, time: u64| (frame(len), len as u32, time);
    let ip = |before: &[u8], version: u8| {
        let mut packet = vec![0; 40];
        packet[0] = version << 4 | 5;
        let bytes = [before, &packet].concat();
        let len = bytes.len() as u32;
        vec![(bytes, len, 0)]
    };
    let sizes = |sizes: &[usize]| sizes.iter().map(|len| one(*len, 0)).collect::<Vec<_>>();
    let times = |times: &[u64]| times.iter().map(|time| one(60, *time)).collect::<Vec<_>>();
    let sll = |protocol: u16| {
        [&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0], &protocol.to_be_bytes()[..]].concat()
    };
    let mut later = times(&[1_000_000, 500_000, 1_001_000]);
    later[1].1 = 9000;
    let ethernet = |frames: &[Recorded]| pcap(1, frames);
    vec![
        ("empty", ethernet(&[]), [0, 0, 0, 0]),
        ("no byte", ethernet(&[(vec![], 0, 0)]), [0, 0, 1, 0]),
        ("runts", ethernet(&sizes(&[1, 13, 14, 59])), [2, 0, 2, 0]),
        ("around the MTU", ethernet(&sizes(&[1514, 1518, 1519, 9018])), [2, 2, 0, 0]),
        ("super-packet", ethernet(&sizes(&[60, 65_549])), [1, 1, 0, 0]),
        ("BIG TCP", ethernet(&sizes(&[200_000, 60])), [1, 1, 0, 0]),
        ("cut", ethernet(&[(frame(60), 1514, 0), (frame(9), 60, 0)]), [1, 0, 1, 0]),
        ("back in time, and cut", ethernet(&later), [3, 0, 0, 0]),
        ("before 1970", ethernet(&times(&[4_294_967_295_000_000, 0, 5])), [3, 0, 0, 0]),
        ("all at once", ethernet(&times(&[9; 50])), [50, 0, 0, 0]),
        ("SLL", pcap(113, &ip(&sll(0x0800), 4)), [1, 0, 0, 0]),
        ("SLL with LLC", pcap(113, &ip(&sll(4), 4)), [0, 0, 0, 1]),
        ("SLL cut", pcap(113, &[(vec![0; 15], 60, 0)]), [0, 0, 0, 1]),
        ("SLL2", pcap(276, &ip(&[&[0x86, 0xdd], &[0; 18][..]].concat(), 6)), [1, 0, 0, 0]),
        ("raw IP of both versions", pcap(101, &[ip(&[], 4), ip(&[], 6)].concat()), [2, 0, 0, 0]),
        ("raw, but not IP", pcap(101, &ip(&[], 9)), [0, 0, 0, 1]),
        ("raw IP over the MTU", pcap(228, &[(vec![0x45; 1505], 1505, 0)]), [0, 1, 0, 0]),
        ("BSD loopback", pcap(0, &[ip(&[24, 0, 0, 0], 6), ip(&[9; 4], 4)].concat()), [1, 0, 0, 1]),
        ("OpenBSD loopback", pcap(108, &ip(&[0, 0, 0, 2], 4)), [1, 0, 0, 0]),
        ("802.11", pcap(105, &sizes(&[60, 60])), [0, 0, 0, 2]),
    ]
}

#[test]
fn every_frame_of_odd_captures_is_sent_or_counted_and_the_status_tells() {
    root_or_skip!();
    let cable = Cable::new();
    let (_folder, file) = in_folder("odd.pcap");
    let captures = odd_captures();
    assert_eq!(captures.len(), 20);
    for (name, bytes, account) in captures {
        std::fs::write(&file, bytes).unwrap();
        // Times of these files are odd, too.
        for options in ["--topspeed", "-x 1000000000"] {
            let output = replay(&cable, &file, &format!("{options} --json"));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let counts = ["sent", "too_long", "too_short", "unsupported"];
            let counts = counts.map(|key| report[key].as_u64().unwrap());
            assert_eq!(counts, account, "{name} {options}: {report}");
            assert_eq!(report["frames"], account.iter().sum::<u64>(), "{name}");
            let [sent, unsent @ ..] = account;
            let unsent: u64 = unsent.iter().sum();
            assert_eq!(output.status.code(), Some(i32::from(unsent > 0)), "{name}: {output:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(said.contains("not sent"), unsent > 0, "{name}: {said}");
            // Nothing sent is no success.
            let output = replay(&cable, &file, &format!("{options} --json --skip"));
            let fails = sent == 0 && unsent > 0;
            assert_eq!(output.status.code(), Some(i32::from(fails)), "{name}: {output:?}");
        }
    }
}

#[test]
fn what_is_too_long_for_af_xdp_alone_is_said_so() {
    root_or_skip!();
    let cable = Cable::new();
    let (_folder, file) = in_folder("in.pcap");
    cable.veth().a.set_mtu(9000).unwrap();
    cable.veth().b.set_mtu(9000).unwrap();
    std::fs::write(&file, pcap(1, &[(vec![2; 60], 60, 0), (vec![2; 8000], 8000, 0)])).unwrap();
    let output = replay(&cable, &file, "--backend xdp");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("longer than 4096 bytes; AF_XDP takes no more; --backend packet"),
        "{said}"
    );
    assert!(replay(&cable, &file, "--backend packet").status.success());
}

#[test]
fn loading_into_memory_is_shown_and_can_be_stopped() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = tempfile::tempdir().unwrap();
    let (sample, pipe) = (folder.path().join("sample.pcap"), folder.path().join("pipe"));
    write_pcap(&sample, 200, 1, 1);
    let bytes = std::fs::read(&sample).unwrap();
    // A file without an end, on its own terminal.
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let command = format!("exec {LINERATE} replay -i near --topspeed {}", pipe.display());
    let mut script = cable.near.command("script");
    script.args(["-qefc", &command, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = script.spawn() else { skip!("needs script") };
    let feed = std::thread::spawn(move || {
        let mut pipe = std::fs::File::options().write(true).open(pipe).unwrap();
        pipe.write_all(&bytes[..24]).unwrap();
        // Slowly: it is all kept.
        while pipe.write_all(&bytes[24..]).is_ok() {
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let mut screen = child.stdout.take().unwrap();
    let mut shown = String::new();
    let mut piece = [0; 4096];
    let mut read = |shown: &mut String| {
        let length = screen.read(&mut piece).unwrap_or(0);
        shown.push_str(&String::from_utf8_lossy(&piece[..length]));
        length > 0
    };
    while !shown.contains("4096 frames read into memory") {
        assert!(read(&mut shown), "{shown}");
    }
    // What Ctrl-C on the terminal sends.
    child.stdin.take().unwrap().write_all(b"\x03").unwrap();
    while read(&mut shown) {}
    assert_eq!(child.wait().unwrap().code(), Some(1), "{shown}");
    assert!(shown.contains("nothing was sent"), "{shown}");
    feed.join().unwrap();
    assert_eq!(cable.received(), 0);
}
