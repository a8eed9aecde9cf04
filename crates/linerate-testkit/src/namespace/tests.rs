use std::time::{Duration, Instant};

use super::*;
use crate::{Mac, Veth, VethOptions, root_or_skip};

fn two_hosts() -> (Namespace, Namespace, Veth) {
    let (left, right) = (Namespace::create("left").unwrap(), Namespace::create("right").unwrap());
    let cable = Veth::create(&left, "a0", &right, "b0", VethOptions::default()).unwrap();
    (left, right, cable)
}

#[test]
fn names_tell_their_maker() {
    assert_eq!(maker("lnr-test-77-0"), Some("77"));
    assert_eq!(maker("lnr--77-0"), Some("77"));
    assert_eq!(maker("lnr-77-0"), None);
    assert_eq!(maker("lnr-test-x-0"), None);
    assert_eq!(maker("other-test-77-0"), None);
}

#[test]
fn a_counter_is_found_under_its_name() {
    let table =
        "Tcp: RtoMin RetransSegs\nTcp: 200 17\nUdp: InErrors X\nUdp: 3 4\nUdpLite: X\nUdpLite: 9\n";
    assert_eq!(snmp_counter(table, "Tcp", "RetransSegs"), Some(17));
    assert_eq!(snmp_counter(table, "Udp", "InErrors"), Some(3));
    assert_eq!(snmp_counter(table, "UdpLite", "X"), Some(9));
    assert_eq!(snmp_counter(table, "Udp", "Y"), None);
    assert_eq!(snmp_counter(table, "Icmp", "X"), None);
}

#[test]
fn is_listed_and_goes_with_its_owner() {
    root_or_skip!();
    let namespace = Namespace::create("seen").unwrap();
    let (name, path) = (namespace.name().to_owned(), namespace.path().to_owned());
    let listed = std::process::Command::new("ip").arg("netns").output().unwrap().stdout;
    assert!(String::from_utf8(listed).unwrap().contains(&name));
    drop(namespace);
    assert!(!path.exists());
}

#[test]
fn goes_when_a_panic_unwinds() {
    root_or_skip!();
    let (sender, receiver) = std::sync::mpsc::channel();
    let panicked = thread::spawn(move || {
        let namespace = Namespace::create("panic").unwrap();
        sender.send(namespace.path().to_owned()).unwrap();
        let in_namespace = namespace.run(|| panic!("on purpose"));
        drop(in_namespace);
    });
    assert!(panicked.join().is_err());
    assert!(!receiver.recv().unwrap().exists());
}

#[test]
fn sweep_takes_what_the_dead_left_and_nothing_else() {
    root_or_skip!();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let dead = child.id();
    child.wait().unwrap();
    let living = Namespace::create("living").unwrap();
    let stale = Path::new(DIRECTORY).join(format!("{MARK}-stale-{dead}-0"));
    {
        let _lock = lock_directory().unwrap();
        let abandon = || {
            File::create_new(&stale).unwrap();
            enter_new(&stale).unwrap();
        };
        thread::scope(|scope| scope.spawn(abandon).join()).unwrap();
    }
    // Another process of the same crate may sweep first: it is gone either way.
    Namespace::remove_orphans();
    assert!(!stale.exists());
    assert!(living.path().exists());
}

#[test]
fn a_closure_and_a_command_run_inside() {
    root_or_skip!();
    let namespace = Namespace::create("inside").unwrap();
    let here = fs::read_link("/proc/thread-self/ns/net").unwrap();
    let there = namespace.run(|| fs::read_link("/proc/thread-self/ns/net").unwrap()).unwrap();
    assert_ne!(here, there);
    assert_eq!(fs::read_link("/proc/thread-self/ns/net").unwrap(), here);
    let output = namespace.command("readlink").arg("/proc/self/ns/net").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), there.to_str().unwrap());
    let missing = namespace.command("no-such-program-here").spawn().unwrap_err().to_string();
    assert!(missing.contains("no-such-program-here") && missing.contains("PATH"), "{missing}");
}

#[test]
fn a_command_is_bound_to_its_cpus() {
    root_or_skip!();
    let namespace = Namespace::create("bound").unwrap();
    let output = namespace
        .command("grep")
        .args(["Cpus_allowed_list", "/proc/self/status"])
        .cpus([0])
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    assert_eq!(text.split_whitespace().last(), Some("0"));
}

