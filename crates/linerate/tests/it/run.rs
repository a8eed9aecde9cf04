//! `linerate run`: what it sets up, and what it says where it cannot.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use linerate_testkit::{Namespace, Veth, VethOptions, print_skipped, root_or_skip};

use crate::LINERATE;

/// Whether a library that it preloads stands beside it. A build of the tests leaves it among the dependencies; from
/// there it is put where a build of the workspace has it.
fn is_built(library: &str) -> bool {
    let beside = Path::new(LINERATE).with_file_name(library);
    let built = Path::new(LINERATE).with_file_name("deps").join(library);
    if built.is_file() {
        let _ = std::fs::remove_file(&beside);
        std::fs::hard_link(&built, &beside).expect("a link beside the program");
    }
    beside.is_file()
}

static LIBRARY: LazyLock<bool> = LazyLock::new(|| is_built("liblinerate_pcap.so"));
static SOCKETS: LazyLock<bool> = LazyLock::new(|| is_built("liblinerate_sockets.so"));

pub(crate) fn has_library(test: &str) -> bool {
    if !*LIBRARY {
        print_skipped(test, "the library is not built: cargo build -p linerate-pcap");
    }
    *LIBRARY
}

fn has_sockets(test: &str) -> bool {
    if !*SOCKETS {
        print_skipped(test, "the library is not built: cargo build -p linerate-sockets");
    }
    *SOCKETS
}

