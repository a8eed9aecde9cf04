//! Output that leads nowhere: no verb panics because nobody reads what it prints.

use std::fs::{File, OpenOptions};
use std::process::{Command, Stdio};

use linerate_testkit::{root_or_skip, wait_for};
use nix::sys::signal::Signal;

use crate::LINERATE;
use crate::forward::support::Net;

/// The status of a Rust program that panicked.
const PANICKED: i32 = 101;

/// Command lines of every verb: help, what fails, and what prints.
const LINES: [&str; 22] = [
    "--help",
    "--version",
    "no-such-verb",
    "capture --help",
    "capture -D",
    "-vv capture -i no-such-interface -c 1",
    "-vv capture -r /no/such/file",
    "forward --help",
    "forward check-config /no/such/file",
    "-vv forward run -i no-such-interface --instance closed-output",
    "-vv forward status --instance closed-output",
    "-vv generate -i no-such-interface",
    "-vv receive --help",
    "-vv replay -i no-such-interface /no/such/file",
    "-vv run -- /no/such/program",
    "-vv segment /no/such/file /no/such/folder/file",
    "-vv send --help",
    "-vv uplink --help",
    "lab --help",
    "lab list",
    "completion bash",
    "manual /proc/no-such-folder",
];

/// A pipe that nobody reads.
fn dead_pipe() -> Stdio {
    let (_, end) = std::io::pipe().expect("a pipe");
    end.into()
}

fn full_disk() -> Stdio {
    let file: File = OpenOptions::new().write(true).open("/dev/full").expect("opened");
    file.into()
}

#[test]
fn no_verb_panics_where_nobody_reads() {
    for line in LINES {
        for output in [dead_pipe, full_disk] {
            let mut command = Command::new(LINERATE);
            command.args(line.split(' ')).stdin(Stdio::null()).stdout(output()).stderr(output());
            let status = command.status().expect("started");
            assert_ne!(status.code(), Some(PANICKED), "{line}");
            assert!(status.code().is_some(), "{line}: {status}");
        }
    }
}

#[test]
fn a_daemon_outlives_the_reader_of_its_log() {
    root_or_skip!();
    let net = Net::new();
    let mut command = net.router.command_killed_with_parent(LINERATE);
    command.args(["forward", "run", "-i", "left", "-i", "right", "--max-sessions", "4096"]);
    command.stdin(Stdio::null()).stdout(dead_pipe()).stderr(dead_pipe());
    let mut daemon = command.spawn().expect("started");
    wait_for("it forwards", || net.forward("status").status.success() && net.is_attached());
    let pid = nix::unistd::Pid::from_raw(daemon.id().cast_signed());
    // Each makes it log.
    for signal in [Signal::SIGUSR1, Signal::SIGUSR1] {
        nix::sys::signal::kill(pid, signal).expect("sent");
        std::thread::sleep(std::time::Duration::from_millis(600));
        assert_eq!(daemon.try_wait().expect("asked"), None, "it ended at {signal}");
    }
    assert_eq!(net.ask(0, 4000, 20), 20);
    nix::sys::signal::kill(pid, Signal::SIGTERM).expect("sent");
    assert_eq!(daemon.wait().expect("ended").code(), Some(0));
}
