//! Captures beside others on one interface: who gets the frames, and what is said about it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use linerate_netns::{root_or_skip, say_skipped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Cable, folder, numbers};

/// A cable whose far end nothing uses.
fn idle() -> Cable {
    let cable = Cable::lay();
    let flushed = cable.far.command("ip").args(["addr", "flush", "dev", "far"]).status().unwrap();
    assert!(flushed.success());
    cable
}

/// Another program's capture on `far`, listening.
fn tcpdump(cable: &Cable, path: &std::path::Path) -> Option<Child> {
    let mut command = cable.far.command("tcpdump");
    command.args(["-i", "far", "-U", "-w"]).arg(path).arg("udp").stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("listening on") {
        assert_ne!(errors.read_line(&mut said).unwrap(), 0, "tcpdump: {said}");
    }
    Some(child)
}

#[test]
fn auto_leaves_the_frames_to_another_programs_capture() {
    root_or_skip!("auto_leaves_the_frames_to_another_programs_capture");
    let cable = idle();
    let folder = folder();
    let (ours, theirs) = (folder.path().join("ours.pcapng"), folder.path().join("theirs.pcap"));
    let Some(mut other) = tcpdump(&cable, &theirs) else {
        say_skipped("auto_leaves_the_frames_to_another_programs_capture", "needs tcpdump");
        return;
    };
    let capture = cable.capture(&format!("-w {} --json udp", ours.display()));
    cable.send(50, 64);
    let (status, json, said) = capture.interrupt();
    assert!(status.success(), "{said}");
    assert_eq!(json["source"], "packet", "{said}");
    assert!(said.contains(&format!("tcpdump (process {})", other.id())), "{said}");
    assert_eq!(numbers(&ours), (0..50).collect::<Vec<_>>());
    let deadline = Instant::now() + Duration::from_secs(5);
    while std::fs::metadata(&theirs).unwrap().len() < 24 + 50 * (16 + 106) {
        assert!(Instant::now() < deadline, "tcpdump lacks frames");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(Pid::from_raw(other.id() as i32), Signal::SIGINT).unwrap();
    other.wait().unwrap();
    assert_eq!(numbers(&theirs), (0..50).collect::<Vec<_>>());
    // Once it has gone, nothing else uses the interface.
    let capture = cable.capture("--discard --json udp");
    let (_, json, said) = capture.interrupt();
    assert_eq!(json["source"], "xdp", "{said}");
}
