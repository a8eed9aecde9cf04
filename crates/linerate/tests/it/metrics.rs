//! `--metrics` of the verbs: what Prometheus gets, while packets flow.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use linerate_testkit::{Namespace, Process, TIMEOUT, print_skipped, root_or_skip, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::LINERATE;
use crate::capture::support::Cable;
use crate::run::has_library;

/// What is at `path` of the server on the loopback interface of a namespace.
pub(crate) fn get(namespace: &Namespace, port: u16, path: &str) -> String {
    let stream = namespace.run(|| TcpStream::connect(("127.0.0.1", port))).unwrap();
    let mut stream = stream.unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// The sum of the samples of this name whose labels have all of these parts.
pub(crate) fn sum(text: &str, name: &str, parts: &[&str]) -> Option<f64> {
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        let fits = (labels.is_empty() || labels.starts_with('{'))
            && parts.iter().all(|part| labels.contains(part));
        fits.then(|| value.parse::<f64>().unwrap())
    });
    samples.reduce(|a, b| a + b)
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The metrics that a section of docs/metrics.md lists: names, as they begin there, with their labels.
fn documented(section: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(repository().join("docs/metrics.md")).unwrap();
    let (_, text) = text.split_once(&format!("\n## {section}\n")).expect("the section");
    let text = text.split("\n## ").next().unwrap();
    let prefix = text.split_once("(`").and_then(|(_, rest)| rest.split_once('…'));
    let prefix = prefix.map_or("", |(prefix, _)| prefix);
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let names = rows.flat_map(|cell| cell.split('`').step_by(2));
    names.filter(|name| !name.is_empty()).map(|name| format!("{prefix}{name}")).collect()
}

/// That without labels.
fn name(metric: &str) -> String {
    metric.split('{').next().unwrap().to_owned()
}

/// Checks that a scrape of a verb has the metrics that its section lists and no others, and their labels.
pub(crate) fn check_documented(text: &str, section: &str) {
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let exposed: BTreeSet<_> = families
        .map(|family| match family.split_once(' ').unwrap() {
            (name, "counter") => format!("{name}_total"),
            (name, _) => name.to_owned(),
        })
        .collect();
    let listed: BTreeSet<_> =
        documented("Every verb").union(&documented(section)).cloned().collect();
    assert_eq!(exposed, listed.iter().map(|metric| name(metric)).collect());
    for (name, labels) in listed.iter().filter_map(|metric| metric.split_once('{')) {
        let samples = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{'));
        for sample in samples {
            let found: Vec<_> =
                sample.split("\",").map(|one| one.split('=').next().unwrap()).collect();
            assert_eq!(found.join(",") + "}", labels, "{name}{{{sample}");
        }
    }
}

/// What the queries of a text ask for.
fn asked(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    let metrics =
        words.filter(|word| word.starts_with("linerate_") || word.starts_with("process_"));
    metrics.map(str::to_owned).collect()
}

#[test]
fn rules_and_dashboards_ask_for_metrics_that_exist() {
    let sections = ["Every verb", "Capture", "Forward", "Receive", "Uplink", "Generate", "Run"];
    let known: BTreeSet<_> =
        sections.iter().flat_map(|section| documented(section)).map(|one| name(&one)).collect();
    assert!(known.len() > 40, "{known:?}");
    let packaging = repository().join("packaging");
    let rules = std::fs::read_to_string(packaging.join("prometheus/linerate.rules.yml")).unwrap();
    let mut queries: Vec<_> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("expr: "))
        .map(str::to_owned)
        .collect();
    assert!(queries.len() >= 7, "{rules}");
    for dashboard in ["capture", "forward", "receive"] {
        let of_panels = panel_queries(dashboard);
        assert!(of_panels.len() >= 6, "{dashboard}");
        queries.extend(of_panels);
    }
    for query in &queries {
        let asked = asked(query);
        assert!(!asked.is_empty() || query.starts_with("up"), "{query}");
        let unknown: Vec<_> = asked.difference(&known).collect();
        assert!(unknown.is_empty(), "{unknown:?} in {query}");
    }
}

/// The queries of all panels of a dashboard.
pub(crate) fn panel_queries(dashboard: &str) -> Vec<String> {
    let path = repository().join(format!("packaging/grafana/{dashboard}.json"));
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().unwrap());
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

