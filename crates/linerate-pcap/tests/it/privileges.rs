//! Programs that give up their privileges before they set a filter: a source that takes frames takes those that
//! the filter accepts, and no others. A service on the same interface gets its own.

use std::fs::Permissions;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip, skip, uninterrupted};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};

use crate::support::{
    BUFFER, FAR, Libpcap, Library, NEAR, Running, SOCKET, TIMEOUT, compile, has, start,
};

/// Datagrams to each of the two ports.
const COUNT: usize = 30;
/// The port of the filter, and that of the service.
const MATCHED: u16 = 7001;
const SERVED: u16 = 7002;

/// Two hosts and a veth pair.
struct Hosts {
    _near: Namespace,
    far: Namespace,
    _veth: Veth,
    sender: UdpSocket,
    matched: UdpSocket,
    served: UdpSocket,
}

impl Hosts {
    fn new() -> Self {
        let (near, far) =
            (Namespace::create("priv-n").unwrap(), Namespace::create("priv-f").unwrap());
        for host in [&near, &far] {
            host.sysctl("net.ipv6.conf.default.disable_ipv6", "1").unwrap();
        }
        let veth = Veth::create(&near, NEAR, &far, FAR, VethOptions::default()).unwrap();
        veth.a.add_address("10.3.0.1".parse().unwrap(), 24).unwrap();
        veth.b.add_address("10.3.0.2".parse().unwrap(), 24).unwrap();
        let bound = |host: &Namespace, address: &str, port| {
            let socket = host.run(|| UdpSocket::bind((address, port)).unwrap()).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            // What is sent while a program starts waits in it.
            setsockopt(&socket, sockopt::RcvBufForce, &(8 << 20)).unwrap();
            socket
        };
        let sender = bound(&near, "10.3.0.1", 0);
        let (matched, served) = (bound(&far, "10.3.0.2", MATCHED), bound(&far, "10.3.0.2", SERVED));
        Self { _near: near, far, _veth: veth, sender, matched, served }
    }

    fn send(&self, port: u16) {
        self.sender.send_to(b"to a service", ("10.3.0.2", port)).unwrap();
    }

    fn send_all(&self) {
        // A frame of the filter is the last: what is not read was not judged.
        for port in (0..COUNT).flat_map(|_| [SERVED, MATCHED]) {
            self.send(port);
        }
    }
}

/// The datagrams that a socket has got, up to `most`.
fn received(socket: &UdpSocket, most: usize) -> usize {
    let end = Instant::now() + TIMEOUT;
    let mut count = 0;
    while count < most && Instant::now() < end {
        match uninterrupted(|| socket.recv(&mut [0; 64])) {
            Ok(_) => count += 1,
            // The frames that are to come have come: what the program printed says so.
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    count
}

/// Runs `line` in the far host, with datagrams to the service from before it starts, until it says `says`. How many
/// these were.
fn started(
    hosts: &Hosts,
    library: &Library,
    variables: &'static [(&'static str, &'static str)],
    line: &[&str],
    says: &str,
    folder: &std::path::Path,
) -> (Running, usize) {
    let ready = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut sent = 0;
            while !ready.load(Ordering::Relaxed) {
                hosts.send(SERVED);
                sent += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            sent
        });
        let mut running = start(&hosts.far, library, Libpcap::Preloaded(variables), line, folder);
        let wait = std::panic::AssertUnwindSafe(|| {
            running.wait_for(says, |running| {
                running.stderr().contains(says) || running.stdout().contains(says)
            });
        });
        let waited = std::panic::catch_unwind(wait);
        ready.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap();
        waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (running, sent)
    })
}

