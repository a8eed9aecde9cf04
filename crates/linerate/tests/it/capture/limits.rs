//! Limits of the system and of patience: file sizes, signals that come twice, long polls, many readers.

use std::process::Stdio;
use std::time::{Duration, Instant};

use linerate_testkit::root_or_skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::{Cable, folder, holds_the_first, listening, numbers, write_mixed};
use crate::LINERATE;

#[test]
fn a_limit_on_file_sizes_leaves_a_valid_file_and_counts_the_rest() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let path = folder.path().join("limited.pcapng");
    let mut command = cable.far.command("sh");
    // In blocks of 512 bytes.
    command.args(["-c", "ulimit -f 1024; exec \"$@\"", "sh", LINERATE, "capture", "-i", "far"]);
    command.args(["--json", "-w"]).arg(&path).arg("udp");
    let capture = listening(&mut command);
    cable.send(3000, 1000);
    // It ends without a signal, once it notices.
    let (status, out, printed) = capture.wait();
    assert_eq!(status.code(), Some(1), "{printed}");
    assert!(printed.contains("File too large") && printed.contains("ulimit -f"), "{printed}");
    holds_the_first(&path, &out);
}

/// Pages of the buffer are touched for the first time for a while; then a capture takes no more.
#[test]
fn memory_of_a_capture_does_not_grow_with_its_frames() {
    root_or_skip!();
    let cable = Cable::new();
    let pages = |pid: u32| -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
        statm.split(' ').nth(1).unwrap().parse().unwrap()
    };
    for source in ["packet", "tee", "xdp --xdp-delivery ringbuf", "xdp --xdp-delivery af-xdp"] {
        let capture = cable.capture(&format!("--source {source} -B 4096 -w /dev/null --json udp"));
        let mut rounds = vec![pages(capture.id())];
        // Less than seven bytes a frame.
        let is_flat = |rounds: &[u64]| rounds.len() > 2 && rounds.is_sorted_by(|a, b| *b <= a + 32);
        while rounds.len() < 20 && !is_flat(&rounds[rounds.len().saturating_sub(3)..]) {
            cable.send(20_000, 1000);
            rounds.push(pages(capture.id()));
        }
        let (status, out, printed) = capture.interrupt();
        assert!(status.success() && out["captured"].as_u64().unwrap() > 20_000, "{printed}");
        assert!(rounds.len() < 20, "{source}: {rounds:?} pages");
    }
}

#[test]
fn a_signal_that_comes_twice_at_once_counts_once() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    for signals in [[Signal::SIGINT; 3], [Signal::SIGTERM, Signal::SIGINT, Signal::SIGTERM]] {
        let path = folder.path().join("twice.pcapng");
        let capture = cable.capture(&format!("-w {} udp", path.display()));
        cable.send(500, 64);
        for signal in signals {
            capture.signal(signal);
            std::thread::sleep(Duration::from_millis(2));
        }
        let (status, _, printed) = capture.wait();
        assert!(
            status.success() && printed.contains("500 packets captured"),
            "{status}: {printed}"
        );
        assert_eq!(numbers(&path), (0..500).collect::<Vec<_>>(), "{printed}");
    }
}

#[test]
fn who_insists_a_second_later_is_obeyed_at_once() {
    let folder = folder();
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pipe"));
    write_mixed(&input);
    let sample = std::fs::read(&input).unwrap();
    // More than a pipe holds.
    std::fs::write(&input, [&sample[..24], &sample[24..].repeat(100)].concat()).unwrap();
    nix::unistd::mkfifo(&output, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut command = std::process::Command::new(LINERATE);
    command.args(["capture", "-r"]).arg(&input).arg("-w").arg(&output).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Somebody holds the pipe open and does not read: the program waits within a write.
    let pipe = std::fs::File::open(&output).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let id = Pid::from_raw(child.id() as i32);
    kill(id, Signal::SIGINT).unwrap();
    kill(id, Signal::SIGINT).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "the second was taken for insistence");
    std::thread::sleep(Duration::from_millis(900));
    kill(id, Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + Signal::SIGINT as i32));
    drop(pipe);
}

#[test]
fn a_reader_that_polls_for_long_still_ends() {
    root_or_skip!();
    let cable = Cable::new();
    for microseconds in ["100001", "4000000000", "-1", "soon"] {
        let output = cable.run(&format!("-i far --discard --busy-poll={microseconds}"));
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{microseconds}: {printed}");
        assert!(printed.contains("up to 100000"), "{microseconds}: {printed}");
    }
    for source in ["packet", "xdp --take-over"] {
        let capture = cable.capture(&format!("--discard --source {source} --busy-poll 100000"));
        cable.send(10, 64);
        let asked = Instant::now();
        let (status, _, printed) = capture.interrupt();
        assert!(
            status.success() && asked.elapsed() < Duration::from_secs(5),
            "{source}: {printed}"
        );
    }
}

#[test]
fn many_readers_share_one_buffer_and_end_together() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let path = folder.path().join("many.pcapng");
    let options = "--source packet --threads 65 --fanout rollover";
    let begun = Instant::now();
    let capture = cable.capture(&format!("{options} -w {} udp", path.display()));
    assert!(begun.elapsed() < Duration::from_secs(10));
    cable.send(500, 64);
    let (status, _, printed) = capture.interrupt();
    assert!(status.success() && begun.elapsed() < Duration::from_secs(20), "{printed}");
    let mut all = numbers(&path);
    all.sort_unstable();
    assert_eq!(all, (0..500).collect::<Vec<_>>(), "{printed}");
}