fn start(namespace: &Namespace, arguments: &str) -> Process {
    let mut process =
        Process::start(namespace.command(LINERATE).args(arguments.split_whitespace()));
    process.until("metrics at http://127.0.0.1:9819/metrics");
    process
}

#[test]
fn a_capture_shows_its_ledger() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.pcapng");
    // A collector has series of its own. Nobody reads what this one gets.
    let collector = cable.far.run(|| std::net::UdpSocket::bind("127.0.0.1:4739")).unwrap().unwrap();
    let capture = format!(
        "capture -i far --process-info --metrics 9819 --json -w {} --flows {} --flows ipfix://127.0.0.1 udp",
        file.display(),
        folder.path().join("flows").display()
    );
    let capture = start(&cable.far, &capture);
    cable.send(500, 100);
    let scrape = || get(&cable.far, 9819, "/metrics");
    let far = "interface=\"far\"";
    wait_for("the packets in the metrics", || {
        sum(&scrape(), "linerate_capture_written_packets_total", &[]) == Some(500.0)
    });
    let text = scrape();
    check_documented(&text, "Capture");
    let report = capture.stop();
    drop(collector);
    assert_eq!(
        sum(&text, "linerate_capture_captured_packets_total", &[far]),
        Some(500.0),
        "{text}"
    );
    // The ledger has every cause, with the number of the report at the end.
    let causes = report["interfaces"][0]["dropped"].as_object().unwrap();
    assert!(causes.len() > 10, "{report}");
    for (cause, count) in causes.iter().filter(|(cause, _)| *cause != "total") {
        let count = count.as_f64().unwrap();
        let of_cause =
            |name: &str, label: &str| sum(&text, name, &[&format!("{label}=\"{cause}\"")]);
        let found = of_cause("linerate_capture_dropped_packets_total", "cause")
            .or_else(|| of_cause("linerate_capture_unwritten_packets_total", "cause"))
            .or_else(|| of_cause("linerate_capture_events_total", "event"));
        assert_eq!(found, Some(count), "{cause}:\n{text}");
    }
    let lost = sum(&text, "linerate_capture_dropped_packets_total", &[far]);
    assert_eq!(lost, report["interfaces"][0]["dropped"]["total"].as_f64(), "{text}");
    let fill = sum(&text, "linerate_capture_ring_fill_ratio", &[far]);
    assert!(fill.is_some_and(|fill| (0.0..=1.0).contains(&fill)), "{text}");
    assert!(text.contains("source=\"packet\"") && text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn queues_have_series_of_their_own() {
    root_or_skip!();
    let cable = Cable::with_queues(2);
    let _capture =
        start(&cable.far, "capture -i far --source tee --discard --metrics 127.0.0.1:9819 udp");
    cable.send(200, 100);
    wait_for("the packets of the queues", || {
        let text = get(&cable.far, 9819, "/metrics");
        let name = "linerate_capture_queue_received_packets_total";
        sum(&text, name, &["interface=\"far\",queue=\""]) == Some(200.0)
    });
    let text = get(&cable.far, 9819, "/metrics");
    let fill = sum(&text, "linerate_capture_ring_fill_ratio", &["interface=\"far\""]);
    assert!(fill.is_some_and(|fill| (0.0..=1.0).contains(&fill)), "{text}");
    let page = get(&cable.far, 9819, "/");
    assert!(page.contains("linerate capture") && page.contains("/metrics"), "{page}");
}

#[test]
fn a_receiver_shows_messages_and_losses() {
    root_or_skip!();
    let cable = Cable::new();
    let feed =
        "receive --bind 10.9.0.2:5001 --feed moldudp64 --request 10.9.0.1:5002 --metrics 9819";
    let feed = start(&cable.far, feed);
    wait_for("the first counts", || get(&cable.far, 9819, "/metrics").contains("receive_feed"));
    check_documented(&get(&cable.far, 9819, "/metrics"), "Receive");
    feed.end(Signal::SIGINT);
    let receiver = "receive --bind 10.9.0.2:5000 --backend recvmmsg --threads 2 --metrics 9819";
    let receiver = start(&cable.far, receiver);
    cable.send(300, 100);
    wait_for("the messages in the metrics", || {
        let text = get(&cable.far, 9819, "/metrics");
        sum(&text, "linerate_receive_bytes_total", &[]) == Some(30_000.0)
    });
    let text = get(&cable.far, 9819, "/metrics");
    assert_eq!(sum(&text, "linerate_receive_messages_total", &[]), Some(300.0));
    for cause in ["socket_buffer", "ring", "checksum", "malformed", "other"] {
        let parts = [format!("cause=\"{cause}\"")];
        let lost = sum(&text, "linerate_receive_dropped_messages_total", &[&parts[0]]);
        assert_eq!(lost, Some(0.0), "{cause}:\n{text}");
    }
    let (status, _, printed) = receiver.end(Signal::SIGINT);
    assert!(status.success(), "{printed}");
}

#[test]
fn a_generator_and_an_uplink_show_what_they_send() {
    root_or_skip!();
    let cable = Cable::new();
    let _uplink =
        start(&cable.far, "uplink --tap up0 -i far --take-over --backend packet --metrics 9819");
    let generator = start(&cable.near, "generate -i near --rate 1kpps --seconds 60 --metrics 9819");
    wait_for("sent frames", || {
        let text = get(&cable.near, 9819, "/metrics");
        sum(&text, "linerate_generate_sent_packets_total", &[]) > Some(500.0)
            && sum(&text, "linerate_generate_sent_bytes_total", &[]) > Some(30_000.0)
    });
    wait_for("received frames", || {
        let text = get(&cable.far, 9819, "/metrics");
        sum(&text, "linerate_uplink_bytes_total", &["rx"]) > Some(30_000.0)
            && sum(&text, "linerate_uplink_dropped_packets_total", &[]).is_some()
    });
    check_documented(&get(&cable.near, 9819, "/metrics"), "Generate");
    check_documented(&get(&cable.far, 9819, "/metrics"), "Uplink");
    generator.end(Signal::SIGINT);
}

#[test]
fn an_address_that_is_taken_ends_a_verb_before_it_begins() {
    root_or_skip!();
    let cable = Cable::new();
    let taken = cable.far.run(|| std::net::TcpListener::bind("127.0.0.1:9819")).unwrap().unwrap();
    for verb in ["capture -i far --discard", "receive --bind 10.9.0.2:5000", "generate -i far"] {
        let arguments = format!("{verb} --metrics 9819");
        let output = cable.far.command(LINERATE).args(arguments.split_whitespace()).output();
        let output = output.unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("127.0.0.1:9819") && printed.contains("--metrics"), "{printed}");
    }
    let run = ["run", "--metrics", "9819", "--", "echo", "started"];
    let output = cable.far.command(LINERATE).args(run).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    if has_library("an address that is taken, and run") {
        assert!(output.status.code() == Some(1) && output.stdout.is_empty(), "{printed}");
        assert!(printed.contains("127.0.0.1:9819") && printed.contains("--metrics"), "{printed}");
    }
    drop(taken);
}

