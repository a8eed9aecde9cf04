//! Traffic of real programs between two hosts: HTTP, DNS and a TCP bulk transfer.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::measure::process::Running;
use crate::programs::installed;
use crate::topology::pair::{Pair, RECEIVER_ADDRESS};

/// The serving host's address.
const SERVER: Ipv4Addr = RECEIVER_ADDRESS;

/// A kind of exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    /// Files over HTTP/1.1, by `python3 -m http.server` and curl.
    Http,
    /// Lookups, by dnsmasq and dig.
    Dns,
    /// A TCP bulk transfer, by iperf3.
    Bulk,
}

impl Exchange {
    pub(crate) const ALL: [Self; 3] = [Self::Http, Self::Dns, Self::Bulk];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Http => "HTTP exchanges (python3, curl)",
            Self::Dns => "DNS exchanges (dnsmasq, dig)",
            Self::Bulk => "TCP bulk transfer (iperf3)",
        }
    }

    pub(crate) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Http => &["python3", "curl"],
            Self::Dns => &["dnsmasq", "dig"],
            Self::Bulk => &["iperf3"],
        }
    }

    pub(crate) fn missing(self) -> Vec<&'static str> {
        self.programs().iter().copied().filter(|program| !installed(program)).collect()
    }

    /// Lets the two hosts of `pair` talk; `folder` is for files that are served.
    pub(crate) fn run(self, pair: &Pair, folder: &Path) -> Result<()> {
        match self {
            Self::Http => http(pair, folder),
            Self::Dns => dns(pair),
            Self::Bulk => bulk(pair),
        }
    }
}

fn http(pair: &Pair, folder: &Path) -> Result<()> {
    let sizes = [200usize, 4_000, 30_000, 250_000, 1_000_000];
    for size in sizes {
        // Not all alike, so that a compressing writer has something to do.
        let bytes: Vec<u8> = (0..size).map(|at| (at * 31 + at / 251) as u8).collect();
        fs::write(folder.join(format!("{size}.bin")), bytes)?;
    }
    let mut command = pair.receiver.command_killed_with_parent("python3");
    command
        .args(["-m", "http.server", "8000", "--bind", &SERVER.to_string(), "--directory"])
        .arg(folder);
    let mut server = Running::start("python3 -m http.server", &mut command)?;
    wait_for_port(pair, &mut server, 8000)?;
    for round in 0..12 {
        let size = sizes[round % sizes.len()];
        let mut fetch = pair.sender.command_killed_with_parent("curl");
        fetch.args(["--silent", "--show-error", "--fail", "--max-time", "20", "--output"]);
        fetch.args(["/dev/null", "--write-out", "{\"bytes\": %{size_download}}"]);
        fetch.arg(format!("http://{SERVER}:8000/{size}.bin"));
        let done = Running::start("curl", &mut fetch)?.wait(Duration::from_secs(30))?;
        let got = done.success()?.json()?["bytes"].as_u64();
        ensure!(got == Some(size as u64), "curl got {got:?} bytes instead of {size}");
    }
    Ok(())
}

fn dns(pair: &Pair) -> Result<()> {
    let mut command = pair.receiver.command_killed_with_parent("dnsmasq");
    command.args(["--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts"]);
    command.args(["--bind-interfaces", "--user=root", "--group=root", "--pid-file="]);
    command.arg(format!("--listen-address={SERVER}")).arg("--except-interface=lo");
    command.args(["--address=/lab.example/198.18.0.77", "--log-facility=-"]);
    let mut server = Running::start("dnsmasq", &mut command)?;
    wait_for_port(pair, &mut server, 53)?;
    for number in 0..40 {
        let mut ask = pair.sender.command_killed_with_parent("dig");
        ask.args(["+short", "+tries=3", "+time=2", "A"]);
        ask.arg(format!("host{number}.lab.example")).arg(format!("@{SERVER}"));
        let answer = Running::start("dig", &mut ask)?.wait(Duration::from_secs(15))?.success()?;
        ensure!(answer.stdout.trim() == "198.18.0.77", "dig was told {:?}", answer.stdout);
    }
    Ok(())
}

fn bulk(pair: &Pair) -> Result<()> {
    let mut command = pair.receiver.command_killed_with_parent("iperf3");
    command.args(["--server", "--one-off", "--bind", &SERVER.to_string()]);
    let mut server = Running::start("iperf3 --server", &mut command)?;
    // A connection made only to see whether the port is open would use up its one client.
    let listening = || {
        let table = pair.receiver.run(|| fs::read_to_string("/proc/thread-self/net/tcp"))??;
        Ok(table.lines().any(|line| line.contains(":1451 ") && line.contains(" 0A ")))
    };
    server.wait_until("iperf3 to listen", Duration::from_secs(10), listening)?;
    let mut client = pair.sender.command_killed_with_parent("iperf3");
    client.args(["--client", &SERVER.to_string(), "--bytes", "40M", "--json"]);
    Running::start("iperf3", &mut client)?.wait(Duration::from_secs(60))?.success()?;
    server.wait(Duration::from_secs(10))?;
    Ok(())
}

fn wait_for_port(pair: &Pair, server: &mut Running, port: u16) -> Result<()> {
    let address = SocketAddr::from((SERVER, port));
    let open = || {
        let limit = Duration::from_millis(500);
        Ok(pair.sender.run(|| TcpStream::connect_timeout(&address, limit).is_ok())?)
    };
    server.wait_until(&format!("port {port} to open"), Duration::from_secs(15), open)
}
