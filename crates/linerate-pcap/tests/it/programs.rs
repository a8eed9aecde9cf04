//! The field's tools as Debian has them: with this library they write what they write with libpcap alone,
//! on every source and both ways in, but for timestamps.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{
    Cable, EVERY_SOURCE, FAR, Libpcap, Library, NEAR, PACKET, Running, TEE, compile, has,
};
use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip, skip};
use nix::sys::signal::Signal;

/// How a program's run ends.
enum End<'e> {
    /// By itself, when it has seen what it was to see.
    Itself,
    /// By SIGINT or SIGTERM, once this holds.
    When(Signal, &'e dyn Fn(&Running, &Path) -> bool),
}

/// A veth pair, something to send over it, and a sender.
struct Stage {
    library: Library,
    folder: tempfile::TempDir,
    sender: PathBuf,
    /// What a program says that reads only some time after it has opened its handle.
    says: &'static str,
}

impl Stage {
    fn set() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let sender = compile("send.c", folder.path(), &[]);
        crate::support::traffic::write(&folder.path().join("traffic.pcap"));
        Self { library: Library::install(), folder, sender, says: "" }
    }

    /// Sends all frames, so many times.
    fn send(&self, cable: &Cable, times: usize) {
        let mut sender = cable.namespace.command(&self.sender);
        sender.arg(NEAR).arg(self.folder.path().join("traffic.pcap")).arg(times.to_string());
        assert!(sender.status().unwrap().success());
    }

    /// Runs a program past which all frames are sent; `make` says what it wrote.
    fn run(
        &self,
        libpcap: Libpcap,
        line: &[&str],
        end: &End<'_>,
        make: &dyn Fn(&Running, &Path) -> String,
    ) -> String {
        let cable = Cable::new();
        let folder = tempfile::tempdir().unwrap();
        let mut running = cable.start(&self.library, libpcap, line, folder.path());
        cable.wait_until_it_listens(libpcap, &mut running);
        running.wait_for(self.says, |running| running.stderr().contains(self.says));
        self.send(&cable, 1);
        if let End::When(signal, holds) = end {
            running.wait_for("effect", |running| holds(running, folder.path()));
            running.interrupt(*signal);
        }
        running.ended();
        make(&running, folder.path())
    }

    /// Compares all ways with libpcap alone.
    fn compare(&self, line: &[&str], end: &End<'_>, make: &dyn Fn(&Running, &Path) -> String) {
        let plain = self.run(Libpcap::System, line, end, make);
        assert!(!plain.trim().is_empty(), "{line:?} wrote nothing");
        for libpcap in EVERY_SOURCE {
            let ours = self.run(libpcap, line, end, make);
            assert_eq!(ours, plain, "{line:?} {libpcap:?}");
        }
    }
}

fn stdout(running: &Running, _: &Path) -> String {
    running.stdout()
}

