//! Every verb with `--json`, and its errors.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use linerate::cli::json::Schema;
use linerate_testkit::{Process, root_or_skip, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::schema::check;
use crate::LINERATE;
use crate::capture::support::{Cable, write_mixed};
use crate::forward::support::Net;

/// The schemas of the objects that were printed and held against them.
#[derive(Default)]
struct Seen(BTreeSet<String>);

impl Seen {
    /// Each line is an object.
    #[track_caller]
    fn lines(&mut self, text: &str) {
        assert!(!text.is_empty(), "nothing was printed");
        for line in text.lines() {
            let object: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            self.0.insert(check(&object));
        }
    }

    /// The output of a command that succeeds.
    #[track_caller]
    fn output(&mut self, output: &Output) {
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{printed}");
        self.lines(&String::from_utf8_lossy(&output.stdout));
    }

    /// That of a program which a signal ends.
    #[track_caller]
    fn end(&mut self, process: Process) {
        let (status, printed, errors) = process.end(Signal::SIGINT);
        assert!(status.success(), "{errors}");
        self.lines(&printed);
    }
}

#[test]
fn every_verb_prints_what_its_schema_describes() {
    root_or_skip!();
    let mut seen = Seen::default();
    let folder = tempfile::tempdir().unwrap();
    frames(&mut seen, folder.path());
    files(&mut seen, folder.path());
    messages(&mut seen);
    examinations(&mut seen, folder.path());
    accelerator(&mut seen, folder.path());
    // These have tests of their own.
    let elsewhere = [
        Schema::Error,
        Schema::CaptureStats,
        Schema::ForwardStats,
        Schema::GenerateStats,
        Schema::ReceiveStats,
        Schema::UplinkStats,
    ];
    seen.0.extend(elsewhere.map(|schema| schema.name().to_owned()));
    let all = Schema::ALL.iter().map(|schema| schema.name().to_owned()).collect();
    assert_eq!(seen.0, all);
}

/// capture, generate, uplink.
fn frames(seen: &mut Seen, folder: &Path) {
    let cable = Cable::with_queues(2);
    seen.output(&cable.run("-D --json"));
    seen.output(&cable.run("-L -i far --json"));
    let file = folder.join("live.pcapng");
    let to_file = format!("--json --split --process-info -w {} udp", file.display());
    let captures = [&to_file, "--json --source tee --discard"].map(|line| cable.capture(line));
    cable.send(50, 100);
    for capture in captures {
        seen.end(capture);
    }
    let near = |line: &str| {
        let mut command = cable.near.command(LINERATE);
        command.args(line.split(' ')).output().unwrap()
    };
    seen.output(&near("generate -i near --json --count 10 --backend packet"));
    seen.output(&near("generate -i near --json --count 10 --rate 1kpps --backend packet"));
    for device in ["--tap up0 --take-over", "--tun up0 --netns"] {
        let mut command = cable.far.command(LINERATE);
        command.args(["uplink", "-i", "far", "--json", "--backend", "packet"]);
        command.args(device.split(' '));
        if device.ends_with("netns") {
            command.arg(cable.near.name());
        }
        let mut uplink = Process::start(&mut command);
        uplink.until("it leaves to the uplink");
        seen.end(uplink);
    }
}

/// Reading a capture, segment, replay.
fn files(seen: &mut Seen, folder: &Path) {
    let cable = Cable::new();
    let [input, output] = ["in.pcap", "out.pcapng"].map(|name| folder.join(name));
    write_mixed(&input);
    let run = |words: &str, paths: &[&Path]| {
        let mut command = cable.near.command(LINERATE);
        command.args(words.split(' ')).args(paths).output().unwrap()
    };
    seen.output(&run("capture --discard --json -r", &[&input]));
    seen.output(&run("segment --json -w", &[&output, &input]));
    seen.output(&run("segment --json --coalesce -w", &[&output, &input]));
    seen.output(&run("replay -i near --json --pps 100k", &[&input]));
}

/// receive and send.
fn messages(seen: &mut Seen) {
    let cable = Cable::new();
    let send = |options: &str| {
        let mut command = cable.near.command(LINERATE);
        command.args(["send", "10.9.0.2:7000", "--json", "--count", "20"]);
        command.args(options.split_whitespace()).output().unwrap()
    };
    for (options, sent) in [
        ("--count 20 --check sequence --timestamps", ""),
        ("--count 20 --backend recvmmsg --threads 2", "--pattern time"),
        ("--count 20 --feed moldudp64", ""),
    ] {
        let mut command = cable.far.command(LINERATE);
        command.args(["receive", "--bind", "10.9.0.2:7000", "--json"]);
        let mut receiver = Process::start(command.args(options.split(' ')));
        receiver.until("receiving on");
        seen.output(&send(sent));
        let (status, printed, errors) = receiver.wait();
        assert!(status.success(), "{errors}");
        seen.lines(&printed);
    }
    // Nothing came.
    let mut command = cable.far.command(LINERATE);
    command.args("receive --bind 10.9.0.2:7000 --json --for 10ms".split(' '));
    seen.output(&command.output().unwrap());
}

/// doctor.
fn examinations(seen: &mut Seen, folder: &Path) {
    let cable = Cable::new();
    let state = folder.join("doctor.json");
    let mut examine = |options: &str| {
        let mut command = cable.far.command(LINERATE);
        command.args(["doctor", "--json", "--state"]).arg(&state);
        let output = command.args(options.split(' ')).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() != Some(1) && printed.is_empty(), "{printed}");
        seen.lines(&String::from_utf8_lossy(&output.stdout));
    };
    examine("-i far --no-attach");
    examine("forward -i far --no-attach --check forwarding --fix");
    examine("--undo");
}