/// Starts tcpdump under `linerate run` with these options, and waits until it captures.
fn tcpdump(cable: &Cable, options: &str) -> Option<Process> {
    if !has_library("metrics of tcpdump") {
        return None;
    }
    if std::process::Command::new("tcpdump").arg("--version").output().is_err() {
        print_skipped("metrics of tcpdump", "no tcpdump");
        return None;
    }
    let run = format!("run --metrics 9819 {options} -- tcpdump -i far -n -Z root -w /dev/null udp");
    let mut tcpdump = start(&cable.far, &run);
    tcpdump.until("listening on");
    Some(tcpdump)
}

/// The processes that serve the metrics of `program`.
fn servers(program: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let serves = |id: &u32| {
        let words = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        words.contains(&format!("--serve-metrics\0{program}\0"))
    };
    ids.filter(serves).collect()
}

#[test]
fn a_program_shows_what_its_handles_counted() {
    root_or_skip!();
    for source in ["packet", "tee"] {
        let cable = Cable::new();
        let Some(tcpdump) = tcpdump(&cable, &format!("--source {source}")) else { return };
        cable.send(500, 100);
        let scrape = || get(&cable.far, 9819, "/metrics");
        let far = format!("interface=\"far\",source=\"{source}\"");
        let count = |text: &str, name: &str| sum(text, &format!("linerate_run_{name}"), &[&far]);
        wait_for("the packets in the metrics", || {
            count(&scrape(), "delivered_packets_total") == Some(500.0)
        });
        let text = scrape();
        check_documented(&text, "Run");
        assert_eq!(count(&text, "handles_total"), Some(1.0), "{text}");
        assert_eq!(count(&text, "received_packets_total"), Some(500.0), "{text}");
        assert_eq!(count(&text, "delivered_bytes_total"), Some(500.0 * 142.0), "{text}");
        assert_eq!(count(&text, "dropped_packets_total"), Some(0.0), "{text}");
        assert!(count(&text, "read_timestamp_seconds") > Some(1.7e9), "{text}");
        assert!(text.contains("linerate_run_info{program=\"tcpdump\"} 1"), "{text}");
        // The process of these metrics is the program.
        let stat = std::fs::read_to_string(format!("/proc/{}/statm", tcpdump.id())).unwrap();
        let pages: f64 = stat.split(' ').nth(1).unwrap().parse().unwrap();
        let resident = sum(&text, "process_resident_memory_bytes", &[]).unwrap() / 4096.0;
        assert!((resident / pages - 1.0).abs() < 0.2, "{resident} of {pages}");
        // The server is not a child of the program, has no capabilities, and ends with the program.
        let [server] = servers(tcpdump.id())[..] else { panic!("{:?}", servers(tcpdump.id())) };
        let status = std::fs::read_to_string(format!("/proc/{server}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().to_owned()
        };
        assert_ne!(field("PPid:"), tcpdump.id().to_string());
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(u64::from_str_radix(&field(set), 16), Ok(0), "{set} {status}");
        }
        let id = tcpdump.id();
        let (status, _, printed) = tcpdump.end(Signal::SIGINT);
        assert!(status.success(), "{printed}");
        wait_for("the end of the server", || servers(id).is_empty());
    }
}

