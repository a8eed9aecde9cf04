//! How a capture ends, and what it leaves behind.

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use linerate_pcapfile::Reader;
use linerate_testkit::{Process, root_or_skip, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::support::{Cable, everybody_accepts, folder, numbers, write_mixed};
use crate::LINERATE;

#[test]
fn an_interface_that_disappears_ends_the_capture_with_everything_in_the_file() {
    root_or_skip!();
    for source in ["packet", "xdp --take-over"] {
        let mut cable = Cable::new();
        let folder = folder();
        let path = folder.path().join("gone.pcapng");
        let file = path.display();
        let capture = cable.capture(&format!("--source {source} -w {file} -B 16384 udp"));
        cable.send(500, 64);
        std::thread::sleep(Duration::from_millis(200));
        cable.veth.take().unwrap().delete().unwrap();
        let (status, _, printed) = capture.wait();
        assert_eq!(status.code(), Some(1), "{source}: {printed}");
        assert!(printed.contains("gone"), "{source}: {printed}");
        assert_eq!(numbers(&path), (0..500).collect::<Vec<_>>(), "{source}: {printed}");
        everybody_accepts(&path);
    }
}

#[test]
fn an_interface_that_goes_down_is_waited_for() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let path = folder.path().join("down.pcapng");
    let mut capture = cable.capture(&format!("--source packet -w {} udp", path.display()));
    cable.send(10, 64);
    cable.veth().b.down().unwrap();
    capture.until("went down");
    cable.veth().b.up().unwrap();
    // The near end forgets its neighbour when the carrier goes.
    let neighbour = cable.veth().b.mac();
    cable.veth().a.add_neighbour("10.9.0.2".parse().unwrap(), neighbour).unwrap();
    cable.wait_until_it_carries();
    cable.send(10, 64);
    capture.until("up again");
    let (status, _, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert_eq!(numbers(&path).len(), 20, "{printed}");
}

#[test]
fn a_ctrl_c_under_load_leaves_no_frame_without_an_account() {
    root_or_skip!();
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    for source in [
        "xdp --take-over --xdp-delivery ringbuf",
        "xdp --take-over --xdp-delivery af-xdp",
        "xdp --take-over --xdp-delivery af-xdp -Z nobody",
        "tee",
    ] {
        // A buffer that holds all, and one that overflows where it can be made so small.
        for buffer in [65_536, 64] {
            let what = format!("{source} -B {buffer}");
            let cable = Cable::new();
            let folder = folder();
            chown(folder.path(), Some(nobody.uid.as_raw()), None).unwrap();
            let path = folder.path().join("c.pcapng");
            // Somebody listens: an answer that the port is closed would be traffic, too.
            let listener = cable.far.run(|| UdpSocket::bind("10.9.0.2:5000").unwrap()).unwrap();
            let capture =
                cable.capture(&format!("--source {what} -w {} --json udp", path.display()));
            let (status, json, printed) = std::thread::scope(|scope| {
                scope.spawn(|| cable.send(60_000, 64));
                std::thread::sleep(Duration::from_millis(200));
                capture.interrupt()
            });
            assert!(status.success(), "{what}: {printed}");
            let count = |value: &Value| value.as_u64().unwrap();
            let (captured, dropped) = (count(&json["captured"]), count(&json["dropped"]["total"]));
            let numbers = numbers(&path);
            assert_eq!(numbers.len() as u64, captured, "{what}: {printed}");
            assert_eq!(count(&json["received"]), captured + dropped, "{what}: {json}");
            assert!(captured > 0 && numbers.is_sorted_by(|a, b| a < b), "{what}: {printed}");
            let (arrived, stack) = (cable.received(), packets(&cable));
            assert!(stack > 0, "{what}: all had come before the interrupt");
            let taken = if source == "tee" { 0 } else { captured + dropped };
            assert_eq!(arrived, taken + stack, "{what}: {json}");
            drop(listener);
        }
    }
}

/// IPv4 packets that the stack of the far host has received.
fn packets(cable: &Cable) -> u64 {
    cable.far.snmp_counter("Ip", "InReceives").unwrap()
}

#[test]
fn signals_print_the_counts_and_flush_the_file() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let path = folder.path().join("usr.pcapng");
    let mut capture = cable.capture(&format!("-w {} udp", path.display()));
    cable.send(50, 64);
    std::thread::sleep(Duration::from_millis(300));
    capture.signal(Signal::SIGUSR1);
    capture.until("50 packets captured");
    capture.until("0 packets dropped by kernel");
    capture.signal(Signal::SIGUSR2);
    wait_for("50 packets in the file", || numbers(&path).len() >= 50);
    assert!(capture.interrupt().0.success());
}

#[test]
fn nothing_stays_attached_after_a_kill() {
    root_or_skip!();
    for source in ["xdp --take-over", "tee"] {
        let cable = Cable::new();
        let capture = cable.capture(&format!("--source {source} --discard -B 8192"));
        assert!(cable.veth().b.has_xdp().unwrap(), "{source}");
        capture.signal(Signal::SIGKILL);
        capture.wait();
        wait_for(&format!("{source} to be gone"), || !cable.veth().b.has_xdp().unwrap());
        let again = cable.capture(&format!("--source {source} --discard -B 8192"));
        assert!(again.interrupt().0.success());
    }
}