/// forward.
fn accelerator(seen: &mut Seen, folder: &Path) {
    let net = Net::new();
    let file = folder.join("forward.toml");
    std::fs::write(&file, "interfaces = [\"left\", \"right\"]\nblock = [\"192.0.2.0/24\"]\n")
        .unwrap();
    let daemon = net.run("--log json --instance json");
    assert_eq!(net.ask(0, 4000, 50), 50);
    let mut run = |line: &str| {
        let output = net.stdout_of(&format!("{line} --json"));
        seen.lines(&output);
    };
    run(&format!("check-config {}", file.display()));
    let instance = "--instance json";
    wait_for("sessions", || !net.stdout_of(&format!("sessions {instance}")).is_empty());
    for line in [
        "status",
        "sessions",
        "accounting",
        "sessions --sort packet-rate --interval 100ms",
        "top --once --interval 100ms",
        "block 203.0.113.0/24",
        "block 203.0.113.7 --for 10m",
        "block tcp,192.0.2.1,4242,198.51.100.9,80 --for 10m",
        "blocked",
        "unblock 203.0.113.0/24",
        "flush",
    ] {
        run(&format!("{line} {instance}"));
    }
    let (status, _, log) = daemon.end(Signal::SIGTERM);
    assert!(status.success(), "{log}");
    seen.lines(&log);
    seen.lines(&net.stdout_of("detach --all --json"));
}

/// Runs a command line that is wrong, or fails, and returns the error.
#[track_caller]
fn refused(line: &str, status: i32) -> Value {
    let output = Command::new(LINERATE).args(line.split(' ')).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{line}: {printed}");
    assert!(output.stdout.is_empty(), "{line}: {output:?}");
    let last = printed.lines().last().unwrap_or_else(|| panic!("{line}: no error"));
    let object: Value =
        serde_json::from_str(last).unwrap_or_else(|error| panic!("{line}: {error}: {printed}"));
    assert_eq!(check(&object), Schema::Error.name());
    assert_eq!(object["status"], status, "{object}");
    assert_eq!(object["kind"], if status == 2 { "usage" } else { "failure" }, "{object}");
    object
}

#[test]
fn errors_are_objects_with_the_same_status() {
    for (line, status, verb, words) in [
        ("capture -r /no/such/file --json", 1, "capture", &["/no/such/file", "No such file"][..]),
        ("capture -i nothing --json", 1, "capture", &["nothing"]),
        ("capture --json -i eth0 -i eth0 --discard", 2, "capture", &["-i eth0 is given twice"]),
        ("capture --json --no-such-option", 2, "capture", &["--no-such-option", "--help"]),
        ("capture --json -W 3", 2, "capture", &["not provided: --write <FILE>", "--help"]),
        ("capture --json -W 3 -w /tmp/x", 2, "capture", &["-C SIZE"]),
        ("capture --json -c many", 2, "capture", &["many", "-c"]),
        ("capture --json --config /no/such/file", 2, "capture", &["/no/such/file"]),
        ("doctor --json -i nothing", 1, "doctor", &["nothing"]),
        ("forward status --json --instance nothing", 1, "forward status", &["nothing"]),
        ("forward check-config /no/such/file --json", 1, "forward check-config", &["/no/such"]),
        ("forward nothing --json", 2, "forward", &["nothing", "--help"]),
        ("generate -i nothing --json", 1, "generate", &["nothing"]),
        ("receive --json", 2, "receive", &["--bind"]),
        ("receive --json --bind 192.0.2.1:7000 --for 1s", 1, "receive", &["192.0.2.1"]),
        ("replay -i nothing /no/such/file --json", 1, "replay", &["nothing"]),
        ("segment --json -w - /no/such/file", 2, "segment", &["--json", "-w -"]),
        ("send 10.0.0.2 --json", 2, "send", &["10.0.0.2:7000"]),
        ("uplink --json --tap up0 -i nothing", 1, "uplink", &["nothing"]),
        ("nothing --json", 2, "", &["nothing"]),
    ] {
        let error = refused(line, status);
        assert_eq!(error["verb"], verb, "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(words.iter().all(|word| message.contains(word)), "{line}: {error}");
        assert!(!message.contains('\n') && !message.contains('\u{1b}'), "{error}");
        // Without --json the same is a line of text.
        let plain = line.replacen(" --json", "", 1);
        if plain != "segment -w - /no/such/file" {
            let output = Command::new(LINERATE).args(plain.split(' ')).output().unwrap();
            let printed = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(status), "{plain}: {printed}");
            assert!(!printed.contains("linerate-error"), "{plain}: {printed}");
        }
    }
}

