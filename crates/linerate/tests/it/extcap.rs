//! `linerate extcap`, as Wireshark and tshark use it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use linerate_testkit::{Process, root_or_skip, skip, wait_for};

use crate::LINERATE;
use crate::capture::support::{Cable, folder, number, numbers};

/// A folder with the script that `make install` makes for Wireshark.
fn extcap_folder() -> tempfile::TempDir {
    let folder = folder();
    let script = folder.path().join("linerate");
    fs::write(&script, format!("#!/bin/sh\nexec '{LINERATE}' extcap \"$@\"\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Where the installed tshark looks for such scripts; `None` where it is not installed.
fn wireshark_folder() -> Option<String> {
    let output = Command::new("tshark").args(["-G", "folders"]).output().ok()?;
    let folders = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = folders.lines().filter_map(|line| line.split_once(':'));
    // Since Wireshark 4.2 there are a personal and a global one.
    let mut found = lines.filter(|(name, _)| name.contains("xtcap path") && !name.starts_with('P'));
    Some(found.next()?.1.trim().to_owned())
}

/// tshark's arguments for `sh -c`, which runs it with the scripts in `scripts` and no others. (Run by root, it
/// does not obey WIRESHARK_EXTCAP_DIR.)
fn with_scripts(scripts: &Path, wireshark: &str) -> Vec<String> {
    let scripts = scripts.display();
    let script = format!("mount --bind {scripts} {wireshark} && exec tshark \"$@\"");
    ["--mount", "sh", "-c", &script, "tshark"].map(str::to_owned).to_vec()
}

/// What `linerate extcap` answers, and its exit status.
fn ask(arguments: &[&str]) -> (String, String, i32) {
    let output = Command::new(LINERATE).arg("extcap").args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap())
}

#[test]
fn the_answers_are_those_that_wireshark_parses() {
    let (interfaces, errors, status) = ask(&["--extcap-interfaces", "--extcap-version=4.0"]);
    assert_eq!(status, 0, "{errors}");
    assert!(interfaces.starts_with("extcap {version="), "{interfaces}");
    for value in ["linerate-any", "linerate-lo", "linerate_drops"] {
        assert!(interfaces.contains(&format!("interface {{value={value}}}")), "{interfaces}");
    }
    let lo = ["--extcap-interface", "linerate-lo"];
    let (types, ..) = ask(&[&lo[..], &["--extcap-dlts"]].concat());
    assert_eq!(types, "dlt {number=1}{name=EN10MB}{display=Ethernet}\n");
    let (options, ..) = ask(&[&lo[..], &["--extcap-config"]].concat());
    assert!(options.contains("{call=--source}"), "{options}");
    assert!(options.contains("{value=auto}"), "{options}");

    // A filter is judged by what is said about it.
    for (filter, right) in [("udp port 53", true), ("udp prt 53", false)] {
        let (said, _, status) = ask(&[&lo[..], &["--extcap-capture-filter", filter]].concat());
        assert_eq!((status, said.is_empty()), (0, right), "{filter}: {said}");
    }
}

/// Every option that Wireshark is offered, with every value of it, is one that a capture takes.
#[test]
fn every_option_on_offer_is_accepted() {
    for interface in ["linerate-lo", "linerate-any", "linerate_drops"] {
        let (options, ..) = ask(&["--extcap-interface", interface, "--extcap-config"]);
        let field = |line: &str, name: &str| {
            let (_, rest) = line.split_once(&format!("{{{name}="))?;
            Some(rest.split('}').next().unwrap().to_owned())
        };
        let mut calls = Vec::new();
        let mut offered = Vec::new();
        for line in options.lines() {
            if let Some(call) = field(line, "call") {
                match field(line, "type").unwrap().as_str() {
                    "boolflag" => offered.push(call.clone()),
                    "unsigned" => offered.push(format!("{call}=4096")),
                    "selector" => {}
                    other => panic!("{other} in {line}"),
                }
                calls.push(call);
            } else {
                let number: usize = field(line, "arg").unwrap().parse().unwrap();
                offered.push(format!("{}={}", calls[number], field(line, "value").unwrap()));
            }
        }
        assert!(!offered.is_empty(), "{options}");
        for option in offered {
            // An interface that does not exist, and a FIFO in a folder that does not: what is refused is these.
            let name = interface.replace("linerate-lo", "linerate-nowhere");
            let line =
                ["--extcap-interface", &name, "--capture", "--fifo", "/nowhere/fifo", &option];
            let (_, errors, status) = ask(&line);
            assert_eq!(status, 1, "{option}: {errors}");
        }
    }
}

/// What the documentation of Wireshark names, and this program has no use for.
#[test]
fn arguments_without_an_effect_are_accepted() {
    let lo = ["--extcap-interface", "linerate-lo", "--extcap-config"];
    let (expected, ..) = ask(&lo);
    for arguments in [
        &["--extcap-version", "4.4"][..],
        &["--extcap-reload-option", "source"],
        &["--extcap-control-in", "/nowhere/in", "--extcap-control-out", "/nowhere/out"],
        &["--log-level", "debug", "--log-file", "/nowhere/log"],
        &["--debug", "--debug-file", "/nowhere/log"],
    ] {
        let (said, errors, status) = ask(&[&lo[..], arguments].concat());
        assert_eq!((&*said, &*errors, status), (&*expected, "", 0), "{arguments:?}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    for (line, word, expected) in [
        (&["--extcap-interface", "eth0", "--extcap-dlts"][..], "linerate-NAME", 1),
        (&["--extcap-interface", "linerate-lo"], "--extcap-dlts", 2),
        (&[], "--extcap-interfaces", 2),
        (&["--extcap-interface", "linerate-lo", "--capture"], "--fifo", 2),
        (&["--extcap-interface", "linerate-nowhere", "--extcap-dlts"], "nowhere", 1),
    ] {
        let (_, errors, status) = ask(line);
        assert_eq!(status, expected, "{line:?}: {errors}");
        assert!(errors.contains(word), "{line:?}: {errors}");
    }
}

#[test]
fn tshark_lists_the_interfaces() {
    root_or_skip!();
    let Some(wireshark) = wireshark_folder() else {
        skip!("tshark is not installed");
    };
    let scripts = extcap_folder();
    let line = with_scripts(scripts.path(), &wireshark);
    let output = Command::new("unshare").args(line).arg("-D").output().unwrap();
    let list = String::from_utf8_lossy(&output.stdout);
    assert!(list.contains("linerate-lo (Linerate: lo)"), "{list}");
    assert!(list.contains("linerate_drops"), "{list}");
}

/// N of N frames that are sent are in tshark's file, in order; its end ends the capture, and nothing stays.
fn through_tshark(source: &str, wireshark: &str, is_attached: impl Fn(&Cable) -> bool) {
    const FRAMES: u32 = 2000;
    let cable = Cable::new();
    let (scripts, folder) = (extcap_folder(), folder());
    let file = folder.path().join("out.pcapng");
    let mut command = cable.far.command("unshare");
    command
        .args(with_scripts(scripts.path(), wireshark))
        .args(["-i", "linerate-far", "-f", "udp port 5000", "-q", "-w"])
        .arg(&file)
        .args(["-o", &format!("extcap.linerate_far.source:{source}")]);
    if source == "xdp" {
        command.args(["-o", "extcap.linerate_far.takeover:true"]);
    }
    let tshark = Process::start(&mut command);
    // The first ones are lost while the interface gets its program.
    wait_for("the capture", || {
        cable.send(1, 100);
        std::thread::sleep(Duration::from_millis(100));
        !numbers_so_far(&file).is_empty()
    });
    cable.send(FRAMES, 100);
    // tshark's file is flushed as it comes.
    wait_for("the frames", || {
        std::thread::sleep(Duration::from_millis(100));
        numbers_so_far(&file).last() == Some(&(FRAMES - 1))
    });
    let (_, _, errors) = tshark.end(nix::sys::signal::Signal::SIGINT);
    let numbers: Vec<_> = numbers(&file).into_iter().skip_while(|number| *number == 0).collect();
    assert!(numbers.iter().copied().eq(1..FRAMES), "{source}, {} frames: {errors}", numbers.len());
    wait_for("the end of the capture", || !is_attached(&cable));
}

/// The numbers of the whole packets in a file that is being written.
fn numbers_so_far(path: &Path) -> Vec<u32> {
    let Ok(mut reader) = linerate_pcapfile::Reader::open(path) else { return Vec::new() };
    let mut numbers = Vec::new();
    while let Ok(Some(record)) = reader.next() {
        numbers.push(number(&record));
    }
    numbers
}

fn has_xdp(cable: &Cable) -> bool {
    linerate_testkit::tools::run(&cable.far, "ip", &["link", "show", "far"], "").contains("xdp")
}

fn has_packet_socket(cable: &Cable) -> bool {
    let sockets =
        cable.far.run(|| fs::read_to_string("/proc/thread-self/net/packet").unwrap()).unwrap();
    sockets.lines().count() > 1
}

/// dumpcap waits in the FIFO for the first bytes: a capture that cannot start must end the wait.
#[test]
fn tshark_ends_where_the_capture_cannot_start() {
    root_or_skip!();
    let Some(wireshark) = wireshark_folder() else {
        skip!("tshark is not installed");
    };
    let scripts = extcap_folder();
    let output = Command::new("timeout")
        .args(["60", "unshare"])
        .args(with_scripts(scripts.path(), &wireshark))
        .args(["-i", "linerate-lo", "-f", "udp prt 9", "-c", "1"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    // 124 is that of timeout(1).
    assert!(!output.status.success() && output.status.code() != Some(124), "{errors}");
    assert!(errors.contains("udp prt 9"), "{errors}");
}

#[test]
fn tshark_gets_every_frame_from_tee() {
    root_or_skip!();
    let Some(wireshark) = wireshark_folder() else {
        skip!("tshark is not installed");
    };
    through_tshark("tee", &wireshark, has_xdp);
}

#[test]
fn tshark_gets_every_frame_from_xdp() {
    root_or_skip!();
    let Some(wireshark) = wireshark_folder() else {
        skip!("tshark is not installed");
    };
    through_tshark("xdp", &wireshark, has_xdp);
}

#[test]
fn tshark_gets_every_frame_from_a_packet_socket() {
    root_or_skip!();
    let Some(wireshark) = wireshark_folder() else {
        skip!("tshark is not installed");
    };
    through_tshark("packet", &wireshark, has_packet_socket);
}
