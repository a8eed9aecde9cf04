//! Ports that XDP cannot serve: devices that send by another one, and devices without Ethernet. TC forwards, or XDP by
//! the port below a VLAN device. What leaves is compared with plain Linux in linerate-forward (`differential`).

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linerate_forward::runtime::program::unavailable;
use linerate_ring::tun::{Device, Kind, Queue};
use linerate_testkit::tools::{ip, ip_batch, nft, run};
use linerate_testkit::{
    Namespace, Process, Veth, VethOptions, probe_or_skip, root_or_skip, wait_for,
};
use nix::sys::signal::Signal;

use super::datapath::{port, takes};
use super::support::Net;

/// Addresses of the router and of the server on the network between them.
const ROUTER: [&str; 3] = ["10.9.2.1", "fd09:2::1", "fe80::1"];
const SERVER: [&str; 3] = ["10.9.2.2", "fd09:2::2", "fe80::2"];

/// Gives the router's and the server's addresses to these interfaces in place of `right` and `host`.
fn move_to(net: &Net, router: &str, server: &str) {
    ip(&net.router, "addr flush dev right");
    give(&net.router, router, ROUTER);
    if server != "host" {
        ip(&net.server, "addr flush dev host");
        give(&net.server, server, SERVER);
        ip(&net.server, &format!("route replace default via 10.9.2.1 dev {server}"));
        ip(&net.server, &format!("-6 route replace default via fd09:2::1 dev {server}"));
    }
    ip(&net.server, "neigh flush dev host");
}

fn give(namespace: &Namespace, name: &str, addresses: [&str; 3]) {
    let interface = namespace.interface(name).unwrap();
    for (address, prefix) in addresses.into_iter().zip([24, 64, 64]) {
        interface.add_address(address.parse().unwrap(), prefix).unwrap();
    }
}

fn start(net: &Net, interfaces: &str) -> Process {
    let mut daemon = net.begin(&format!("{interfaces} --max-sessions 4096"), |_| {});
    daemon.until("ready: forwarding");
    daemon
}

/// Traffic between the client and the server takes TC there and `back` back, both families, with translation and
/// without; what arrives is what was sent. The port `name`, whose kind `reason` explains, says so.
fn forwards(net: &Net, name: &str, back: &str, reason: &str) {
    forwards_by(net, name, "tc", back);
    assert_eq!(port(net, name)["egress"]["reason"], reason);
}

/// The same by any datapaths.
fn forwards_by(net: &Net, name: &str, there: &str, back: &str) {
    wait_for("the fast datapaths", || takes(net, 4000, there, back));
    let said = port(net, name);
    assert_eq!(said["egress"]["datapath"], there, "{said}");
    exchanges(net);
    nft(
        &net.router,
        &format!(
            "table inet t {{ chain post {{ type nat hook postrouting priority srcnat; oifname {name} masquerade; }}; }}"
        ),
    );
    wait_for("translated sessions", || {
        assert_eq!(net.ask(0, 4003, 20), 20);
        let sessions = net.json("sessions --port 4003");
        let fast = |one: &&serde_json::Value| one["state"] == "fast" && one["nat"].is_object();
        let fast = sessions.iter().filter(fast).map(|one| one["datapath"].as_str().unwrap());
        let fast: Vec<_> = fast.collect();
        fast.len() == 2 && fast.contains(&there) && fast.contains(&back)
    });
    exchanges(net);
}

/// Datagrams, and a stream each way, which have to arrive as they were sent.
fn exchanges(net: &Net) {
    for family in 0..2 {
        assert_eq!(net.ask(family, 4002, 50), 50);
        net.tcp(family, 3_000_000, || {});
        net.tcp_back(family, 3_000_000);
    }
}