#[test]
fn the_words_of_another_program_do_not_ask_for_json() {
    let output =
        Command::new(LINERATE).args(["run", "/no/such/program", "--json"]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !printed.contains("linerate-error"), "{printed}");
}

/// The objects of `--stats` before the report: they rise, and the report is the last.
#[track_caller]
fn lines_before_report(printed: &str, schema: Schema, report: Schema) -> Vec<Value> {
    let mut objects: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = objects.iter().map(check).collect();
    let last = objects.pop().unwrap_or_else(|| panic!("nothing was printed"));
    assert_eq!(last["schema"], report.name(), "{names:?}");
    assert!(objects.len() >= 2, "{names:?}");
    assert!(objects.iter().all(|one| one["schema"] == schema.name()), "{names:?}");
    let times: Vec<_> = objects.iter().map(|one| one["time"].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    objects
}

/// The sum of a rate over the lines, each for its interval.
fn integrated(lines: &[Value], rate: &str) -> f64 {
    let number = |line: &Value, key: &str| line[key].as_f64().unwrap();
    lines.iter().map(|line| number(line, rate) * number(line, "interval")).sum()
}

#[test]
fn stats_are_lines_while_a_verb_runs() {
    root_or_skip!();
    let cable = Cable::new();
    let far = |line: &str, schema: Schema, report: Schema| {
        let mut command = cable.far.command(LINERATE);
        let mut process = Process::start(command.args(line.split(' ')));
        process.until(" on ");
        cable.send(500, 100);
        process.until(schema.name());
        std::thread::sleep(std::time::Duration::from_millis(500));
        let (status, printed, errors) = process.end(Signal::SIGINT);
        assert!(status.success(), "{errors}");
        lines_before_report(&printed, schema, report)
    };
    let capture = "capture -i far --discard --json --stats 100ms udp port 5000";
    let captured = far(capture, Schema::CaptureStats, Schema::Capture);
    assert_eq!(captured.last().unwrap()["captured"], 500, "{captured:?}");
    assert!((integrated(&captured, "packets_per_second") - 500.0).abs() < 1.0, "{captured:?}");
    let bits = integrated(&captured, "bits_per_second");
    assert!((bits - 500.0 * 142.0 * 8.0).abs() < 8.0, "{bits}");
    let cut = "capture -i far --discard --json --stats 25ms --cutoff 300 udp port 5000";
    for line in far(cut, Schema::CaptureStats, Schema::Capture) {
        let [captured, received] =
            ["captured", "received"].map(|name| line[name].as_u64().unwrap());
        let left_out = line["dropped"]["cutoff"].as_u64().unwrap();
        assert!(received >= captured + left_out, "{line}");
    }
    let receive = "receive --bind 10.9.0.2:5000 --json --stats 100ms";
    let received = far(receive, Schema::ReceiveStats, Schema::Receive);
    assert_eq!(received.last().unwrap()["messages"], 500, "{received:?}");
    assert_eq!(received.last().unwrap()["bytes"], 50_000, "{received:?}");
    let bits = integrated(&received, "bits_per_second");
    assert!((bits - 500.0 * 100.0 * 8.0).abs() < 8.0, "{bits}");
    let generate =
        "generate -i near --backend packet --rate 1kpps --seconds 1 --json --stats 200ms";
    let output = cable.near.command(LINERATE).args(generate.split(' ')).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    let sent = lines_before_report(&printed, Schema::GenerateStats, Schema::Generate);
    assert!(integrated(&sent, "packets_per_second") > 100.0, "{printed}");
    let mut command = cable.far.command(LINERATE);
    let uplink = "uplink --tap up0 -i far --take-over --backend packet --json --stats 100ms";
    let mut uplink = Process::start(command.args(uplink.split(' ')));
    uplink.until("it leaves to the uplink");
    cable.send(100, 100);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (_, printed, _) = uplink.end(Signal::SIGINT);
    let joined = lines_before_report(&printed, Schema::UplinkStats, Schema::Uplink);
    assert!(integrated(&joined, "rx_bits_per_second") > 100.0 * 141.0 * 8.0, "{printed}");
}

#[test]
fn stats_without_json_are_lines_of_text() {
    root_or_skip!();
    let cable = Cable::new();
    let mut command = cable.far.command(LINERATE);
    let words = "capture -i far --discard --quiet --stats 100ms udp port 5000";
    let mut capture = Process::start(command.args(words.split(' ')));
    capture.until("0 packets");
    cable.send(100, 100);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (status, printed, text) = capture.end(Signal::SIGINT);
    assert!(status.success() && printed.is_empty(), "{printed}{text}");
    let lines: Vec<_> = text.lines().filter(|line| line.contains("/s, lost: none")).collect();
    assert!(lines.len() >= 2 && lines.last().unwrap().starts_with("100 packets"), "{text}");
}