/// The packets of a file without their times: lengths and bytes.
fn packets(file: &Path) -> String {
    let output =
        Command::new("tcpdump").args(["-t", "-n", "-e", "-xx", "-r"]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A classic file with the times taken out: all other bytes.
fn without_times(file: &Path) -> String {
    let mut bytes = fs::read(file).unwrap();
    let mut at = 24;
    while at + 16 <= bytes.len() {
        bytes[at..at + 8].fill(0);
        let len: [u8; 4] = bytes[at + 8..at + 12].try_into().unwrap();
        at += 16 + u32::from_le_bytes(len) as usize;
    }
    format!("{bytes:02x?}")
}

#[test]
fn tcpdump_prints_and_writes_the_same() {
    root_or_skip!();
    if !has("tcpdump_prints_and_writes_the_same", "tcpdump") {
        return;
    }
    let stage = Stage::set();
    let all = crate::support::traffic::frames().len().to_string();
    let print = |options: &[&str]| {
        let line = [&["tcpdump", "-i", FAR, "-n", "-t"], options].concat();
        stage.compare(&line, &End::Itself, &|running, _| {
            // The counts at the end depend on what had arrived when it stopped.
            format!("{}{}", running.stdout(), running.stderr().contains("0 packets dropped"))
        });
    };
    print(&["-e", "-vv", "-X", "-c", &all]);
    print(&["-s", "60", "-e", "-c", "3", "udp port 53"]);
    print(&["-Q", "in", "-c", "1", "vlan 8"]);
    print(&["-p", "-l", "-U", "-c", "2", "-B", "4096", "--immediate-mode", "arp or port 7001"]);
    for options in [&["-w", "out"][..], &["-w", "out", "--nano", "-j", "host", "-U"]] {
        let line = [&["tcpdump", "-i", FAR, "-c", &all], options].concat();
        stage.compare(&line, &End::Itself, &|_, folder| without_times(&folder.join("out")));
    }
}

#[test]
fn dumpcap_and_tshark_write_the_same() {
    root_or_skip!();
    if !has("dumpcap_and_tshark_write_the_same", "tshark") {
        return;
    }
    let stage = Stage::set();
    let all = crate::support::traffic::frames().len().to_string();
    let line = ["dumpcap", "-i", FAR, "-q", "-c", &all, "-w", "out.pcapng"];
    stage.compare(&line, &End::Itself, &|_, folder| packets(&folder.join("out.pcapng")));
    let line =
        ["dumpcap", "-i", FAR, "-q", "-P", "-s", "100", "-f", "tcp", "-c", "20", "-w", "out.pcap"];
    stage.compare(&line, &End::Itself, &|_, folder| without_times(&folder.join("out.pcap")));
    let fields = ["-T", "fields", "-e", "frame.len", "-e", "frame.protocols", "-e", "ip.src"];
    let line = [&["tshark", "-i", FAR, "-n", "-Q", "-c", &all][..], &fields].concat();
    stage.compare(&line, &End::Itself, &stdout);
}

/// tshark reads the standard error of the dumpcap that it starts as a protocol; dumpcap gives up what a tee takes,
/// of which the library would say a line.
#[test]
fn tshark_is_told_nothing_by_its_dumpcap() {
    root_or_skip!();
    if !has("tshark_is_told_nothing_by_its_dumpcap", "tshark") {
        return;
    }
    const ALOUD: &[(&str, &str)] = &[("LINERATE_SOURCE", "tee"), ("LINERATE_QUIET", "0")];
    let stage = Stage::set();
    let run = |libpcap| {
        let line = ["tshark", "-i", FAR, "-n", "-Q", "-c", "3", "-T", "fields", "-e", "frame.len"];
        stage.run(libpcap, &line, &End::Itself, &stdout)
    };
    let plain = run(Libpcap::System);
    assert_eq!(plain.lines().count(), 3, "{plain}");
    assert_eq!(run(Libpcap::Preloaded(ALOUD)), plain);
}

#[test]
fn ngrep_finds_the_same() {
    root_or_skip!();
    if !has("ngrep_finds_the_same", "ngrep") {
        return;
    }
    let line = ["ngrep", "-d", FAR, "-q", "-l", "-n", "4", "HTTP", "tcp"];
    Stage::set().compare(&line, &End::Itself, &stdout);
}

#[test]
fn tcpflow_writes_the_same_flows() {
    root_or_skip!();
    if !has("tcpflow_writes_the_same_flows", "tcpflow") {
        return;
    }
    fn flows(folder: &Path) -> Vec<PathBuf> {
        let mut found: Vec<_> = fs::read_dir(folder.join("flows"))
            .map(|list| list.map(|entry| entry.unwrap().path()).collect())
            .unwrap_or_default();
        found.retain(|path| path.file_name().is_some_and(|name| name != "report.xml"));
        found.sort();
        found
    }
    let line = ["tcpflow", "-i", FAR, "-o", "flows"];
    // Two sessions, each way; all bytes are there before it is told to end.
    let end = End::When(Signal::SIGINT, &|_, folder| {
        let found = flows(folder);
        let size = |path: &PathBuf| path.metadata().map_or(0, |file| file.len());
        found.len() == 4 && found.iter().map(size).sum::<u64>() > 4000
    });
    Stage::set().compare(&line, &end, &|_, folder| {
        let one = |path: &PathBuf| {
            format!("{:?} {:?}\n", path.file_name(), String::from_utf8(fs::read(path).unwrap()))
        };
        flows(folder).iter().map(one).collect()
    });
}

#[test]
fn p0f_recognises_the_same() {
    root_or_skip!();
    if !has("p0f_recognises_the_same", "p0f") {
        return;
    }
    let line = ["/usr/sbin/p0f", "-i", FAR, "-o", "log"];
    let end = End::When(Signal::SIGINT, &|_, folder| {
        let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
        log.lines().filter(|line| line.contains("mod=http response")).count() == 2
    });
    Stage::set().compare(&line, &end, &|_, folder| {
        let log = fs::read_to_string(folder.join("log")).unwrap();
        let found = log.lines().filter(|line| !line.contains("mod=uptime"));
        found
            .map(|line| line.split_once("] ").map_or(line, |(_, rest)| rest))
            .collect::<Vec<_>>()
            .join("\n")
    });
}

/// An exporter of flows, which captures in one process and counts in another.
#[test]
fn pmacct_counts_the_same_flows() {
    root_or_skip!();
    if !has("pmacct_counts_the_same_flows", "pmacctd") {
        return;
    }
    /// Packets by flow, over all times that it wrote them.
    fn flows(folder: &Path) -> BTreeMap<String, u64> {
        let mut flows = BTreeMap::new();
        let table = fs::read_to_string(folder.join("flows")).unwrap_or_default();
        let whole = table.rfind('\n').map_or("", |end| &table[..end]);
        for line in whole.lines().filter(|line| !line.starts_with("SRC_IP")) {
            let fields: Vec<_> = line.split(',').collect();
            let [flow @ .., packets, _] = &fields[..] else { panic!("no flow: {line}") };
            *flows.entry(flow.join(",")).or_default() += packets.parse::<u64>().unwrap();
        }
        flows
    }
    let stage = Stage { says: "Purging cache - END", ..Stage::set() };
    let configuration = stage.folder.path().join("pmacct.conf");
    let keys = format!(
        "pcap_interface: {FAR}\naggregate: src_host,dst_host,src_port,dst_port,proto\nplugins: print\n\
         print_refresh_time: 1\nprint_output: csv\nprint_output_file: flows\n\
         print_output_file_append: true\n"
    );
    fs::write(&configuration, keys).unwrap();
    // All but ARP.
    let counted = crate::support::traffic::frames().len() as u64 - 1;
    let line = ["/usr/sbin/pmacctd", "-f", configuration.to_str().unwrap()];
    let end =
        End::When(Signal::SIGINT, &|_, folder| flows(folder).values().sum::<u64>() >= counted);
    stage.compare(&line, &end, &|_, folder| format!("{:#?}", flows(folder)));
}

/// A child that tcpdump forks for each file has its descriptors; the capture goes on, and misses nothing.
#[test]
fn tcpdump_has_its_files_compressed() {
    root_or_skip!();
    if !has("tcpdump_has_its_files_compressed", "tcpdump") {
        return;
    }
    // More than fits into a file of a million bytes.
    const PASSES: usize = 160;
    let stage = Stage::set();
    let count = (crate::support::traffic::frames().len() * PASSES).to_string();
    let line =
        ["tcpdump", "-i", FAR, "-c", &count, "-C", "1", "-z", "gzip", "-w", "out", "-Z", "root"];
    let written = |libpcap: Libpcap| {
        let (cable, folder) = (Cable::new(), tempfile::tempdir().unwrap());
        let mut running = cable.start(&stage.library, libpcap, &line, folder.path());
        cable.wait_until_it_listens(libpcap, &mut running);
        stage.send(&cable, PASSES);
        assert_eq!(running.ended(), Some(0), "{}", running.stderr());
        // tcpdump does not wait for gzip, which removes the file that it has compressed.
        let (first, second) = (folder.path().join("out"), folder.path().join("out1"));
        let deadline = std::time::Instant::now() + crate::support::TIMEOUT;
        while first.exists() {
            assert!(std::time::Instant::now() < deadline, "{}", running.stderr());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(
            Command::new("gzip")
                .arg("-d")
                .arg("out.gz")
                .current_dir(folder.path())
                .status()
                .unwrap()
                .success()
        );
        [without_times(&first), without_times(&second)]
    };
    let plain = written(Libpcap::System);
    for libpcap in EVERY_SOURCE {
        assert!(written(libpcap) == plain, "{libpcap:?}");
    }
}

#[test]
fn nmap_finds_the_same_ports() {
    root_or_skip!();
    if !has("nmap_finds_the_same_ports", "nmap") {
        return;
    }
    let library = Library::install();
    let scan = |libpcap: Libpcap| {
        let (near, far) =
            (Namespace::create("pcap-n").unwrap(), Namespace::create("pcap-f").unwrap());
        let veth = Veth::create(&near, NEAR, &far, FAR, VethOptions::default()).unwrap();
        veth.a.add_address("10.3.0.1".parse().unwrap(), 24).unwrap();
        veth.b.add_address("10.3.0.2".parse().unwrap(), 24).unwrap();
        let listening = far.run(|| std::net::TcpListener::bind("10.3.0.2:25").unwrap()).unwrap();
        let mut command = near.command("nmap");
        command.args(["-sS", "-Pn", "-n", "--send-eth", "-p", "20-30", "10.3.0.2"]);
        for (name, value) in library.variables(libpcap) {
            command.env(name, value);
        }
        let output = command.output().unwrap();
        drop(listening);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8(output.stdout).unwrap();
        printed
            .lines()
            .filter(|line| line.contains("/tcp"))
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let plain = scan(Libpcap::System);
    assert!(plain.contains("25/tcp open") && plain.contains("26/tcp closed"), "{plain}");
    // The host needs its traffic, to answer ARP: sources that leave it.
    for libpcap in
        [Libpcap::Preloaded(PACKET), Libpcap::InLibraryPath(PACKET), Libpcap::Preloaded(TEE)]
    {
        assert_eq!(scan(libpcap), plain, "{libpcap:?}");
    }
}

#[test]
fn scapy_sniffs_the_same() {
    root_or_skip!();
    let python = "/usr/bin/python3";
    let there = Command::new(python).args(["-c", "import scapy"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        skip!("there is no python3-scapy");
    }
    let stage = Stage::set();
    let sniff = format!(
        "from scapy.all import *\n\
         conf.use_pcap = True\n\
         for p in sniff(iface='{FAR}', count=3, filter='udp port 53'): print(p.summary(), len(p))"
    );
    let asynchronous = format!(
        "from scapy.all import *\n\
         conf.use_pcap = True\n\
         s = AsyncSniffer(iface='{FAR}', count={})\n\
         s.start()\n\
         s.join()\n\
         for p in s.results: print(bytes(p).hex())",
        crate::support::traffic::frames().len()
    );
    for script in [sniff, asynchronous] {
        stage.compare(&[python, "-c", &script], &End::Itself, &stdout);
    }
}