#[test]
fn two_hosts_reach_each_other_over_both_families() {
    root_or_skip!();
    let (left, _right, cable) = two_hosts();
    for (a, b, prefix) in [("10.9.0.1", "10.9.0.2", 24), ("fd00::1", "fd00::2", 64)] {
        cable.a.add_address(a.parse().unwrap(), prefix).unwrap();
        cable.b.add_address(b.parse().unwrap(), prefix).unwrap();
        cable.a.add_neighbour(b.parse().unwrap(), cable.b.mac()).unwrap();
        cable.b.add_neighbour(a.parse().unwrap(), cable.a.mac()).unwrap();
        let sent = left.run(|| {
            let socket = std::net::UdpSocket::bind((a, 0)).unwrap();
            socket.send_to(b"hello", (b, 9)).unwrap()
        });
        assert_eq!(sent.unwrap(), 5);
    }
    let ping = left.command("ping").args(["-c1", "-W2", "10.9.0.2"]).output();
    if let Ok(output) = ping {
        assert!(output.status.success(), "{output:?}");
    }
    // The receiving half runs in a softirq, which may be late on a busy machine.
    let deadline = Instant::now() + Duration::from_secs(5);
    while cable.b.statistics().unwrap().rx_packets < 2 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(cable.b.statistics().unwrap().rx_packets >= 2);
}

#[test]
fn a_quiet_cable_carries_nothing_by_itself() {
    root_or_skip!();
    let (_left, _right, cable) = two_hosts();
    cable.a.add_address("10.9.1.1".parse().unwrap(), 24).unwrap();
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(cable.a.statistics().unwrap().tx_packets, 0);
    assert_eq!(cable.b.statistics().unwrap().tx_packets, 0);
}

#[test]
fn options_reach_the_kernel() {
    root_or_skip!();
    let (left, right) = (Namespace::create("left").unwrap(), Namespace::create("right").unwrap());
    let macs = ["02:00:00:00:00:0a", "02:00:00:00:00:0b"].map(|mac| mac.parse::<Mac>().unwrap());
    let options = VethOptions { queues: 3, mtu: 9000, macs: Some(macs), ..VethOptions::default() };
    let cable = Veth::create(&left, "a0", &right, "b0", options).unwrap();
    assert_eq!([cable.a.mac(), cable.b.mac()], macs);
    let shown = right.command("ip").args(["-d", "link", "show", "b0"]).output().unwrap().stdout;
    let shown = String::from_utf8(shown).unwrap();
    for part in ["mtu 9000", "numrxqueues 3", "numtxqueues 3", "02:00:00:00:00:0b", "UP"] {
        assert!(shown.contains(part), "{part} not in {shown}");
    }
    cable.b.set_mtu(1400).unwrap();
    cable.b.set_promiscuous(true).unwrap();
    cable.b.down().unwrap();
    let shown = right.command("ip").args(["link", "show", "b0"]).output().unwrap().stdout;
    let shown = String::from_utf8(shown).unwrap();
    assert!(
        shown.contains("mtu 1400") && shown.contains("PROMISC") && shown.contains("state DOWN")
    );
    assert!(!cable.b.has_xdp().unwrap());
    cable.delete().unwrap();
    assert!(left.interface("a0").is_err() && right.interface("b0").is_err());
}