#[test]
fn a_program_that_is_too_slow_shows_its_losses() {
    root_or_skip!();
    let cable = Cable::new();
    let Some(tcpdump) = tcpdump(&cable, "-B 256") else { return };
    tcpdump.signal(Signal::SIGSTOP);
    cable.send(5_000, 1000);
    tcpdump.signal(Signal::SIGCONT);
    let count = |name: &str| {
        let text = get(&cable.far, 9819, "/metrics");
        sum(&text, &format!("linerate_run_{name}_packets_total"), &["far"])
    };
    wait_for("all packets in the metrics", || {
        let (delivered, dropped) = (count("delivered"), count("dropped"));
        delivered.zip(dropped).map(|(delivered, dropped)| delivered + dropped) == Some(5_000.0)
    });
    let dropped = count("dropped").unwrap();
    assert!(dropped > 0.0 && count("received") == Some(5_000.0));
    let (_, _, printed) = tcpdump.end(Signal::SIGINT);
    assert!(printed.contains(&format!("{dropped} packets dropped by kernel")), "{printed}");
}

/// Programs of one process group count together, what libpcap alone serves is listed, and a program that waits for its
/// children sees none of ours.
#[test]
fn several_programs_count_together() {
    root_or_skip!();
    let cable = Cable::new();
    if !has_library("several_programs_count_together") {
        return;
    }
    let programs = "for i in far far lo; do timeout 4 tcpdump -i $i -n -Z root -w /dev/null udp & done; wait; \
                    read -r children </proc/$$/task/$$/children; echo \"children: [$children]\"; exec sleep 60";
    let mut command = cable.far.command(LINERATE);
    command.args(["run", "--metrics", "9819", "--", "bash", "-c", programs]);
    let mut process = Process::start(&mut command);
    process.until("metrics at http://127.0.0.1:9819/metrics");
    let scrape = || get(&cable.far, 9819, "/metrics");
    let handles = |source: &str| {
        sum(&scrape(), "linerate_run_handles_total", &[&format!("source=\"{source}\"")])
    };
    wait_for("the handles", || (handles("packet"), handles("libpcap")) == (Some(2.0), Some(1.0)));
    cable.send(20, 100);
    process.until("children: []");
    wait_for("the packets of both handles", || {
        sum(&scrape(), "linerate_run_delivered_packets_total", &["far"]) == Some(40.0)
    });
    let text = scrape();
    assert_eq!(sum(&text, "linerate_run_received_packets_total", &["libpcap"]), None, "{text}");
}
