//! Filters of many terms, which libpcap takes long to compile: once, and not longer than the user wants.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use linerate_testkit::{Process, root_or_skip, wait_for};
use nix::sys::signal::Signal;

use super::support::{Cable, folder};
use crate::LINERATE;
use crate::service_manager::ServiceManager;

/// So many hosts, of which one is the veth pair's.
fn hosts(count: u32) -> String {
    let others = (1..count).map(|n| format!("host 10.200.{}.{} or ", n >> 8, n & 255));
    format!("{}host 10.9.0.1", others.collect::<String>())
}

/// The library that counts compilations (`tests/c/compile.c`).
fn counter(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/compile.c");
    let library = folder.join("compile.so");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
    assert!(cc.arg(&library).arg(source).status().unwrap().success());
    library
}

#[test]
fn a_filter_is_compiled_once() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let library = counter(folder.path());
    let (expression, compiled) = (hosts(200), folder.path().join("compiled"));
    let file = |name: &str| folder.path().join(name).display().to_string();
    let run = |arguments: &[&str], times: usize| {
        let mut command = cable.far.command(LINERATE);
        command.args(arguments).arg(&expression);
        command.env("LD_PRELOAD", &library).env("COMPILED", &compiled);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let count = std::fs::read(&compiled).unwrap().len();
        std::fs::remove_file(&compiled).unwrap();
        assert_eq!(count, times, "{arguments:?}");
    };
    linerate_testkit::tools::ip(&cable.far, "link set lo up");
    let ending = ["-a", "duration:0.1", "--discard"];
    // With `any` also for interfaces without a link layer, which may come later.
    for (interfaces, times) in
        [(&["-i", "far"][..], 1), (&["-i", "far", "-i", "lo"], 1), (&["-i", "any"], 2)]
    {
        run(&[&["capture"], interfaces, &ending].concat(), times);
    }
    for source in ["tee", "xdp", "drops"] {
        let of = ["capture", "-i", "far", "--source", source, "--take-over"];
        run(&[&of[..], &ending].concat(), 1);
    }
    for name in ["one.pcap", "one.pcapng"] {
        let capture = cable.capture(&format!("-w {} udp", file(name)));
        cable.send(3, 64);
        capture.interrupt();
        run(&["capture", "-r", &file(name), "-w", &file("out.pcapng")], 1);
        run(&["capture", "-r", &file(name), "-w", &file("out.pcap")], 1);
        run(&["segment", &file(name), "-w", &file("out.pcapng")], 1);
    }
}

#[test]
fn a_signal_ends_a_compilation() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let (library, compiled) = (counter(folder.path()), folder.path().join("compiled"));
    let capture = cable.capture(&format!("-w {}/in.pcap udp", folder.path().display()));
    capture.interrupt();
    let input = folder.path().join("in.pcap").display().to_string();
    for arguments in [&["-i", "far"][..], &["-i", "any"], &["-r", &input]] {
        let output = folder.path().join("out.pcap");
        let mut command = cable.far.command(LINERATE);
        command.arg("capture").args(arguments).arg("-w").arg(&output).arg(hosts(200));
        command.env("LD_PRELOAD", &library).env("COMPILED", &compiled).env("COMPILE_WAITS", "1");
        let capture = Process::start(&mut command);
        wait_for("the compilation", || compiled.exists());
        let (status, _, printed) = capture.end(Signal::SIGINT);
        assert_eq!(status.code(), Some(1), "{printed}");
        assert!(printed.contains("a signal came before everything was open"), "{printed}");
        assert!(!output.exists(), "{arguments:?}");
        std::fs::remove_file(&compiled).unwrap();
    }
}

/// A service that has waited for its interface has a watchdog by then.
#[test]
fn a_long_compilation_after_a_wait_is_no_case_for_the_watchdog() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let (library, compiled) = (counter(folder.path()), folder.path().join("compiled"));
    let mut manager = ServiceManager::new(folder.path());
    let mut command = cable.far.command(LINERATE);
    command.args(["capture", "--wait", "--discard", "-i", "far", "udp"]);
    command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "400000");
    command.env("LD_PRELOAD", &library).env("COMPILED", &compiled).env("COMPILE_WAITS", "1");
    let capture = Process::start(&mut command);
    wait_for("the compilation", || compiled.exists());
    manager.until("WATCHDOG=1");
    manager.heard.clear();
    manager.until("WATCHDOG=1");
    capture.end(Signal::SIGINT);
}

/// Prints the time beside tcpdump's. No test holds a speed.
#[test]
#[ignore = "prints a figure"]
fn the_time_of_a_compilation_beside_tcpdumps() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let capture = cable.capture(&format!("-w {}/in.pcap udp", folder.path().display()));
    capture.interrupt();
    let input = folder.path().join("in.pcap");
    for count in [100, 200, 400] {
        let time = |program: &str, arguments: &[&str]| {
            let started = Instant::now();
            let mut command = Command::new(program);
            let output = command.args(arguments).arg("-r").arg(&input).arg(hosts(count)).output();
            assert!(output.unwrap().status.success());
            started.elapsed().as_secs_f64()
        };
        let (tcpdump, linerate) = (time("tcpdump", &["-d"]), time(LINERATE, &["capture", "-q"]));
        println!("{count} hosts: tcpdump {tcpdump:.3} s, linerate {linerate:.3} s");
    }
}