#[test]
fn tcpdump_takes_what_its_filter_accepts_after_it_has_become_nobody() {
    root_or_skip!();
    if !has("tcpdump_takes_what_its_filter_accepts_after_it_has_become_nobody", "tcpdump") {
        return;
    }
    let library = Library::install();
    let line = ["tcpdump", "-i", FAR, "-n", "-l", "-Z", "nobody", "udp and port 7001"];
    for variables in [BUFFER, SOCKET] {
        let (hosts, folder) = (Hosts::new(), tempfile::tempdir().unwrap());
        let (mut running, before) =
            started(&hosts, &library, variables, &line, "listening on", folder.path());
        let got = received(&hosts.served, before);
        // AF_XDP sockets pass nothing on: before the filter they have all.
        assert!(got == before || variables == SOCKET, "{variables:?}: {got} of {before}");
        assert_eq!(running.capabilities(), 0, "{variables:?}");
        hosts.send_all();
        running.wait_for("packets", |running| running.stdout().lines().count() == COUNT);
        assert_eq!(received(&hosts.served, COUNT), COUNT, "{variables:?}");
        assert_eq!(received(&hosts.matched, COUNT), 0, "{variables:?}");
        running.interrupt(Signal::SIGINT);
        assert_eq!(running.ended(), Some(0));
        let said = running.stderr();
        for count in ["captured", "received by filter"] {
            let count = format!("\n{COUNT} packets {count}");
            assert!(said.contains(&count), "{variables:?}: no {count:?} in {said}");
        }
        assert!(said.contains("\n0 packets dropped by kernel"), "{said}");
    }
}

#[test]
fn a_filter_that_is_compiled_without_privileges_takes_nothing_from_the_host() {
    root_or_skip!();
    const ALOUD: &[(&str, &str)] = &[
        ("LINERATE_SOURCE", "xdp"),
        ("LINERATE_TAKE_OVER", "1"),
        ("LINERATE_XDP_DELIVERY", "ringbuf"),
        ("LINERATE_QUIET", "0"),
    ];
    let (library, folder) = (Library::install(), tempfile::tempdir().unwrap());
    let program = compile("nobody.c", folder.path(), &[]).display().to_string();
    let count = COUNT.to_string();
    let line = [program.as_str(), FAR, "udp and port 7001", &count];

    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().unwrap());
    let (mut running, before) = started(&hosts, &library, ALOUD, &line, "ready", folder.path());
    hosts.send_all();
    assert_eq!(running.ended(), Some(0), "{}", running.stderr());
    assert_eq!(running.stdout(), format!("ready\n{COUNT} packets, {COUNT} received by filter\n"));
    assert!(running.stderr().contains("the host gets all frames"), "{}", running.stderr());
    assert_eq!(received(&hosts.served, before + COUNT), before + COUNT);
    assert_eq!(received(&hosts.matched, COUNT), COUNT);

    // Sockets could not: the program is told so.
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().unwrap());
    let mut running = start(&hosts.far, &library, Libpcap::Preloaded(SOCKET), &line, folder.path());
    assert_eq!(running.ended(), Some(1));
    let said = running.stdout();
    assert!(said.contains("AF_XDP sockets would take frames that the filter rejects"), "{said}");
}

#[test]
fn a_program_with_capabilities_follows_no_variable_of_its_caller() {
    root_or_skip!();
    let (library, folder) = (Library::install(), tempfile::tempdir().unwrap());
    for place in [library.path().parent().unwrap(), folder.path()] {
        std::fs::set_permissions(place, Permissions::from_mode(0o755)).unwrap();
    }
    let program = compile("privileged.c", folder.path(), &["-ldl"]);
    let other = folder.path().join("other.c");
    std::fs::write(&other, OTHER).unwrap();
    // It has the functions of the system's, too.
    let flags = ["-shared", "-fPIC", "-Wl,--no-as-needed"];
    let other = compile(other.to_str().unwrap(), folder.path(), &flags);
    let run = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(&program).arg(library.path()).env("LINERATE_LIBPCAP", &other);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run().contains("that of the caller"), "it is what the variable asks for");
    let granted = Command::new("setcap").arg("cap_net_raw+ep").arg(&program).status();
    if !granted.is_ok_and(|status| status.success()) {
        skip!("needs setcap, and a folder whose files may have capabilities");
    }
    assert!(run().contains("libpcap version"), "{}", run());
}

/// A libpcap that somebody brings along.
const OTHER: &str = r#"
void pcap_activate(void) {}
const char *pcap_lib_version(void) { return "that of the caller"; }
"#;