/// Why a device of this kind cannot be a port here.
fn missing(kind: &str) -> Option<String> {
    if let Some(reason) = unavailable() {
        return Some(reason.to_owned());
    }
    let namespace = Namespace::create("device").unwrap();
    ip(&namespace, "link add below type veth");
    let add = match kind.split(' ').next() {
        Some("vlan" | "macvlan") => format!("link add link below name probe type {kind}"),
        _ => format!("link add probe type {kind}"),
    };
    let there = namespace.command("ip").args(add.split(' ')).output().unwrap().status.success();
    (!there).then(|| format!("the kernel has no devices of type {kind}"))
}

/// Where `br_netfilter` is in the kernel, bridges translate packets before TC sees them.
fn leave_to_stack(net: &Net) {
    for family in ["iptables", "ip6tables"] {
        let key = format!("net.bridge.bridge-nf-call-{family}");
        if Path::new("/proc/sys").join(key.replace('.', "/")).exists() {
            net.router.sysctl(&key, "0").unwrap();
        }
    }
}

#[test]
fn a_bridge_is_a_port() {
    root_or_skip!();
    probe_or_skip!(missing("bridge"));
    let net = Net::new();
    ip_batch(
        &net.router,
        "link add br0 type bridge\n\
         link set right master br0\n\
         link set br0 up\n",
    );
    move_to(&net, "br0", "host");
    leave_to_stack(&net);
    let daemon = start(&net, "-i left -i br0");
    forwards(&net, "br0", "tc", "a bridge sends by its members");
    drop(daemon);
    net.stdout_of("detach");
    nft(&net.router, "flush ruleset");
    // What comes in at the member is a session of the member, if that is a port too.
    let daemon = start(&net, "-i left -i right -i br0");
    forwards(&net, "br0", "xdp", "a bridge sends by its members");
    drop(daemon);
    net.stdout_of("detach");
    let refused = net.refused("run -i left -i br0 --datapath xdp", 1);
    assert!(refused.contains("a bridge sends by its members"), "{refused}");
}

/// The server is in VLAN 7 of a bridge that filters VLANs, and the router on top of the bridge.
#[test]
fn a_vlan_of_a_filtering_bridge_is_a_port() {
    root_or_skip!();
    probe_or_skip!(missing("bridge vlan_filtering 1").or_else(|| missing("vlan id 7")));
    let net = Net::new();
    ip_batch(
        &net.router,
        "link add br0 type bridge vlan_filtering 1\n\
         link set right master br0\n\
         link set br0 up\n\
         link add link br0 name brvlan7 type vlan id 7\n\
         link set brvlan7 up\n",
    );
    run(
        &net.router,
        "bridge",
        &["vlan", "add", "vid", "7", "dev", "right", "pvid", "untagged"],
        "",
    );
    run(&net.router, "bridge", &["vlan", "add", "vid", "7", "dev", "br0", "self"], "");
    move_to(&net, "brvlan7", "host");
    leave_to_stack(&net);
    let _daemon = start(&net, "-i left -i brvlan7");
    forwards(&net, "brvlan7", "tc", "a vlan device sends through its lower device");
    // The bridge still filters.
    run(&net.router, "bridge", &["vlan", "del", "vid", "7", "dev", "right"], "");
    assert_eq!(net.ask_in_vain(0, 4002), 0);
}

#[test]
fn a_macvlan_is_a_port() {
    root_or_skip!();
    probe_or_skip!(missing("macvlan"));
    let net = Net::new();
    ip_batch(
        &net.router,
        "link add link right name mv0 type macvlan mode bridge\n\
         link set mv0 up\n",
    );
    move_to(&net, "mv0", "host");
    let _daemon = start(&net, "-i left -i mv0");
    forwards(&net, "mv0", "tc", "a macvlan device sends through its lower device");
}

/// A second cable between router and server, and bonds of this mode on both cables.
fn bonds(net: &Net, mode: &str) -> Veth {
    let second =
        Veth::create(&net.router, "right2", &net.server, "host2", VethOptions::default()).unwrap();
    second.b.set_offloads(false).unwrap();
    for (namespace, ends) in [(&net.router, ["right", "right2"]), (&net.server, ["host", "host2"])]
    {
        ip(namespace, &format!("link add bond0 type bond miimon 10 {mode}"));
        for end in ends {
            ip(namespace, &format!("link set {end} down"));
            ip(namespace, &format!("link set {end} master bond0"));
        }
        ip(namespace, "link set bond0 up");
    }
    move_to(net, "bond0", "bond0");
    second
}

