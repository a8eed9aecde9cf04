//! Debian's Prometheus on live verbs: every query of every panel has a series, and every alert fires for its fault.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use linerate_testkit::{
    Namespace, Process, TIMEOUT, Veth, VethOptions, root_or_skip, skip, wait_for,
};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::LINERATE;
use crate::forward::support::Net;
use crate::metrics::panel_queries;

const RULES: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/prometheus/linerate.rules.yml");
/// Of Prometheus.
const PORT: u16 = 9090;
/// Of capture, receive and the verbs with faults; forward has its default.
const PORTS: [u16; 5] = [9818, 9819, 9820, 9821, 9822];
/// Sessions of half the table that is nearly full.
const CONVERSATIONS: u16 = 480;

/// Prometheus, and what it scrapes.
struct Prometheus<'n> {
    namespace: &'n Namespace,
    fired: BTreeSet<String>,
    _process: Process,
}

impl<'n> Prometheus<'n> {
    fn start(namespace: &'n Namespace, folder: &Path) -> Self {
        // What has to last for a while has to last for a second.
        let rules = std::fs::read_to_string(RULES).unwrap().replace("for: 15s", "for: 1s");
        std::fs::write(folder.join("linerate.rules.yml"), rules).unwrap();
        let targets: Vec<_> = PORTS.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [linerate.rules.yml]\n\
             scrape_configs: [{{job_name: linerate, static_configs: [{{targets: [{}]}}]}}]\n",
            targets.join(", ")
        );
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let mut command = namespace.command_killed_with_parent("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{PORT}"));
        let mut process = Process::start(&mut command);
        process.until("Server is ready to receive web requests");
        Self { namespace, fired: BTreeSet::new(), _process: process }
    }

    fn get(&self, path: &str) -> Value {
        let stream = self.namespace.run(|| TcpStream::connect(("127.0.0.1", PORT))).unwrap();
        let mut stream = stream.unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }

    /// The series of a query.
    fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }

    /// Whether this alert has fired until now.
    fn has_fired(&mut self, name: &str) -> bool {
        let alerts = self.get("/api/v1/alerts");
        let firing = alerts["data"]["alerts"].as_array().unwrap().iter();
        let firing = firing.filter(|alert| alert["state"] == "firing");
        self.fired
            .extend(firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()));
        self.fired.contains(name)
    }

    /// Waits for an alert while `work` goes on; the test fails at its end if it does not fire. Windows of a minute and scrapes of a second take their time.
    fn until(&mut self, name: &str, mut work: impl FnMut()) {
        let end = Instant::now() + Duration::from_secs(45);
        while !self.has_fired(name) {
            if Instant::now() > end {
                eprintln!("{name} does not fire");
                return;
            }
            work();
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// The verb in the router, with its metrics at this port.
fn verb(net: &Net, arguments: &str, port: u16) -> Process {
    let mut command = net.router.command_killed_with_parent(LINERATE);
    command.args(arguments.split_whitespace()).args(["--metrics", &port.to_string()]);
    let mut process = Process::start(&mut command);
    process.until("metrics at");
    process
}

/// Sends frames to whoever is behind an interface, all the time.
fn generate(namespace: &Namespace, interface: &str, rate: &str) -> Process {
    let mut command = namespace.command_killed_with_parent(LINERATE);
    command.args(["generate", "-i", interface, "--backend", "packet", "-q", "--rate"]);
    command.args(rate.split(' '));
    Process::start(&mut command)
}

/// Sends datagrams from the client to the router.
fn send(net: &Net, port: u16, count: usize) {
    let send = || {
        let socket = UdpSocket::bind("10.9.1.2:0").unwrap();
        for _ in 0..count {
            // What nobody listens for is refused some time later.
            let _ = socket.send_to(&[0; 1200], ("10.9.1.1", port));
        }
    };
    net.client.run(send).unwrap();
}

#[test]
fn panels_have_series_and_alerts_fire() {
    root_or_skip!();
    if std::env::var_os("LINERATE_TEST_DASHBOARDS").is_none() {
        let reason = "it takes minutes: make test-dashboards runs it";
        skip!(reason);
    }
    let Ok(checked) = Command::new("promtool").args(["check", "rules", RULES]).output() else {
        let reason = "Prometheus is not installed";
        skip!(reason);
    };
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    let net = Net::new();
    let folder = tempfile::tempdir().unwrap();
    let mut prometheus = Prometheus::start(&net.router, folder.path());
    let forward = || {
        let mut forward = net.begin("-i left -i right --max-sessions 1024 --persist", |_| {});
        forward.until("ready: forwarding");
        forward
    };
    let daemon = forward();
    let file = folder.path().join("all.pcapng");
    // Beside the ports of the accelerator, where the XDP program is its own.
    let other = Namespace::create("dash-other").unwrap();
    let tapped = Veth::create(&net.router, "tapped", &other, "far", VethOptions::default());
    let _tapped = tapped.unwrap();
    let capture = format!("capture -i tapped --source tee -w {}", file.display());
    let _capture = verb(&net, &capture, 9819);
    let _traffic = generate(&other, "far", "200pps");
    let receiver = verb(&net, "receive --bind 10.9.1.1:5000 --buffer 64k", 9820);
    every_panel_has_a_series(&net, &prometheus);

    // A reader that is stopped does not empty its ring, nor its socket.
    let small = verb(&net, "capture -i left --source packet -B 64 --discard", 9821);
    let overflow = || {
        for process in [&small, &receiver] {
            process.signal(Signal::SIGSTOP);
        }
        send(&net, 5000, 3000);
        for process in [&small, &receiver] {
            process.signal(Signal::SIGCONT);
        }
        // A counter has to be scraped before it grows.
        std::thread::sleep(Duration::from_secs(2));
    };
    prometheus.until("LinerateCaptureLoss", overflow);
    prometheus.until("LinerateReceiveLoss", overflow);

    // A collector that is not there.
    let flows = "--flows ipfix+tcp://127.0.0.1:9 --idle-timeout 1s";
    let meter = verb(&net, &format!("capture -i tapped --source packet {flows}"), 9822);
    let many = generate(&other, "far", "20kpps --flows 50000");
    prometheus.until("LinerateFlowRecordsNotSent", || {});
    meter.end(Signal::SIGTERM);

    // A file in place of the folder of records.
    let records = folder.path().join("records");
    let flows = format!("--flows {} --idle-timeout 1s --flow-file-time 1s", records.display());
    let meter = verb(&net, &format!("capture -i tapped --source packet {flows}"), 9822);
    std::fs::rename(&records, folder.path().join("away")).unwrap();
    std::fs::write(&records, "").unwrap();
    prometheus.until("LinerateFlowRecordsNotWritten", || {});
    many.end(Signal::SIGINT);
    meter.end(Signal::SIGTERM);

    // A file that nobody reads from.
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let reader = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let stuck = format!("capture -i tapped --source tee -B 2048 -w {}", fifo.display());
    let stuck = verb(&net, &stuck, 9822);
    let flood = generate(&other, "far", "20kpps --size 1400");
    prometheus.until("LinerateCaptureWriterNearlyFull", || {});
    // And then slowly, as from a slow disk.
    prometheus.until("LinerateCaptureRingNearlyFull", || {
        for _ in 0..8 {
            let _ = (&reader).read(&mut [0; 1 << 16]).unwrap();
        }
    });
    flood.end(Signal::SIGINT);
    drop(reader);
    stuck.end(Signal::SIGTERM);

    let mut port = 10_000;
    prometheus.until("LinerateForwardTableNearlyFull", || {
        for _ in 0..CONVERSATIONS / 8 {
            net.ask(0, port, 3);
            port = 10_000 + (port + 1) % CONVERSATIONS;
        }
    });

    // The daemon dies; the kernel forwards; another daemon adopts the programs, and their counters.
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    std::thread::sleep(Duration::from_secs(2));
    net.ask(0, 4000, 50);
    prometheus.until("LinerateDown", || {});
    let daemon = forward();
    prometheus.until("LinerateForwardHandedBack", || {
        net.ask(0, 4000, 1);
    });
    drop(daemon);
    let rules = std::fs::read_to_string(RULES).unwrap();
    let alerts: BTreeSet<_> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(prometheus.fired, alerts.into_iter().map(str::to_owned).collect());
    net.stdout_of("detach");
}

fn every_panel_has_a_series(net: &Net, prometheus: &Prometheus<'_>) {
    let dashboards = ["capture", "forward", "receive"];
    let queries = dashboards.iter().flat_map(|dashboard| panel_queries(dashboard));
    let queries: Vec<_> = queries
        .map(|query| query.replace("$__rate_interval", "1m").replace("$instance", ".+"))
        .collect();
    assert!(queries.len() > 25, "{queries:?}");
    let mut empty = queries.clone();
    wait_for("a series for each query", || {
        net.ask(0, 4000, 20);
        send(net, 5000, 20);
        empty.retain(|query| prometheus.query(query).is_empty());
        if !empty.is_empty() {
            eprintln!("without a series: {empty:#?}");
            std::thread::sleep(Duration::from_secs(1));
        }
        empty.is_empty()
    });
}
