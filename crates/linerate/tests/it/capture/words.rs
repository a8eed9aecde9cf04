//! Messages and the output of `-D` and others.

use std::process::Stdio;

use linerate_testkit::root_or_skip;

use super::support::{Cable, folder, listening, numbers, write_mixed};
use crate::LINERATE;

#[test]
fn lines_are_printed_without_a_file() {
    root_or_skip!();
    let cable = Cable::new();
    let capture = cable.capture("-c 3 udp");
    cable.send(10, 64);
    let (status, out, printed) = capture.wait();
    assert!(status.success(), "{printed}");
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].contains("IP 10.9.0.1.4000 > 10.9.0.2.5000: UDP, length 64"), "{out}");
}

#[test]
fn lines_are_printed_beside_a_file() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let path = folder.path().join("x.pcap");
    let capture = cable.capture(&format!("-c 3 -w {} --print udp", path.display()));
    cable.send(10, 64);
    let (status, out, printed) = capture.wait();
    assert!(status.success(), "{printed}");
    let line = "IP 10.9.0.1.4000 > 10.9.0.2.5000: UDP, length 64";
    assert_eq!((out.lines().count(), out.matches(line).count()), (3, 3), "{out}");
    assert_eq!(numbers(&path), [0, 1, 2]);
}

#[test]
fn a_file_is_whole_where_its_lines_cannot_be_written() {
    root_or_skip!();
    for (output, status) in [("/dev/full", 1), ("$pipe", 0)] {
        let (cable, folder) = (Cable::new(), folder());
        let path = folder.path().join("x.pcap");
        // A pipe whose reader has left.
        let script = format!(
            "pipe={}/pipe; mkfifo $pipe; exec 3<>$pipe
            exec {LINERATE} capture -i far -c 10 -w {} --print udp >{output} 3>&-",
            folder.path().display(),
            path.display()
        );
        let capture = listening(cable.far.command("sh").args(["-c", &script]));
        cable.send(10, 64);
        let (ended, _, printed) = capture.wait();
        assert_eq!(ended.code(), Some(status), "{output}: {printed}");
        assert_eq!(numbers(&path), (0..10).collect::<Vec<_>>(), "{output}: {printed}");
    }
}

#[test]
fn trouble_is_named_with_its_remedy() {
    root_or_skip!();
    let cable = Cable::new();
    let cases = [
        ("-i nosuch --discard", vec!["nosuch", "far", "lo"]),
        ("-i far --discard --source tee -Q out", vec!["-Q in"]),
        ("-i far --discard udp prot 5", vec!["syntax error", "udp prot 5"]),
        ("-i far -w /nonexistent/x.pcap", vec!["/nonexistent/x.pcap", "directory"]),
        ("-i far --discard -Z nobody-there", vec!["nobody-there"]),
    ];
    for (arguments, words) in cases {
        let output = cable.run(arguments);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{arguments}: {printed}");
        for word in words {
            assert!(printed.contains(word), "{arguments}: no {word:?} in {printed}");
        }
    }
}

#[test]
fn stripped_vlan_tags_are_warned_of() {
    root_or_skip!();
    let cable = Cable::new();
    let printed = |arguments: &str| {
        let output = cable.run(&format!("-i far --discard -a duration:0.1 -B 8192 {arguments}"));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).matches("rx-vlan-offload").count()
    };
    let sources = ["--source tee", "--source xdp --take-over", "--source packet"];
    cable.veth().b.set_features(&[("rx-vlan-hw-parse", true)]).unwrap();
    assert_eq!(sources.map(printed), [1, 1, 0]);
    cable.veth().b.set_features(&[("rx-vlan-hw-parse", false)]).unwrap();
    assert_eq!(sources.map(printed), [0, 0, 0]);
}

#[test]
fn an_interface_that_is_down_is_said_with_or_without_a_filter() {
    root_or_skip!();
    let cable = Cable::new();
    cable.veth().b.down().unwrap();
    for filter in ["", "udp"] {
        let output = cable.run(&format!("-i far --discard {filter}"));
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{filter}: {printed}");
        let words = "interface far is down; `ip link set far up` brings it up";
        assert!(printed.contains(words), "{filter}: {printed}");
    }
}

#[test]
fn lines_that_cannot_be_written_are_a_failure() {
    let folder = folder();
    let path = folder.path().join("in.pcap");
    write_mixed(&path);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = std::process::Command::new(LINERATE);
    let output = command.args(["capture", "-r"]).arg(&path).stdout(full).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert_eq!(printed.matches("No space left").count(), 1, "{printed}");
}

#[test]
fn a_reader_who_leaves_is_no_failure() {
    for arguments in [&["completion", "bash"][..], &["capture", "-D"], &["lab", "list"]] {
        let mut command = std::process::Command::new(LINERATE);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let ended = child.wait_with_output().unwrap();
        assert!(ended.status.success(), "{arguments:?}: {ended:?}");
    }
}

#[test]
fn wrong_command_lines_are_told_what_to_do() {
    let cases = [
        ("-i lo -K", "tcpdump -r -"),
        ("-i lo -nS udp", "tcpdump -r -"),
        ("-i lo -d udp", "tcpdump -d"),
        ("-i wlan0 -I", "iw dev NAME set type monitor"),
        ("-i lo --nano", "--time-stamp-precision nano"),
        ("-i lo -P -w x.pcap", "--format pcap"),
        ("-V list", "mergecap"),
        ("-i lo -w x.pcap -W 3", "-C SIZE or -G SECONDS"),
        ("-i lo -i lo --discard", "twice"),
        ("-i lo --discard -a duration:0", "above 0"),
        ("-i lo -w x -a filesize:0", "filesize:KB"),
        ("-i lo --discard -c 0", "--count"),
        ("-i lo --json -w -", "standard output"),
        ("-i lo --per-thread-files -w -", "-w a name"),
        ("-i lo --nonsense", "--nonsense"),
        ("-i lo --source elsewhere", "elsewhere"),
        ("-r x.pcap -i lo", "--read"),
    ];
    for (arguments, words) in cases {
        let mut command = std::process::Command::new(LINERATE);
        let output = command.arg("capture").args(arguments.split(' ')).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {printed}");
        assert!(printed.contains(words), "{arguments}: {printed}");
        assert!(!printed.contains("to pass '-"), "{arguments}: {printed}");
    }
}