fn run(arguments: &[&str]) -> Output {
    Command::new(LINERATE).arg("run").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_gets_the_library_and_the_options() {
    if !has_library("a_program_gets_the_library_and_the_options") {
        return;
    }
    let options = [
        "--source",
        "xdp",
        "--take-over",
        "--pages",
        "small",
        "-B",
        "4096",
        "-q",
        "--cluster",
        "7",
    ];
    let output = run(&[&options[..], &["--", "sh", "-c", "env; exit 7"]].concat());
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let variables = text(&output.stdout);
    for wanted in [
        "LINERATE_SOURCE=xdp",
        "LINERATE_TAKE_OVER=1",
        "LINERATE_PAGES=small",
        "LINERATE_BUFFER=4096",
        "LINERATE_CLUSTER=7",
        "LINERATE_QUIET=1",
    ] {
        assert!(variables.lines().any(|line| line == wanted), "{wanted}: {variables}");
    }
    let preload = variables.lines().find_map(|line| line.strip_prefix("LD_PRELOAD=")).unwrap();
    assert!(preload.contains("liblinerate_pcap.so:/"), "{preload}");
}

#[test]
fn a_program_gets_the_libpcap_that_it_brings_or_that_is_named() {
    root_or_skip!();
    let test = "a_program_gets_the_libpcap_that_it_brings_or_that_is_named";
    if !has_library(test) {
        return;
    }
    let system = linerate_capture::libpcap::search_paths().find(|place| place.is_file());
    let (Some(system), Ok(_)) = (system, Command::new("tcpdump").arg("--version").output()) else {
        return print_skipped(test, "no libpcap or no tcpdump");
    };
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().join("libpcap.so.0.8");
    std::fs::copy(&system, &own).unwrap();
    let own = own.canonicalize().unwrap();
    let namespace = Namespace::create("own").unwrap();
    namespace.interface("lo").unwrap().up().unwrap();
    for (variable, value) in [("LD_LIBRARY_PATH", folder.path()), ("LINERATE_LIBPCAP", &own)] {
        let mut command = namespace.command(LINERATE);
        command.args(["run", "--", "tcpdump", "-i", "lo", "-n"]).env(variable, value);
        let mut tcpdump = linerate_testkit::Process::start(&mut command);
        tcpdump.until("listening on");
        let said = tcpdump.stderr();
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", tcpdump.id())).unwrap();
        assert!(maps.contains(own.to_str().unwrap()), "{variable}: {maps}");
        let system = system.canonicalize().unwrap();
        assert!(!maps.contains(system.to_str().unwrap()), "{variable}: {maps}");
        if variable == "LD_LIBRARY_PATH" {
            assert!(said.contains("has a libpcap of its own"), "{said}");
        }
    }
    let named = Command::new(LINERATE)
        .args(["run", "--", "true"])
        .env("LINERATE_LIBPCAP", "/nowhere/libpcap.so")
        .output()
        .unwrap();
    assert!(text(&named.stderr).contains("/nowhere/libpcap.so"), "{named:?}");
    assert_eq!(named.status.code(), Some(1));
}

#[test]
fn udp_preloads_the_library_of_sockets_alone() {
    if !has_sockets("udp_preloads_the_library_of_sockets_alone") {
        return;
    }
    let output = run(&["--udp", "-q", "--", "sh", "-c", "env; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let variables = text(&output.stdout);
    let preload = variables.lines().find_map(|line| line.strip_prefix("LD_PRELOAD=")).unwrap();
    assert!(preload.ends_with("liblinerate_sockets.so"), "{preload}");
    assert!(variables.contains("LINERATE_QUIET=1") && !variables.contains("LINERATE_LIBPCAP"));
    let output = run(&["--udp", "--source", "tee", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn a_program_that_udp_does_not_reach_is_said() {
    let test = "a_program_that_udp_does_not_reach_is_said";
    if !has_sockets(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str, mode: u32, owner: u32| {
        let path = folder.path().join(name);
        std::fs::copy("/bin/true", &path).unwrap();
        let chowned = std::os::unix::fs::chown(&path, Some(owner), None).is_ok();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        chowned.then(|| path.to_str().unwrap().to_owned())
    };
    let own = std::fs::metadata(folder.path()).unwrap().uid();
    let plain = copy("plain", 0o755, own).unwrap();
    assert_eq!(text(&run(&["--udp", "--", &plain]).stderr), "");
    if let Some(setuid) = copy("setuid", 0o4755, 65534) {
        let said = text(&run(&["--udp", "--", &setuid]).stderr);
        assert!(said.contains("is setuid"), "{said}");
        assert_eq!(text(&run(&["--udp", "-q", "--", &setuid]).stderr), "");
    }
    // The head of a Go program is enough: the note that its linker writes.
    let source = folder.path().join("go.s");
    std::fs::write(
        &source,
        ".section .note.go.buildid,\"a\",@note\n.long 4,4,4\n.asciz \"Go\"\n.byte 0\n.long 7\n",
    )
    .unwrap();
    let main = folder.path().join("main.c");
    std::fs::write(&main, "#include <stdio.h>\n#include <stdlib.h>\nint main(void) { return puts(getenv(\"LD_PRELOAD\") ? \"preloaded\" : \"alone\") < 0; }\n").unwrap();
    let program = folder.path().join("go");
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&main).arg(&source).status();
    if !compiled.is_ok_and(|status| status.success()) {
        return print_skipped(test, "no C compiler");
    }
    let said = text(&run(&["--udp", "--", program.to_str().unwrap()]).stderr);
    assert!(said.contains("is a Go program"), "{said}");
    let output = run(&["--udp", "-q", "--", program.to_str().unwrap()]);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("alone\n".into(), String::new()));
}

/// The loader preloads nothing for it.
#[test]
fn a_static_program_runs_and_is_said() {
    let test = "a_static_program_runs_and_is_said";
    if !has_library(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("s.c"), folder.path().join("s"));
    std::fs::write(&source, "int main(void) { return 7; }\n").unwrap();
    for kind in ["-static", "-static-pie", "-no-pie"] {
        let mut compiler = Command::new("cc");
        let compiled = compiler.arg(kind).arg("-o").arg(&program).arg(&source).output();
        if !compiled.is_ok_and(|output| output.status.success()) {
            print_skipped(test, &format!("cc cannot link with {kind}"));
            continue;
        }
        for options in [&[][..], &["--quiet"]] {
            let output = run(&[options, &["--", program.to_str().unwrap()]].concat());
            let said = text(&output.stderr).contains("linked statically");
            assert_eq!(said, kind != "-no-pie" && options.is_empty(), "{kind}: {output:?}");
            assert_eq!(output.status.code(), Some(7), "{kind}");
        }
    }
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\nexit 3\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = run(&["--", script.to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(3), ""));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    if !has_library("a_program_that_is_not_there_is_named") {
        return;
    }
    let output = run(&["--", "/nowhere/program"]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("/nowhere/program"), "{}", text(&output.stderr));
    let output = run(&["--config", "/nowhere/pcap.toml", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nowhere/pcap.toml"), "{}", text(&output.stderr));
}

/// What tcpdump says that `linerate run` starts with these options on an interface with an address, until it has
/// seen a packet; and whether its packets came from a source of Linerate's.
fn tcpdump(options: &[&str]) -> (String, bool) {
    let namespace = Namespace::create("run").unwrap();
    let veth =
        Veth::create(&namespace, "run-a", &namespace, "run-b", VethOptions::default()).unwrap();
    veth.a.add_address("10.3.0.1".parse().unwrap(), 24).unwrap();
    veth.b.add_address("10.2.0.1".parse().unwrap(), 24).unwrap();
    // Of which there would be a line.
    veth.b.set_features(&[("rx-vlan-hw-parse", false)]).unwrap();
    let errors = tempfile::NamedTempFile::new().unwrap();
    let printed = || std::fs::read_to_string(errors.path()).unwrap();
    let mut command = namespace.command_killed_with_parent(LINERATE);
    command.arg("run").args(options);
    command.args(["--", "tcpdump", "-i", "run-b", "-n", "-c", "1", "arp"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors.reopen().unwrap());
    let mut child = command.spawn().unwrap();
    // libpcap's own socket is then moved to where no frame comes.
    let is_ours = || {
        let sockets = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
        sockets.lines().any(|line| line.split_whitespace().nth(3) == Some("ffff"))
    };
    let mut ours = None;
    // Sends ARP requests for an unused address until tcpdump has seen one.
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "tcpdump sees nothing: {}", printed());
        if ours.is_none() && printed().contains("listening on") {
            ours = Some(namespace.run(is_ours).unwrap());
        }
        if ours.is_some() {
            let ask = || std::net::UdpSocket::bind("10.3.0.1:0")?.send_to(&[0], "10.3.0.9:9");
            let _ = namespace.run(ask).unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && !output.stdout.is_empty(), "{}", printed());
    (printed(), ours.unwrap())
}

/// The lines that are Linerate's.
fn ours_of(printed: &str) -> Vec<&str> {
    printed.lines().filter(|line| line.starts_with("linerate: ")).collect()
}

#[test]
fn a_source_that_is_refused_is_replaced_and_said_once() {
    root_or_skip!();
    if !has_library("a_source_that_is_refused_is_replaced_and_said_once") {
        return;
    }
    // What was asked of that source is not asked of the next.
    let options =
        ["--source", "xdp", "--xdp-delivery", "af-xdp", "--pages", "small", "--threads", "2"];
    let (printed, ours) = tcpdump(&options);
    let lines = ours_of(&printed);
    assert_eq!(lines.len(), 1, "{printed}");
    assert!(ours && lines[0].contains("run-b: continues with source packet"), "{printed}");
    assert!(lines[0].contains("only on packet sockets"), "{printed}");
    let (printed, ours) = tcpdump(&["--take-over", "--quiet", "--threads", "2"]);
    assert!(ours && ours_of(&printed).is_empty(), "{printed}");
}
