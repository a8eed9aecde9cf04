//! Several captures on one interface: which of them gets the frames, and what they print.

use std::process::Stdio;

use linerate_testkit::tools::ip;
use linerate_testkit::{Process, root_or_skip, skip, wait_for};

use super::support::{Cable, folder, numbers};

/// A veth pair whose peer nothing uses.
fn idle() -> Cable {
    let cable = Cable::new();
    ip(&cable.far, "addr flush dev far");
    cable
}

/// Another program's capture on `far`, listening.
fn tcpdump(cable: &Cable, path: &std::path::Path) -> Option<Process> {
    let mut command = cable.far.command("tcpdump");
    command.args(["-i", "far", "-U", "-w"]).arg(path).arg("udp").stderr(Stdio::piped());
    let mut tcpdump = Process::from(command.spawn().ok()?);
    tcpdump.until("listening on");
    Some(tcpdump)
}

#[test]
fn auto_leaves_the_frames_to_another_programs_capture() {
    root_or_skip!();
    let cable = idle();
    let folder = folder();
    let (ours, theirs) = (folder.path().join("ours.pcapng"), folder.path().join("theirs.pcap"));
    let Some(other) = tcpdump(&cable, &theirs) else {
        skip!("needs tcpdump");
    };
    let capture = cable.capture(&format!("-w {} --json udp", ours.display()));
    cable.send(50, 64);
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert_eq!(json["source"], "packet", "{printed}");
    assert_eq!(numbers(&ours), (0..50).collect::<Vec<_>>());
    wait_for("all frames in the file of tcpdump", || {
        std::fs::metadata(&theirs).unwrap().len() >= 24 + 50 * (16 + 106)
    });
    // With consent the user reads that it is there.
    let mut capture = cable.capture("--discard --json --take-over udp");
    capture.until("these frames pass by ");
    capture.until("packet sockets");
    let (_, json, printed) = capture.interrupt();
    assert_eq!(json["source"], "xdp", "{printed}");
    other.interrupt();
    assert_eq!(numbers(&theirs), (0..50).collect::<Vec<_>>());
}

/// Starts a capture that must fail, and what it says.
fn refused(cable: &Cable, arguments: &str) -> String {
    let output = cable.run(&format!("-i far --discard {arguments}"));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{arguments}: {printed}");
    printed
}

#[test]
fn two_captures_that_want_the_frames_are_told_of_each_other() {
    root_or_skip!();
    for way in ["ringbuf", "af-xdp"] {
        let cable = idle();
        let first = cable.capture(&format!("--source xdp --xdp-delivery {way} --discard -B 8192"));
        let holder = format!("linerate (process {})", first.id());
        for second in ["xdp", "xdp --take-over", "tee"] {
            let printed = refused(&cable, &format!("--source {second}"));
            for word in ["another linerate takes", &holder, "--source tee"] {
                assert!(printed.contains(word), "{way}, {second}: no {word} in {printed}");
            }
        }
        // The remedy works.
        assert!(first.interrupt().0.success());
        let tees = [0, 1].map(|_| cable.capture("--source tee --discard -B 8192 --json udp"));
        let printed = refused(&cable, "--source xdp");
        for word in ["another linerate capture has a tee", "--source tee"] {
            assert!(printed.contains(word), "{way}: no {word} in {printed}");
        }
        cable.send(20, 64);
        for tee in tees {
            assert_eq!(tee.interrupt().1["captured"], 20);
        }
    }
}

#[test]
fn a_second_capture_that_gets_nothing_says_so() {
    root_or_skip!();
    let cable = idle();
    let first = cable.capture("--source xdp --discard --json -B 8192 udp");
    let mut second = cable.capture("--discard --json udp");
    second.until("this capture does not see them");
    let words = format!("another linerate (linerate (process {}))", first.id());
    assert!(second.stderr().contains(&words), "{}", second.stderr());
    cable.send(20, 64);
    let ((_, first, _), (_, second, printed)) = (first.interrupt(), second.interrupt());
    assert_eq!((&first["source"], &first["captured"]), (&"xdp".into(), &20.into()));
    assert_eq!(
        (&second["source"], &second["captured"]),
        (&"packet".into(), &0.into()),
        "{printed}"
    );
    // Beside a tee nothing is missed, and nothing said.
    let tee = cable.capture("--source tee --discard -B 8192");
    let (_, json, printed) = cable.capture("--discard --json").interrupt();
    assert!(json["source"] == "packet" && !printed.contains("warning"), "{printed}");
    assert!(tee.interrupt().0.success());
}

#[test]
fn a_program_on_the_same_number_in_another_namespace_is_no_obstacle() {
    root_or_skip!();
    let [busy, free] = ["cn-busy", "cn-free"].map(|name| {
        let namespace = linerate_testkit::Namespace::create(name).unwrap();
        ip(&namespace, "link add port index 77 type veth peer name far");
        ip(&namespace, "link set port up");
        namespace
    });
    for taking in ["xdp", "tee"] {
        let mut command = busy.command(crate::LINERATE);
        command.args(["capture", "-i", "port", "--discard", "--source", taking]);
        let other = super::support::listening(&mut command);
        for source in ["tee", "xdp", "auto", "packet"] {
            let mut command = std::process::Command::new(crate::LINERATE);
            command.args(["capture", "--netns", free.name(), "-i", "port", "--discard"]);
            command.args(["--source", source, "-a", "duration:0.1"]);
            let output = command.output().unwrap();
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{source} beside {taking}: {printed}");
            assert!(!printed.contains("another linerate"), "{source} beside {taking}: {printed}");
        }
        other.interrupt();
    }
}