#[test]
fn a_pipe_feeds_another_program_and_may_be_closed() {
    root_or_skip!();
    let cable = Cable::new();
    let mut command = cable.far.command(LINERATE);
    command.args(["capture", "-i", "far", "-w", "-", "-U", "udp"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    let mut capture = Process::from(child);
    capture.until("listening on");
    let reading = std::thread::spawn(move || {
        let mut reader = Reader::from_stream("pipe", Box::new(stdout)).unwrap();
        for _ in 0..20 {
            assert!(reader.next().unwrap().is_some());
        }
    });
    cable.send(20, 64);
    reading.join().unwrap();
    // The pipe is closed now: the next packet ends the capture, and is no failure of a disk.
    cable.send(20, 64);
    let (status, _, printed) = capture.wait();
    assert!(status.success(), "{printed}");
    assert!(printed.contains("lost by cause: pipe closed "), "{printed}");
    assert!(
        printed.contains("not written: the reader of the pipe") && !printed.contains("disk"),
        "{printed}"
    );
}

#[test]
fn a_reader_who_leaves_a_file_half_read_is_no_failure() {
    let folder = folder();
    let (input, pipe) = (folder.path().join("in.pcap"), folder.path().join("pipe"));
    write_mixed(&input);
    let sample = std::fs::read(&input).unwrap();
    // More than a pipe holds.
    std::fs::write(&input, [&sample[..24], &sample[24..].repeat(100)].concat()).unwrap();
    let mut command = Command::new(LINERATE);
    command.args(["capture", "--json", "-r"]).arg(&input);
    let child = waiting_for_a_reader(command, &pipe);
    let mut head = [0; 100];
    std::fs::File::open(&pipe).unwrap().read_exact(&mut head).unwrap();
    let ended = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && printed.contains("the reader of the pipe had gone"),
        "{printed}"
    );
    let json: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    let count = |name: &str| json["dropped"][name].as_u64().unwrap();
    assert!(count("pipe_closed") > 0 && count("disk") == 0, "{json}");
    assert_eq!(count("total"), count("pipe_closed"), "{json}");
    // Every packet that was read is in the pipe, or is counted.
    let captured = json["captured"].as_u64().unwrap();
    assert_eq!(json["received"].as_u64().unwrap(), captured + count("pipe_closed"), "{json}");
}

/// Starts `linerate` with these arguments, which leave it waiting for a reader of `pipe`.
fn waiting_for_a_reader(mut command: Command, pipe: &Path) -> Child {
    nix::unistd::mkfifo(pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    command.arg("-w").arg(pipe).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // It has taken its signals before it comes to the pipe.
    let caught = |status: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = u64::from_str_radix(line.unwrap_or("0").trim(), 16).unwrap();
        mask >> (Signal::SIGUSR2 as i32 - 1) & 1 == 1
    };
    let status = format!("/proc/{}/status", child.id());
    wait_for("its signals", || caught(&std::fs::read_to_string(&status).unwrap()));
    std::thread::sleep(Duration::from_millis(300));
    child
}

#[test]
fn a_pipe_that_nobody_reads_is_left_at_the_first_signal() {
    let folder = folder();
    let input = folder.path().join("in.pcap");
    write_mixed(&input);
    let mut command = Command::new(LINERATE);
    command.args(["capture", "-r"]).arg(&input);
    let child = waiting_for_a_reader(command, &folder.path().join("pipe"));
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("no process opened this pipe") && printed.contains("/pipe"),
        "{printed}"
    );
}

#[test]
fn a_pipe_whose_reader_comes_late_gets_everything() {
    let folder = folder();
    let (input, pipe) = (folder.path().join("in.pcap"), folder.path().join("pipe"));
    write_mixed(&input);
    let mut command = Command::new(LINERATE);
    command.args(["capture", "--format", "pcap", "-r"]).arg(&input);
    let child = waiting_for_a_reader(command, &pipe);
    let got = std::fs::read(&pipe).unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(got, std::fs::read(&input).unwrap());
}

#[test]
fn a_capture_under_nohup_outlives_its_terminal() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let path = folder.path().join("nohup.pcapng");
    let mut command = cable.far.command("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", LINERATE, "capture", "-i", "far", "-w"]);
    command.arg(&path).arg("udp").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut printed = String::new();
    while !printed.contains("listening on") {
        assert_ne!(errors.read_line(&mut printed).unwrap(), 0, "it ended at once: {printed}");
    }
    // What a closing terminal does: it sends SIGHUP, and stops reading standard error.
    drop(errors);
    let id = Pid::from_raw(child.id() as i32);
    kill(id, Signal::SIGHUP).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    kill(id, Signal::SIGUSR1).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    cable.send(20, 64);
    kill(id, Signal::SIGINT).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(numbers(&path), (0..20).collect::<Vec<_>>());
}