#[test]
fn a_bond_with_a_backup_is_a_port() {
    root_or_skip!();
    probe_or_skip!(missing("bond"));
    let net = Net::new();
    let _second = bonds(&net, "mode active-backup fail_over_mac none");
    let _daemon = start(&net, "-i left -i bond0");
    forwards(&net, "bond0", "tc", "a bond sends by its members");
    // The other member takes over.
    ip(&net.router, "link set right down");
    // Until then packets are lost.
    wait_for("the backup", || net.ask_in_vain(0, 4004) == 2);
    wait_for("TC by the backup", || takes(&net, 4005, "tc", "tc"));
    exchanges(&net);
}

#[test]
fn a_bond_by_lacp_is_a_port() {
    root_or_skip!();
    probe_or_skip!(missing("bond"));
    let net = Net::new();
    let _second = bonds(&net, "mode 802.3ad lacp_rate fast xmit_hash_policy layer3+4");
    let _daemon = start(&net, "-i left -i bond0");
    forwards(&net, "bond0", "tc", "a bond sends by its members");
}

/// A router on a stick: client and server are in VLANs 8 and 7 of one trunk, with tags of both protocols.
#[test]
fn vlan_devices_of_one_trunk_are_ports() {
    root_or_skip!();
    probe_or_skip!(missing("vlan id 7"));
    let net = Net::new();
    ip_batch(
        &net.router,
        "link add link right name vlan7 type vlan id 7\n\
         link add link right name vlan8 type vlan proto 802.1ad id 8\n\
         link set vlan7 up\n\
         link set vlan8 up\n",
    );
    // In a batch it would leave the addresses of IPv6.
    ip(&net.router, "addr flush dev left");
    ip(&net.server, "link add link host name vlan7 type vlan id 7");
    ip(&net.server, "link set vlan7 up");
    move_to(&net, "vlan7", "vlan7");
    // The client's end of the trunk.
    ip(&net.server, "link add link host name vlan8 type vlan proto 802.1ad id 8");
    ip(&net.server, &format!("link set vlan8 netns /run/netns/{}", net.client.name()));
    ip(&net.client, "addr flush dev host");
    ip(&net.client, "link set vlan8 up");
    give(&net.client, "vlan8", ["10.9.1.2", "fd09:1::2", "fe80::2"]);
    give(&net.router, "vlan8", ["10.9.1.1", "fd09:1::1", "fe80::1"]);
    ip(&net.client, "route replace default via 10.9.1.1");
    ip(&net.client, "-6 route replace default via fd09:1::1");
    let daemon = start(&net, "-i vlan7 -i vlan8");
    forwards(&net, "vlan7", "tc", "a vlan device sends through its lower device");
    drop(daemon);
    net.stdout_of("detach");
    nft(&net.router, "flush ruleset");
    // With the trunk, whose sessions have the tag in the key, and that XDP sends by.
    let _daemon = start(&net, "-i right -i vlan7 -i vlan8");
    forwards_by(&net, "vlan7", "xdp", "xdp");
}

