//! `linerate generate` as a user runs it.

use std::process::Output;
use std::time::Duration;

use linerate_testkit::{Process, root_or_skip, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::LINERATE;
use crate::capture::support::Cable;

/// A veth pair whose peer takes live frames.
fn cable() -> Cable {
    let cable = Cable::new();
    cable.veth().b.set_gro(true).unwrap();
    cable
}

fn generate(cable: &Cable, arguments: &str) -> Output {
    let mut command = cable.near.command(LINERATE);
    command.args(["generate", "-i", "near"]).args(arguments.split_whitespace()).output().unwrap()
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}, {output:?}"))
}

fn complaint(output: &Output) -> String {
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn json_counts_what_arrived() {
    root_or_skip!();
    let cable = cable();
    let output = generate(
        &cable,
        "--count 5000 --rate 100kpps --size 64-1500 --flows 100 --vlan 7 --tcp --json \
         --src 10.0.0.0/24 --random dst,dport,mac,size --seed 3 --cpu 0",
    );
    assert!(output.status.success(), "{output:?}");
    let report = json(&output);
    assert_eq!(report["sent"], 5000);
    let (accepted, refused) = (report["accepted"].as_u64(), report["refused"].as_u64());
    assert_eq!(accepted.zip(refused).map(|(accepted, refused)| accepted + refused), Some(5000));
    assert_eq!(report["backend"], "live");
    assert!(report["packets_per_second"].as_f64().is_some_and(|rate| rate > 0.0));
    // Softirqs may still be at it.
    wait_for("all frames", || cable.received() == accepted.unwrap());
}

#[test]
fn summary_is_for_people_and_quiet_is_silent() {
    root_or_skip!();
    let cable = cable();
    let output = generate(&cable, "--count 100 --rate 50kpps");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("100 frames sent to near") && text.contains("refused"), "{text}");
    let output = generate(&cable, "--count 100 --rate 50kpps --quiet");
    assert_eq!((output.status.success(), output.stdout.len(), output.stderr.len()), (true, 0, 0));
}

#[test]
fn a_rate_that_is_not_reached_is_said() {
    root_or_skip!();
    let cable = cable();
    let enough = generate(&cable, "--count 2000 --rate 10kpps --backend packet --strict");
    let said = |output: &std::process::Output| {
        String::from_utf8_lossy(&output.stderr).contains("rate was not reached")
    };
    // A busy machine may be too slow even for that, and then says so.
    assert_ne!(enough.status.success(), said(&enough), "{enough:?}");
    // No machine sends so many.
    for (options, status) in [("", 0), ("--strict", 1)] {
        let backend = "--count 200000 --rate 900Mpps --backend packet --json";
        let output = generate(&cable, &format!("{backend} {options}"));
        assert!(said(&output), "{output:?}");
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let reached = report["rate_reached"].as_f64().unwrap();
        assert!(reached > 0.0 && reached < 0.5, "{report}");
    }
    let full = generate(&cable, "--count 1000 --backend packet --json --strict");
    let report: serde_json::Value = serde_json::from_slice(&full.stdout).unwrap();
    assert!(report["rate_reached"].is_null() && full.status.success(), "{report}");
}

#[test]
fn a_timed_run_with_a_rate_sends_all_that_it_owes() {
    root_or_skip!();
    let cable = cable();
    for backend in ["live", "packet", "xdp"] {
        let mut command = cable.near.command(LINERATE);
        command.args(["generate", "-i", "near", "--rate", "5kpps", "--seconds", "2", "--json"]);
        let run = Process::start(command.args(["--backend", backend]));
        wait_for("frames", || cable.received() > 0);
        // As a machine does whose cores others use.
        run.signal(Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(700));
        run.signal(Signal::SIGCONT);
        let (status, report, printed) = run.wait();
        assert!(status.success(), "{printed}");
        let report: Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report["sent"], 10_000, "{backend}: {report}");
    }
}

#[test]
fn interrupt_ends_with_the_summary() {
    root_or_skip!();
    let cable = cable();
    for backend in ["live", "packet"] {
        let mut command = cable.near.command(LINERATE);
        command.args(["generate", "-i", "near", "--json", "--backend", backend]);
        let generator = Process::start(&mut command);
        let before = cable.received();
        wait_for("a frame", || cable.received() > before);
        let report = generator.stop();
        assert!(report["sent"].as_u64().is_some_and(|sent| sent > 0), "{report}");
    }
    assert!(!cable.veth().a.has_xdp().unwrap(), "nothing stays attached");
}

#[test]
fn refusals_say_what_to_do() {
    root_or_skip!();
    let cable = cable();
    for (arguments, words) in [
        ("--size 20", "at least 42"),
        ("--size 2000", "at most 1514"),
        ("--rate warp", "450kpps"),
        ("--random colour", "sport"),
        ("--src 10.0.0.9-10.0.0.1", "backwards"),
        ("--src 10.0.0.1 --dst ::1", "both IPv4 or both IPv6"),
        ("--dst-mac 1:2:3", "six hexadecimal bytes"),
        ("--vlan 5000", "4094"),
        ("--backend live --rate 10pps", "5000"),
    ] {
        let text = complaint(&generate(&cable, &format!("--count 10 {arguments}")));
        assert!(text.contains(words), "{arguments}: {text}");
    }
    let output = cable.near.command(LINERATE).args(["generate", "-i", "nowhere"]).output().unwrap();
    assert!(complaint(&output).contains("near"), "names the interfaces that exist");
    assert_eq!(cable.received(), 0);
}

#[test]
fn without_capabilities_it_names_them() {
    root_or_skip!();
    let cable = cable();
    for (backend, capability) in [("live", "CAP_BPF"), ("packet", "CAP_NET_RAW")] {
        let output = cable
            .near
            .command("setpriv")
            .args(["--bounding-set=-all", "--inh-caps=-all", LINERATE])
            .args(["generate", "-i", "near", "--count", "1", "--backend", backend])
            .output()
            .unwrap();
        let text = complaint(&output);
        assert!(text.contains(capability) && text.contains("setcap"), "{text}");
    }
}
