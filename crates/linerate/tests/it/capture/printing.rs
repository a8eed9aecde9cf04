//! Packets that the system's tcpdump prints for a capture: what it prints of the same packets by itself.

use std::process::{Command, Stdio};

use linerate_testkit::{Process, root_or_skip, skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::{Cable, folder, listening, read, write_mixed};
use crate::LINERATE;

fn has_tcpdump() -> bool {
    Command::new("tcpdump").arg("--version").output().is_ok()
}

#[test]
fn packets_are_printed_as_tcpdump_prints_them() {
    root_or_skip!();
    if !has_tcpdump() {
        skip!("there is no tcpdump");
    }
    let (cable, folder) = (Cable::new(), folder());
    for options in [&["-e", "-t"][..], &["-vv", "-t", "-X"], &["-A", "-t", "-x"], &["-t", "-xx"]] {
        let mut tcpdump = cable.far.command("tcpdump");
        tcpdump.args(["-i", "far", "-n", "-c", "5"]).args(options).arg("udp");
        let mut linerate = cable.far.command(LINERATE);
        linerate.args(["capture", "-i", "far", "-c", "5"]).args(options).arg("udp");
        let [theirs, ours] = [listening(&mut tcpdump), listening(&mut linerate)];
        cable.send(5, 64);
        let [theirs, ours] = [theirs, ours].map(|process| {
            let (status, printed, errors) = process.wait();
            assert!(status.success() && !printed.is_empty(), "{options:?}: {errors}");
            printed
        });
        assert_eq!(ours, theirs, "{options:?}");
    }
    // A file, of the other format.
    let file = folder.path().join("in.pcapng");
    let capture = cable.capture(&format!("-w {} udp", file.display()));
    cable.send(20, 64);
    capture.interrupt();
    for options in [&["-e", "-tt", "-v"][..], &["-tttt", "-X", "--time-stamp-precision=nano"]] {
        let print = |program: &str, verb: &[&str]| {
            let mut command = Command::new(program);
            let output = command.args(verb).args(options).arg("-r").arg(&file).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(print(LINERATE, &["capture"]), print("tcpdump", &["-n"]), "{options:?}");
    }
}

/// A terminal sends Ctrl-C to all that runs in it, also to the tcpdump that prints.
#[test]
fn a_signal_to_all_loses_no_printed_packet() {
    root_or_skip!();
    if !has_tcpdump() {
        skip!("there is no tcpdump");
    }
    const COUNT: u32 = 3000;
    let (cable, folder) = (Cable::new(), folder());
    let lines = std::fs::File::create(folder.path().join("lines")).unwrap();
    let mut command = cable.far.command(LINERATE);
    command.args(["capture", "-i", "far", "-e", "udp"]).own_group();
    command.stdout(lines).stderr(Stdio::piped());
    let mut capture = Process::from(command.spawn().unwrap());
    capture.until("listening on");
    cable.send(COUNT, 64);
    kill(Pid::from_raw(-capture.id().cast_signed()), Signal::SIGINT).unwrap();
    let (status, _, errors) = capture.wait();
    assert!(status.success(), "{errors}");
    assert!(errors.contains(&format!("{COUNT} packets captured")), "{errors}");
    let lines = std::fs::read_to_string(folder.path().join("lines")).unwrap();
    assert_eq!(lines.lines().count(), COUNT as usize, "{errors}");
}

/// A reader that goes, such as `head`, ends the printing as it ends that of Linerate's own lines.
#[test]
fn the_reader_of_the_lines_may_go() {
    if !has_tcpdump() {
        skip!("there is no tcpdump");
    }
    let folder = folder();
    let file = folder.path().join("in.pcap");
    write_mixed(&file);
    for options in [&[][..], &["-e"], &["-e", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(LINERATE);
        command.args(["capture", "-r"]).arg(&file).args(options);
        match options.contains(&"--json") {
            true => command.stderr(writer),
            false => command.stdout(writer),
        };
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{options:?}: {output:?}");
        // A disk that is full is an error.
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(LINERATE);
        command.args(["capture", "-r"]).arg(&file).args(options);
        match options.contains(&"--json") {
            true => command.stderr(full),
            false => command.stdout(full),
        };
        assert_eq!(command.output().unwrap().status.code(), Some(1), "{options:?}");
    }
}

/// `stty tostop`: the terminal stops what writes from the background, which the printing tcpdump does.
#[test]
fn a_terminal_that_stops_background_output_gets_the_lines() {
    if !has_tcpdump() {
        skip!("there is no tcpdump");
    }
    let folder = folder();
    let file = folder.path().join("in.pcap");
    write_mixed(&file);
    let line = format!("stty tostop; exec {LINERATE} capture -e -r {}", file.display());
    let mut terminal = Command::new("timeout");
    terminal.args(["-k", "5", "60", "script", "-qec", &line, "/dev/null"]);
    let output = terminal.stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(printed.lines().filter(|line| line.contains("ethertype IPv4")).count(), 100);
}

/// The pipe to tcpdump is no file.
#[test]
fn the_report_names_no_file_where_packets_are_printed() {
    if !has_tcpdump() {
        skip!("there is no tcpdump");
    }
    let folder = folder();
    let file = folder.path().join("in.pcap");
    write_mixed(&file);
    let output = read(&file, "-e --json");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["captured"], &json["files"]), (&100.into(), &0.into()), "{json}");
    assert!(json.get("file").is_none(), "{json}");
}

#[test]
fn without_tcpdump_a_line_says_so() {
    root_or_skip!();
    let cable = Cable::new();
    let mut command = cable.far.command(LINERATE);
    let output = command.args(["capture", "-i", "far", "-e", "-X"]).env("PATH", "/nowhere");
    let output = output.output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("-e, -X print through tcpdump, which is not installed"), "{printed}");
    let output = cable.run("--source drops -v");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