/// XDP sends what leaves by a VLAN device by the port below it, where nothing has to be obeyed on the way.
#[test]
fn a_vlan_device_is_a_port() {
    root_or_skip!();
    probe_or_skip!(missing("vlan id 7"));
    let net = Net::new();
    for (namespace, trunk) in [(&net.router, "right"), (&net.server, "host")] {
        ip(namespace, &format!("link add link {trunk} name vlan7 type vlan id 7"));
        ip(namespace, "link set vlan7 up");
    }
    move_to(&net, "vlan7", "vlan7");
    let _daemon = start(&net, "-i left -i right -i vlan7");
    forwards_by(&net, "vlan7", "xdp", "xdp");
    assert!(port(&net, "vlan7")["egress"]["reason"].is_null());
    for (family, longest) in [(0, 1472), (1, 1452)] {
        assert_eq!(net.ask_with(family, 4002, 20, longest), 20);
    }
    let tbf = "root tbf rate 100mbit burst 64kb latency 50ms";
    for (add, delete, reason) in [
        (format!("tc qdisc add dev vlan7 {tbf}"), "tc qdisc del dev vlan7 root", "qdisc tbf"),
        (
            format!("tc qdisc add dev right {tbf}"),
            "tc qdisc del dev right root",
            "qdisc tbf of the interface below",
        ),
        (
            "ip link set vlan7 type vlan egress-qos-map 0:3".to_owned(),
            "ip link set vlan7 type vlan egress-qos-map 0:0",
            "its egress-qos-map",
        ),
    ] {
        net.router_does(&add);
        wait_for(reason, || takes(&net, 4005, "tc", "xdp"));
        assert_eq!(port(&net, "vlan7")["egress"]["reason"], reason);
        net.router_does(delete);
        wait_for("XDP again", || takes(&net, 4005, "xdp", "xdp"));
    }
}

/// Nothing that the daemon does itself is a change to it: what it has attached, the devices above and the confirmation
/// of neighbours raise no generation, also while packets flow.
#[test]
fn a_network_that_stays_as_it_is_invalidates_nothing() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let net = Net::new();
    let mut ports = String::from("-i left -i right");
    for (kind, add, name) in [
        ("vlan id 7", "link add link right name vlan7 type vlan id 7", "vlan7"),
        ("bridge", "link add br0 type bridge", "br0"),
        ("macvlan", "link add link right name mv0 type macvlan mode bridge", "mv0"),
    ] {
        if missing(kind).is_none() {
            ip(&net.router, add);
            ip(&net.router, &format!("link set {name} up"));
            ports += &format!(" -i {name}");
        }
    }
    let daemon = start(&net, &format!("{ports} -vv"));
    let generation = || net.json("status")[0]["generation"].as_u64().unwrap();
    // Duplicate address detection and the bridge's own start are changes; they end.
    let mut last = generation();
    wait_for("the changes of the start to end", || {
        thread::sleep(Duration::from_secs(2));
        std::mem::replace(&mut last, generation()) == last
    });
    for _ in 0..20 {
        assert_eq!(net.ask(0, 4000, 10) + net.ask(1, 4000, 10), 20);
        thread::sleep(Duration::from_millis(200));
    }
    let now = generation();
    let (_, _, said) = daemon.interrupt();
    // The kernel tells of xtables in all network namespaces, which other tests may have changed.
    let of_others = said.lines().filter(|line| line.ends_with("causes=xtables")).count();
    assert!(now <= last + of_others as u64, "{last} to {now}: {said}");
}

/// Carries packets from one device to the other, with their virtio headers, until it is dropped.
struct Relay {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Between a device in each namespace.
    fn between(ends: [(&Namespace, &str); 2], kind: Kind) -> Self {
        let open = |(namespace, name): (&Namespace, &str)| -> Queue {
            let device = namespace.run(|| Device::builder(name).kind(kind).build());
            let queue = device.unwrap().unwrap().into_queues().remove(0);
            ip(namespace, &format!("link set {name} up"));
            queue
        };
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::new(ends.map(open));
        let carry = |from: usize| {
            let (ends, stop) = (ends.clone(), stop.clone());
            thread::spawn(move || {
                let mut buffer = vec![0; 1 << 17];
                while !stop.load(Ordering::Relaxed) {
                    match ends[from].receive(&mut buffer).unwrap() {
                        Some((header, length)) => {
                            while !ends[1 - from].send(&header, &buffer[..length]).unwrap() {}
                        }
                        None => thread::sleep(Duration::from_micros(100)),
                    }
                }
            })
        };
        let threads = vec![carry(0), carry(1)];
        Self { stop, threads }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

#[test]
fn a_tun_device_is_a_port() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let net = Net::new();
    let _relay = Relay::between([(&net.router, "tun0"), (&net.server, "tun0")], Kind::Tun);
    move_to(&net, "tun0", "tun0");
    let _daemon = start(&net, "-i left -i tun0");
    forwards(&net, "tun0", "tc", "a tun device has no Ethernet header");
}

/// The server is as a virtual machine behind a tap: it leaves checksums and segmentation to its card.
#[test]
fn a_tap_with_a_virtual_machine_is_a_port() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let net = Net::new();
    let _relay = Relay::between([(&net.router, "tap0"), (&net.server, "vm0")], Kind::Tap);
    move_to(&net, "tap0", "vm0");
    let _daemon = start(&net, "-i left -i tap0");
    wait_for("sessions", || takes(&net, 4000, "xdp", "tc"));
    exchanges(&net);
}

