//! What the service manager and Prometheus get.

use std::io::{Read, Write};
use std::net::TcpStream;

use linerate_testkit::{Process, TIMEOUT, root_or_skip, wait_for};
use nix::sys::signal::Signal;

use super::support::Net;
use crate::LINERATE;
use crate::service_manager::ServiceManager;

/// A unit of Type=notify would end without a reason.
#[test]
fn a_service_manager_that_cannot_be_told_is_a_warning() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run_with("", |command| {
        command.env("NOTIFY_SOCKET", "/nowhere/notify");
    });
    let (status, _, printed) = daemon.end(Signal::SIGTERM);
    assert!(status.success(), "{printed}");
    assert!(printed.contains("READY=1 to /nowhere/notify"), "{printed}");
}

#[test]
fn the_service_manager_hears_of_everything() {
    root_or_skip!();
    let net = Net::new();
    let folder = tempfile::tempdir().unwrap();
    let mut manager = ServiceManager::new(folder.path());
    let file = folder.path().join("forward.toml");
    let config = |revalidate: &str| {
        format!(
            "interfaces = [\"left\", \"right\"]\nmax-sessions = 4096\nrevalidate = \"{revalidate}\"\n"
        )
    };
    std::fs::write(&file, config("60s")).unwrap();
    let arguments = format!("--config {} --log json", file.display());
    let mut daemon = net.run_with(&arguments, |command| {
        command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "400000");
    });
    manager.until("READY=1");
    manager.until("STATUS=");
    manager.heard.clear();
    manager.until("WATCHDOG=1");

    manager.heard.clear();
    std::fs::write(&file, config("30s")).unwrap();
    daemon.signal(Signal::SIGHUP);
    manager.until("RELOADING=1");
    manager.until("MONOTONIC_USEC=");
    manager.until("READY=1");
    // A file with a mistake changes nothing, and the daemon logs it.
    std::fs::write(&file, "interfaces = 7\n").unwrap();
    daemon.signal(Signal::SIGHUP);
    daemon.until("line 1");
    assert_eq!(net.ask(0, 4000, 20), 20);
    assert_eq!(net.json("status")[0]["state"], "running");

    manager.heard.clear();
    let (status, _, printed) = daemon.end(Signal::SIGTERM);
    assert!(status.success(), "{printed}");
    manager.until("STOPPING=1");
    for line in printed.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["timestamp"].is_string() && line["message"].is_string(), "{line}");
    }
}

/// Lines of the log are as those of all verbs, with the time, or with the journal's priorities.
#[test]
fn the_log_has_the_style_of_all_verbs() {
    root_or_skip!();
    let net = Net::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    let log = |stream: &str, log: &str, expected: &str| {
        std::fs::write(&file, "interfaces = [\"left\", \"right\"]\nmax-sessions = 4096\n").unwrap();
        let mut command = net.router.command_killed_with_parent("sh");
        command.args(["-c", &format!("JOURNAL_STREAM={stream} exec \"$@\""), "sh", LINERATE]);
        command.args(["forward", "run", "--log", log, "--config"]).arg(file.path());
        let mut daemon = Process::start(&mut command);
        daemon.until("ready: forwarding");
        std::fs::write(&file, "interfaces = 7\n").unwrap();
        daemon.signal(Signal::SIGHUP);
        daemon.until(expected);
        let (status, _, printed) = daemon.end(Signal::SIGTERM);
        assert!(status.success(), "{printed}");
        printed
    };
    let own = "$(stat -Lc %d:%i /proc/self/fd/2)";
    let printed = log("1:1", "text", "Z linerate: configuration not reloaded: ");
    assert!(!printed.contains("linerate_forward") && !printed.contains('\u{1b}'), "{printed}");
    let printed = log(own, "text", "<3>configuration not reloaded: ");
    assert!(printed.contains("<6>ready: forwarding"), "{printed}");
    assert!(printed.lines().all(|line| line.starts_with('<')), "{printed}");
    log(own, "json", "<3>{\"schema\":");
}

/// What is at `/metrics`.
fn scrape(net: &Net) -> String {
    let stream = net.router.run(|| TcpStream::connect("127.0.0.1:9818")).unwrap();
    let mut stream = stream.unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The number in the line that starts with `name`.
fn metric(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).trim().parse().unwrap()
}