#[test]
fn offloads_switch() {
    root_or_skip!();
    let (_left, right, cable) = two_hosts();
    let Ok(_) = std::process::Command::new("ethtool").arg("--version").output() else {
        crate::skip!("the oracle, ethtool, is not installed");
    };
    let shown = || {
        let output = right.command("ethtool").args(["-k", "b0"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    cable.b.set_gro(true).unwrap();
    assert!(shown().contains("generic-receive-offload: on"));
    assert!(shown().contains("tcp-segmentation-offload: on"));
    cable.b.set_offloads(false).unwrap();
    for feature in [
        "generic-receive-offload",
        "tcp-segmentation-offload",
        "generic-segmentation-offload",
        "tx-checksumming",
    ] {
        assert!(shown().contains(&format!("{feature}: off")), "{feature}: {}", shown());
    }
}

#[test]
fn routes_and_forwarding_join_three_hosts() {
    root_or_skip!();
    let [left, middle, right] =
        ["left", "middle", "right"].map(|name| Namespace::create(name).unwrap());
    let first = Veth::create(&left, "a", &middle, "b", VethOptions::default()).unwrap();
    let second = Veth::create(&middle, "c", &right, "d", VethOptions::default()).unwrap();
    for (interface, address) in [
        (&first.a, "10.1.0.1"),
        (&first.b, "10.1.0.2"),
        (&second.a, "10.2.0.1"),
        (&second.b, "10.2.0.2"),
    ] {
        interface.add_address(address.parse().unwrap(), 24).unwrap();
    }
    let everywhere = "0.0.0.0".parse().unwrap();
    left.add_route(everywhere, 0, "10.1.0.2".parse().unwrap()).unwrap();
    right.add_route("10.1.0.0".parse().unwrap(), 24, "10.2.0.1".parse().unwrap()).unwrap();
    middle.set_forwarding(true).unwrap();
    let answered = right.run(|| std::net::TcpListener::bind("10.2.0.2:7000").unwrap()).unwrap();
    let stream = left.run(|| std::net::TcpStream::connect("10.2.0.2:7000")).unwrap().unwrap();
    assert_eq!(answered.accept().unwrap().1, stream.local_addr().unwrap());
}

#[test]
fn errors_name_the_place() {
    root_or_skip!();
    let namespace = Namespace::create("errors").unwrap();
    let missing = namespace.interface("nope").unwrap_err().to_string();
    assert!(missing.contains("nope") && missing.contains(namespace.name()), "{missing}");
    let setting = namespace.sysctl("net.no.such", "1").unwrap_err().to_string();
    assert!(setting.contains("net.no.such"), "{setting}");
    for name in ["", "sixteen-letters-", "a/b", "a b", ".."] {
        let error = Veth::create(&namespace, name, &namespace, "x", VethOptions::default());
        assert!(matches!(error, Err(Error::InterfaceName { .. })), "{name:?}");
    }
}

#[test]
fn hardware_addresses_are_read_as_printed() {
    let mac: Mac = "02:0a:ff:00:01:7f".parse().unwrap();
    assert_eq!(mac.to_string(), "02:0a:ff:00:01:7f");
    for wrong in ["", "02:00", "02:00:00:00:00:00:00", "0x:00:00:00:00:00", "002:0:0:0:0:0"] {
        assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
    }
}

#[test]
fn a_tied_program_ends_with_the_process_that_started_it_and_not_before() {
    const TOLD: &str = "LINERATE_TEST_TIED";
    root_or_skip!();
    if std::env::var_os(TOLD).is_some() {
        // The process that is killed below.
        let namespace = Namespace::create("tied").unwrap();
        let mut child = namespace.command_killed_with_parent("sleep").arg("600").spawn().unwrap();
        println!("pid {}", child.id());
        child.wait().unwrap();
    }
    let test = std::env::current_exe().unwrap();
    let mut parent = std::process::Command::new(test)
        .args(crate::only_this_test!())
        .env(TOLD, "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(parent.stdout.take().unwrap()));
    let pid: u32 = lines
        .map_while(io::Result::ok)
        .find_map(|line| line.split_once("pid ")?.1.trim().parse().ok())
        .expect("the number of the tied program");
    let state = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    };
    thread::sleep(Duration::from_millis(300));
    assert_eq!(state(), Some('S'), "the thread that started it is gone, and it is not");
    parent.kill().unwrap();
    parent.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    // It stays as a zombie where no init process reaps orphans.
    while !matches!(state(), None | Some('Z')) {
        assert!(Instant::now() < end, "it lives on: {:?}", state());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_tied_program_is_run_and_waited_for_like_any_other() {
    root_or_skip!();
    let namespace = Namespace::create("tied").unwrap();
    let mut child = namespace
        .command_killed_with_parent("sh")
        .args(["-c", "ip -brief link; exit 7"])
        .stdout(std::process::Stdio::piped())
        .cpus([0])
        .spawn()
        .unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(7));
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut said).unwrap();
    assert!(said.starts_with("lo ") && said.lines().count() == 1, "inside the namespace: {said}");
}