#[test]
fn a_wireguard_device_is_a_port() {
    root_or_skip!();
    probe_or_skip!(missing("wireguard"));
    let net = Net::new();
    ip(&net.router, "addr flush dev right");
    ip(&net.server, "addr flush dev host");
    ip(&net.router, "addr add 10.9.9.1/24 dev right");
    ip(&net.server, "addr add 10.9.9.2/24 dev host");
    let key = |namespace: &Namespace| run(namespace, "wg", &["genkey"], "");
    let keys = [&net.router, &net.server].map(key);
    for ((namespace, far), own) in [(&net.router, 2), (&net.server, 1)].into_iter().zip(0..) {
        let public = run(namespace, "wg", &["pubkey"], &keys[1 - own]);
        ip(namespace, "link add wg0 type wireguard");
        let config = format!(
            "[Interface]\nPrivateKey = {}\nListenPort = 51820\n[Peer]\nPublicKey = {}\n\
             AllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = 10.9.9.{far}:51820\n",
            keys[own].trim(),
            public.trim()
        );
        run(namespace, "wg", &["setconf", "wg0", "/proc/self/fd/0"], &config);
        ip(namespace, "link set wg0 up");
    }
    move_to(&net, "wg0", "wg0");
    ip(&net.router, "addr add 10.9.9.1/24 dev right");
    ip(&net.server, "addr add 10.9.9.2/24 dev host");
    let _daemon = start(&net, "-i left -i right -i wg0");
    forwards(&net, "wg0", "tc", "a wireguard device has no Ethernet header");
}

/// Why PPPoE is unavailable here.
fn missing_pppoe() -> Option<String> {
    if let Some(reason) = unavailable() {
        return Some(reason.to_owned());
    }
    let namespace = Namespace::create("device").unwrap();
    // It fails, but loads the module, which makes the device file.
    let _ = namespace.command("ip").args(["link", "add", "type", "ppp"]).output().unwrap();
    if !Path::new("/dev/ppp").exists() {
        return Some("the kernel has no PPP".into());
    }
    let is_there = |program: &&str| {
        let found = namespace.command("sh").args(["-c", &format!("command -v {program}")]).output();
        found.unwrap().status.success()
    };
    let missing = ["pppd", "pppoe-server"].into_iter().find(|program| !is_there(program));
    missing.map(|program| format!("{program} is not installed"))
}