#[test]
fn prometheus_gets_what_status_says() {
    root_or_skip!();
    let net = Net::new();
    // The number of sessions is that of the ageing's last pass, which takes a quarter of the shortest limit.
    // Each collector has series of its own. Nobody reads what the first gets, and the second is not there.
    let folder = tempfile::tempdir().unwrap();
    let collector =
        net.router.run(|| std::net::UdpSocket::bind("127.0.0.1:4739")).unwrap().unwrap();
    let absent = "ipfix+tcp://127.0.0.1:9";
    let flows =
        format!("--flows {} --flows ipfix://127.0.0.1 --flows {absent}", folder.path().display());
    let mut daemon = net.run(&format!("--tcp-idle 4s {flows}"));
    daemon.until(&format!("cannot connect to the collector {absent}"));
    for port in 4000..4010 {
        assert_eq!(net.ask(0, port, 10), 10);
    }
    wait_for("the sessions in the metrics", || {
        metric(&scrape(&net), "linerate_forward_sessions") == 20.0
    });
    let text = scrape(&net);
    let status = &net.json("status")[0];
    let reasons = status["reasons"].as_array().unwrap();
    let unknown = reasons.iter().find(|one| one["name"] == "unknown").unwrap();
    let name = "linerate_forward_slow_path_packets_total{reason=\"unknown\"}";
    assert_eq!(metric(&text, name), unknown["packets"].as_f64().unwrap());
    assert_eq!(metric(&text, "linerate_forward_fast_path_enabled"), 1.0);
    assert_eq!(
        metric(&text, "linerate_forward_session_capacity"),
        status["sessions"]["capacity"].as_f64().unwrap()
    );
    assert!(
        metric(&text, "linerate_forward_port_packets_total{interface=\"left\",direction=\"rx\"}")
            >= 100.0
    );
    // Every session has a datapath, and most packets went by one.
    let of_datapaths = |name: &str| {
        let of = |datapath| metric(&text, &format!("{name}{{datapath=\"{datapath}\"}}"));
        of("xdp") + of("tc")
    };
    assert_eq!(of_datapaths("linerate_forward_datapath_sessions"), 20.0);
    let fast = of_datapaths("linerate_forward_datapath_packets_total");
    assert!((100.0..=200.0).contains(&fast), "{fast} of 200 packets:\n{text}");
    assert!(metric(&text, "linerate_forward_datapath_packets_total{datapath=\"kernel\"}") > 0.0);
    crate::metrics::check_documented(&text, "Forward");
    drop(collector);
    assert!(!text.contains("10.9."), "a series for a session or an address:\n{text}");

    // A change of the network, by its cause.
    let routes = "linerate_forward_invalidations_total{cause=\"route\"}";
    net.router_does("ip route add 192.0.2.0/24 via 10.9.2.2");
    wait_for("a bump", || scrape(&net).contains(routes));

    // A program that asks as Prometheus does.
    match net.router.command("curl").args(["-sSf", "http://127.0.0.1:9818/metrics"]).output() {
        Ok(curl) => assert!(String::from_utf8_lossy(&curl.stdout).ends_with("# EOF\n"), "{curl:?}"),
        Err(_) => linerate_testkit::print_skipped(
            "prometheus_gets_what_status_says, curl",
            "it is not installed",
        ),
    }
}

#[test]
fn metrics_can_be_off_or_taken() {
    root_or_skip!();
    let net = Net::new();
    let daemon = net.run("--metrics off");
    assert!(net.router.run(|| TcpStream::connect("127.0.0.1:9818")).unwrap().is_err());
    daemon.end(Signal::SIGINT);
    // Another process has the default port: the daemon logs that, and forwards all the same.
    let taken = net.router.run(|| std::net::TcpListener::bind("127.0.0.1:9818")).unwrap().unwrap();
    let daemon = net.run("");
    assert!(daemon.stderr().contains("9818"), "{}", daemon.stderr());
    daemon.end(Signal::SIGINT);
    let address = "127.0.0.1:9819";
    let listener = net.router.run(|| std::net::TcpListener::bind(address)).unwrap().unwrap();
    let printed =
        net.refused(&format!("run -i left -i right --max-sessions 4096 --metrics {address}"), 1);
    assert!(printed.contains(address), "{printed}");
    assert!(!net.is_attached());
    drop((taken, listener));
}