/// `pppd` of the router against an access concentrator, which is the server.
#[test]
fn a_pppoe_uplink_is_a_port() {
    root_or_skip!();
    probe_or_skip!(missing_pppoe());
    let net = Net::new();
    let file = |name: &str| {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
    };
    let (options, logs) = (file("ppp"), [file("ppp-client"), file("ppp-server")]);
    let of_server = format!(
        "noauth\n+ipv6\nipv6 ::2,::1\nlcp-echo-interval 2\nlcp-echo-failure 2\ndebug\nlogfile {}\n",
        logs[1].display()
    );
    fs::write(&options, of_server).unwrap();
    for end in [&net.left.a, &net.right.a] {
        end.set_offloads(false).unwrap();
    }
    for end in [&net.router, &net.server] {
        // New interfaces of tests have no IPv6.
        end.sysctl("net.ipv6.conf.default.disable_ipv6", "0").unwrap();
    }
    let mut command = net.server.command_killed_with_parent("pppoe-server");
    command.args(["-F", "-I", "host", "-L", "10.9.2.2", "-R", "10.9.2.1", "-N", "1", "-O"]);
    let concentrator = Process::start(command.arg(&options));
    let mut command = net.router.command_killed_with_parent("pppd");
    command.args("plugin rp-pppoe.so nic-right noauth nodetach noipdefault".split(' '));
    command.args("ifname ppp0 mtu 1492 mru 1492 +ipv6 ipv6 ::1,::2 lcp-echo-interval 0".split(' '));
    let client = Process::start(command.args(["debug", "logfile"]).arg(&logs[0]));
    let is_up = |namespace: &Namespace| {
        let shown = run(namespace, "ip", &["-br", "addr", "show", "type", "ppp"], "");
        shown.contains("10.9.2.") && shown.contains("fe80::")
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_up(&net.router) || !is_up(&net.server) {
        if Instant::now() > deadline {
            let ends = [client, concentrator].map(|end| end.end(Signal::SIGTERM));
            let logs = logs.each_ref().map(fs::read_to_string);
            panic!("no link: {ends:#?}, {logs:#?}");
        }
        thread::sleep(Duration::from_millis(100));
    }
    ip(&net.router, "addr flush dev right");
    ip(&net.server, "addr flush dev host");
    ip(&net.router, "-6 addr add fd09:2::1/64 dev ppp0");
    ip(&net.server, "-6 addr add fd09:2::2/64 dev ppp0");
    ip(&net.server, "route replace default dev ppp0");
    ip(&net.server, "-6 route replace default dev ppp0");
    let _daemon = start(&net, "-i left -i right -i ppp0");
    forwards(&net, "ppp0", "tc", "a ppp device has no Ethernet header");
}

/// Frames of several buffers take XDP where the driver receives and sends them, as a veth does.
#[test]
fn jumbo_frames_take_xdp_in_several_buffers() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let net = Net::new();
    for end in [&net.left.a, &net.left.b, &net.right.a, &net.right.b] {
        end.set_mtu(9000).unwrap();
    }
    let _daemon = start(&net, "-i left -i right --datapath xdp");
    wait_for("XDP", || takes(&net, 4000, "xdp", "xdp"));
    exchanges(&net);
    assert_eq!(net.ask_with(0, 4000, 20, 8000), 20);
    let longest = |session: &serde_json::Value| session["bytes"].as_u64() > Some(20 * 8000);
    let sessions = net.json("sessions --port 4000");
    assert!(sessions.len() == 2 && sessions.iter().all(longest), "{sessions:?}");
    assert_eq!(net.count("too-big"), 0);
}

/// Where the driver has room for one buffer only, as a TAP has, TC forwards, and `status` says why.
#[test]
fn jumbo_frames_take_tc_where_xdp_has_no_room() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let net = Net::new();
    let _relay = Relay::between([(&net.router, "tap0"), (&net.server, "vm0")], Kind::Tap);
    for end in [&net.left.a, &net.left.b] {
        end.set_mtu(9000).unwrap();
    }
    ip(&net.router, "link set tap0 mtu 9000");
    ip(&net.server, "link set vm0 mtu 9000");
    move_to(&net, "tap0", "vm0");
    let refused = net.refused("run -i left -i tap0 --datapath xdp", 1);
    assert!(refused.contains("its MTU is 9000, and XDP has room for"), "{refused}");
    let _daemon = start(&net, "-i left -i tap0");
    wait_for("TC", || takes(&net, 4000, "tc", "tc"));
    exchanges(&net);
    assert_eq!(net.ask_with(0, 4000, 20, 8000), 20);
    assert_eq!(net.count("too-big"), 0);
    let said = port(&net, "tap0");
    for side in ["ingress", "egress"] {
        let reason = said[side]["reason"].as_str().unwrap();
        assert!(reason.starts_with("its MTU is 9000, and XDP has room for"), "{said}");
    }
    assert_eq!(port(&net, "left")["ingress"]["datapath"], "xdp");
}
