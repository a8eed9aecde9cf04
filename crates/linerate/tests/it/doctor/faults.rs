//! Each fault is made on a veth pair where all was well, and is found.

use std::path::Path;

use linerate_bpf::ingress_drop::{DropScope, IngressDrop};
use linerate_testkit::tools::compile_bpf;
use linerate_testkit::{Namespace, Process, Veth, VethOptions, root_or_skip, skip, wait_for};

use super::support::{Bed, Findings};
use crate::LINERATE;

/// A fault, as a line of shell, and the finding that it causes.
struct Fault {
    line: &'static str,
    /// Arguments of the doctor.
    arguments: &'static str,
    id: &'static str,
    severity: &'static str,
    words: &'static str,
}

const fn fault(
    line: &'static str,
    arguments: &'static str,
    id: &'static str,
    severity: &'static str,
    words: &'static str,
) -> Fault {
    Fault { line, arguments, id, severity, words }
}

/// Those that a line of shell makes.
const FAULTS: &[Fault] = &[
    fault("echo 0 >/proc/sys/net/ipv4/ip_forward", "forward", "forwarding", "fatal", "IPv4"),
    fault(
        "echo 0 >/proc/sys/net/ipv6/conf/all/forwarding",
        "forward",
        "forwarding",
        "note",
        "IPv6",
    ),
    fault(
        "echo 0 >/proc/sys/net/ipv4/conf/a/forwarding",
        "forward",
        "port",
        "warning",
        "does not forward",
    ),
    fault("echo 1 >/proc/sys/net/ipv4/conf/a/rp_filter", "receive", "rp-filter", "note", "strict"),
    fault("ip link set dev a down", "", "link", "fatal", "down"),
    fault("ip link set dev a down", "", "xdp-mode", "unknown", "not tried"),
    fault("ip -n $FAR link set dev b down", "", "link", "warning", "no carrier"),
    fault("ethtool -L a rx 1", "", "queues", "warning", "receive channels: 1 of 2"),
    fault("ethtool -L a rx 1", "", "xdp-mode", "warning", "refuses native XDP"),
    fault("ip link set dev a mtu 9000", "forward", "port", "warning", "MTU"),
    fault(
        "ip -n $FAR link set dev b mtu 9000",
        "capture",
        "xdp-mode",
        "warning",
        "refuses native XDP",
    ),
    fault("ethtool -K a gro on", "capture", "gro", "warning", "GRO"),
    fault("ethtool -K a gro on", "", "gro", "note", "GRO"),
    fault("ethtool -K a rx-gro-list on", "capture", "gro-list", "warning", "lists"),
    fault("ethtool -K a rx-udp-gro-forwarding on", "capture", "gro-forwarding", "warning", "UDP"),
    fault("ip netns exec $FAR ethtool -K b tx on", "forward", "port", "warning", "checksums"),
    fault("ip netns exec $FAR ethtool -K b txvlan on", "forward", "port", "warning", "VLAN tags"),
    fault("echo 1 >/sys/class/net/a/queues/rx-0/rps_cpus", "", "packet-steering", "note", "rx-0"),
    fault(
        "echo 2 >/sys/class/net/a/napi_defer_hard_irqs",
        "",
        "irq-deferral",
        "note",
        "napi_defer_hard_irqs is 2",
    ),
    fault("echo 20000 >/sys/class/net/a/gro_flush_timeout", "", "irq-deferral", "note", "20000 ns"),
    fault("ip neighbour add 10.9.9.9 dev a nud failed", "uplink", "neighbours", "note", "10.9.9.9"),
    fault(
        "tc qdisc add dev a root tbf rate 1gbit burst 1mb latency 1ms",
        "forward",
        "qdisc",
        "warning",
        "tbf",
    ),
    fault(
        "tc qdisc add dev a clsact; tc filter add dev a ingress protocol ip u32 match u32 0 0",
        "forward",
        "ingress-filter",
        "warning",
        "u32",
    ),
    fault(
        "tc qdisc add dev a clsact; tc filter add dev a egress protocol ip u32 match u32 0 0",
        "forward",
        "egress-filter",
        "warning",
        "u32",
    ),
    fault(
        "nft 'table netdev t { chain mine { type filter hook ingress device a priority 0; accept; }; }'",
        "forward",
        "ingress-filter",
        "warning",
        "chain mine",
    ),
    fault(
        "nft 'table ip t { chain f { type filter hook forward priority 0; ether saddr 02:00:00:00:00:01 drop; }; }'",
        "forward",
        "rules",
        "warning",
        "keeps sessions with the kernel: nftables ip t f handle 2",
    ),
    fault(
        "iptables-legacy -A FORWARD -j NFQUEUE --queue-num 7 --queue-bypass",
        "forward",
        "rules",
        "warning",
        "keeps sessions with the kernel: iptables",
    ),
    // What hides datagrams from sockets.
    fault(
        "echo 0 >/proc/sys/net/ipv4/ipfrag_low_thresh; echo 0 >/proc/sys/net/ipv4/ipfrag_high_thresh",
        "receive",
        "datagram-limits",
        "warning",
        "net.ipv4.ipfrag_high_thresh is 0",
    ),
    fault(
        "echo 0 >/proc/sys/net/ipv6/ip6frag_low_thresh; echo 0 >/proc/sys/net/ipv6/ip6frag_high_thresh",
        "receive",
        "datagram-limits",
        "warning",
        "net.ipv6.ip6frag_high_thresh is 0",
    ),
    fault(
        "echo 2 >/proc/sys/net/ipv4/igmp_max_memberships",
        "receive",
        "datagram-limits",
        "warning",
        "igmp_max_memberships is 2",
    ),
    fault(
        "ip rule del pref 0; ip rule add pref 9 to 10.9.0.0/16 lookup main; ip rule add pref 10 lookup local",
        "receive",
        "routing-rules",
        "warning",
        "rule 9 of IPv4 is asked before",
    ),
    fault(
        "ip -6 rule add pref 7 blackhole",
        "receive",
        "routing-rules",
        "note",
        "rule 7 of IPv6 refuses",
    ),
    fault(
        "ip rule add pref 8 fwmark 1 lookup main",
        "forward",
        "routing-rules",
        "note",
        "rule 8 of IPv4 selects",
    ),
    fault(
        "nft 'table ip t { chain i { type filter hook input priority 0; udp dport 7 drop; }; }'",
        "receive",
        "input-filter",
        "note",
        "nftables chain t i may drop IPv4",
    ),
    fault(
        "nft 'table ip6 t { chain i { type filter hook input priority 0; policy drop; }; }'",
        "receive",
        "input-filter",
        "note",
        "nftables chain t i may drop IPv6",
    ),
    fault(
        "iptables-legacy -A INPUT -p udp -j DROP",
        "receive",
        "input-filter",
        "note",
        "iptables chain filter",
    ),
    fault(
        "nft 'table netdev t { chain mine { type filter hook ingress device a priority 0; accept; }; }'",
        "receive",
        "input-filter",
        "note",
        "chain t mine",
    ),
    fault(
        "tc qdisc add dev a clsact; tc filter add dev a ingress protocol ip u32 match u32 0 0",
        "receive",
        "ingress-filter",
        "note",
        "u32",
    ),
    fault(
        "ip link set dev a arp off",
        "receive",
        "addresses",
        "warning",
        "address resolution is off",
    ),
    fault("ip link set dev a multicast off", "receive", "addresses", "note", "multicast is off"),
    fault("ip link set dev a mtu 1000", "receive", "addresses", "note", "its MTU is 1000"),
    fault(
        "ip link add c type veth peer name e; ip addr add 10.9.0.1/24 dev a; ip addr add 10.9.0.1/24 dev c",
        "receive",
        "addresses",
        "warning",
        "10.9.0.1 is also an address of c",
    ),
    fault(
        "ip link add bridge0 type bridge; ip addr add 10.9.0.1/24 dev a; ip link set dev a master bridge0",
        "receive",
        "addresses",
        "warning",
        "a port of bridge0, which receives in its place",
    ),
    fault(
        "echo 1 >/proc/sys/net/ipv4/conf/a/rp_filter; ip addr add 10.9.0.1/24 dev a; \
         ip -n $FAR addr add 198.51.100.1/32 dev b; ip -n $FAR route add 10.9.0.1 dev b src 198.51.100.1; \
         ip -n $FAR neighbour add 10.9.0.1 lladdr $(cat /sys/class/net/a/address) dev b; \
         for _ in $(seq 100); do ip netns exec $FAR bash -c 'echo >/dev/udp/10.9.0.1/9'; \
         nstat -asz TcpExtIPReversePathFilter | grep -qE 'Filter +[1-9]' && break; \
         sleep 0.1; done",
        "receive",
        "datagram-losses",
        "note",
        "the reverse path filter refused their source",
    ),
];

/// The finding is there after the fault, and was not there before.
#[track_caller]
fn check(fault: &Fault, before: &Findings, after: &Findings) {
    let Fault { line, id, severity, words, .. } = fault;
    let seen = |findings: &Findings| findings.get(id, severity, words).is_some();
    assert!(!seen(before), "before {line}: {id} {severity} {words}: {:#}", before.report);
    assert!(seen(after), "after {line}: {id} {severity} {words}: {:#}", after.report);
    let expected = match after.report["counts"].clone() {
        counts if counts["fatal"] != 0 => 4,
        counts if counts["warning"] != 0 => 3,
        _ => 0,
    };
    assert_eq!(after.status, expected, "{line}");
}

#[test]
fn faults_are_found() {
    root_or_skip!();
    for fault in FAULTS {
        let bed = Bed::new();
        let before = bed.findings(fault.arguments);
        bed.run(fault.line);
        check(fault, &before, &bed.findings(fault.arguments));
    }
}

/// Faults of the process that asks, and of the file systems that it sees: they stand before the command.
#[test]
fn faults_around_the_process_are_found() {
    root_or_skip!();
    let private = "mount --make-rprivate /;";
    let bpffs = format!("{private} mount -t bpf bpf /sys/fs/bpf;");
    let no_types = format!("{private} mount -t tmpfs none /sys/kernel/btf;");
    let without =
        |capability: &str| format!("setpriv --bounding-set -{capability} --inh-caps -{capability}");
    // CAP_SYS_ADMIN includes these.
    let without_admin = |capability| {
        without("sys_admin").replace("-sys_admin", &format!("-sys_admin,-{capability}"))
    };
    let user = "unshare --user --map-root-user".to_owned();
    let cases = [
        (bpffs.clone(), String::new(), "forward", "bpffs", "fatal", "/sys/fs/bpf"),
        (String::new(), no_types, "capture", "btf", "warning", "/sys/kernel/btf"),
        (
            String::new(),
            without("sys_admin").replace("-sys_admin", "-sys_admin,-perfmon"),
            "capture",
            "tracing",
            "unknown",
            "CAP_PERFMON",
        ),
        (String::new(), "taskset -c 0".into(), "", "cpus", "warning", "1 of "),
        (String::new(), without("net_raw"), "capture", "capabilities", "fatal", "CAP_NET_RAW"),
        (String::new(), without("net_admin"), "uplink", "capabilities", "fatal", "CAP_NET_ADMIN"),
        (String::new(), without_admin("bpf"), "forward", "capabilities", "fatal", "CAP_BPF"),
        (
            String::new(),
            without_admin("perfmon"),
            "forward",
            "capabilities",
            "fatal",
            "CAP_PERFMON",
        ),
        (String::new(), user, "capture", "capabilities", "fatal", "another user namespace"),
        (String::new(), without("sys_admin"), "capture", "capabilities", "note", "CAP_SYS_ADMIN"),
        (
            String::new(),
            format!("prlimit --memlock=8388608:8388608 {}", without("ipc_lock")),
            "capture",
            "memlock",
            "warning",
            "8192 KiB",
        ),
        (
            String::new(),
            "prlimit --nofile=64:64".into(),
            "capture",
            "limits",
            "warning",
            "open no more than 64 at once",
        ),
        (
            String::new(),
            "prlimit --fsize=9999999:9999999".into(),
            "capture",
            "limits",
            "warning",
            "9999999 bytes",
        ),
        (String::new(), "chrt --idle 0".into(), "receive", "limits", "warning", "SCHED_IDLE"),
        (
            String::new(),
            format!("setpriv --no-new-privs {}", &without("net_raw")["setpriv ".len()..]),
            "capture",
            "capabilities",
            "note",
            "no_new_privs",
        ),
    ];
    if linerate_net::cpu::online().len() < 2 {
        skip!("needs two CPUs");
    }
    let bed = Bed::new();
    for (well, fault_line, arguments, id, severity, words) in &cases {
        let fault = Fault { line: "as before", arguments, id, severity, words };
        let (before, after) =
            (bed.findings_after(well, arguments), bed.findings_after(fault_line, arguments));
        check(&fault, &before, &after);
    }
}

/// The finding about tracing agrees with a capture by tracing.
#[test]
fn tracing_is_judged_as_a_capture_finds_it() {
    root_or_skip!();
    let bed = Bed::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/doctor/pass.bpf.c");
    let object = compile_bpf(source.as_ref(), Path::new(env!("CARGO_TARGET_TMPDIR")));
    bed.run(&format!("ip link set dev a xdpgeneric obj {} sec xdp", object.display()));
    let mut capture = bed.near.command(LINERATE);
    capture.args("capture -i a --source trace --discard -a duration:0.1".split(' '));
    let captured = capture.output().unwrap().status.success();
    let found = bed.findings("capture --check tracing --all");
    let severity = if captured { "ok" } else { "warning" };
    assert!(found.get("tracing", severity, "trace").is_some(), "{captured}: {:#}", found.report);
    let untried = bed.findings("capture --check tracing --all --no-attach");
    assert!(untried.get("tracing", "unknown", "--no-attach").is_some(), "{:#}", untried.report);
}

/// Programs of others: in the place of XDP, at tcx, with packet sockets.
#[test]
fn programs_of_others_are_found_with_who_holds_them() {
    root_or_skip!();
    let bed = Bed::new();
    let before = bed.findings("");
    let found = |arguments: &str, line, id, severity, words| {
        let fault = Fault { line, arguments: "", id, severity, words };
        let after = bed.findings(arguments);
        check(&fault, &before, &after);
        after
    };

    // Held by the interface.
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/doctor/pass.bpf.c");
    let object = compile_bpf(source.as_ref(), Path::new(env!("CARGO_TARGET_TMPDIR")));
    bed.run(&format!("ip link set dev a xdpgeneric obj {} sec xdp", object.display()));
    let after = found("", "a foreign program", "xdp-program", "fatal", "\"somebody\"");
    let program = after.get("xdp-program", "warning", "held by no process").unwrap();
    let command = program["command"].as_str().unwrap();
    assert_eq!(command, "ip link set dev a xdpgeneric off");
    assert_eq!(program["jobs"], serde_json::json!(["capture", "receive", "uplink"]));
    bed.run(command);

    // Held by a process.
    let mut capture = bed.near.command(LINERATE);
    capture.args(["capture", "-i", "a", "--source", "xdp", "--discard"]);
    let mut capture = Process::start(&mut capture);
    capture.until("listening on");
    let after = found("", "a capture by XDP", "xdp-program", "note", "linerate");
    let holder = format!("(process {})", capture.id());
    assert!(after.get("xdp-program", "note", &holder).is_some(), "{:#}", after.report);
    assert!(after.get("xdp-mode", "ok", "native").is_some(), "{:#}", after.report);
    capture.stop();

    let mut capture = bed.near.command(LINERATE);
    capture.args(["capture", "-i", "a", "--source", "packet", "--discard"]);
    let mut capture = Process::start(&mut capture);
    capture.until("listening on");
    found("", "a capture by a packet socket", "packet-sockets", "note", "linerate (process");
    capture.stop();

    let program = bed.near.run(|| IngressDrop::attach("a", DropScope::ByAddress)).unwrap();
    let _program = match program {
        Ok(program) => program,
        Err(error @ linerate_bpf::Error::System { .. }) => skip!(&format!("tcx: {error}")),
        Err(error) => panic!("{error}"),
    };
    found("", "a tcx program", "tcx", "note", "1 for what comes in");
}

/// Datagrams that a socket has no room for are counted.
#[test]
fn datagrams_that_nobody_reads_are_found() {
    root_or_skip!();
    let bed = Bed::new();
    bed.run("ip link set dev lo up");
    let before = bed.findings("receive");
    let send = || {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        (0..2000).for_each(|_| _ = socket.send_to(&[0; 1000], address));
    };
    bed.near.run(send).unwrap();
    let fault = Fault {
        line: "a socket that nobody reads",
        arguments: "receive",
        id: "datagram-losses",
        severity: "note",
        words: "the buffer of their socket was full",
    };
    check(&fault, &before, &bed.findings("receive"));
}

/// Checks of the machine, which a namespace cannot make healthy.
const MACHINE: &[&str] =
    &["tracing", "btf", "bpf-jit", "clock-source", "cpu-frequency", "idle-states", "cpus"];

/// A desktop behind a firewall, a router with NAT, a sensor without addresses: no alarm, and a screen at most.
#[test]
fn healthy_hosts_are_left_alone() {
    root_or_skip!();
    let desktop = "ip addr add 10.9.0.2/24 dev a; ip route add default via 10.9.0.1; \
        for key in net.ipv4.ip_forward net.ipv6.conf.all.forwarding; do sysctl -qw $key=0; done; \
        nft 'table inet f { chain i { type filter hook input priority 0; policy drop; iif lo accept; \
             ct state established,related accept; }; }'";
    let router = "ip link add c numrxqueues 2 numtxqueues 2 type veth peer name e numrxqueues 2 numtxqueues 2; \
        ip link set dev c up; ip link set dev e up; ip addr add 10.9.0.1/24 dev a; \
        ip addr add 10.8.0.1/24 dev c; \
        nft 'table ip n { chain p { type nat hook postrouting priority 100; oifname c masquerade; }; \
             chain f { type filter hook forward priority 0; policy drop; ct state established,related accept; \
                       iifname a accept; }; }'";
    let sensor = "sysctl -qw net.ipv6.conf.a.disable_ipv6=1; ip link set dev a promisc on; \
        for key in net.ipv4.ip_forward net.ipv6.conf.all.forwarding; do sysctl -qw $key=0; done";
    let mounted = "mount --make-rprivate /; mount -t bpf bpf /sys/fs/bpf;";
    for (setup, jobs) in [(desktop, "capture receive"), (router, "forward"), (sensor, "capture")] {
        let bed = Bed::new();
        bed.run(setup);
        let found = bed.findings_after(mounted, jobs);
        let alarms: Vec<_> = found.report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| {
                let is_alarm = one["severity"] == "fatal" || one["severity"] == "warning";
                is_alarm && !MACHINE.contains(&one["id"].as_str().unwrap())
            })
            .collect();
        assert!(alarms.is_empty(), "{jobs}: {alarms:#?}");
        let plain = bed.shell(&format!("{mounted} $LINERATE doctor"));
        let text = String::from_utf8(plain.stdout).unwrap();
        assert_eq!(plain.status.code(), Some(0), "{jobs}: {text}");
        assert!(text.lines().count() <= 24, "{text}");
        assert_eq!(text.contains("forward is not examined"), jobs != "forward", "{text}");
    }
}

/// A frame of a protocol that nobody here speaks is dropped, and counted.
#[test]
fn lost_frames_are_found() {
    root_or_skip!();
    let bed = Bed::new();
    let before = bed.findings("");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("unknown.pcap");
    std::fs::write(&file, capture_of_an_unknown_protocol()).unwrap();
    let send = || {
        let mut replay = bed.far.command(LINERATE);
        let sent = replay.args(["replay", "-i", "b"]).arg(&file).output().unwrap();
        assert!(sent.status.success(), "{sent:?}");
        bed.veth.a.statistics().unwrap().rx_dropped > 0
    };
    wait_for("a dropped frame", send);
    let fault = Fault {
        line: "a frame of an unknown protocol",
        arguments: "",
        id: "losses",
        severity: "note",
        words: "dropped received frames",
    };
    check(&fault, &before, &bed.findings(""));
}

/// One broadcast frame with an EtherType for local experiments (0x88B5, IEEE 802), as a pcap file.
fn capture_of_an_unknown_protocol() -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame.resize(60, 0);
    let header: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1];
    let record = [0, 0, frame.len() as u32, frame.len() as u32];
    let numbers = header.iter().chain(&record).flat_map(|number| number.to_le_bytes());
    numbers.chain(frame).collect()
}

/// The name of a process is what counts.
#[test]
fn a_process_that_moves_interrupts_is_found() {
    root_or_skip!();
    let bed = Bed::new();
    let before = bed.findings("receive");
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("irqbalance");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let _process = Process::start(bed.near.command(&program).arg("60"));
    let fault = Fault {
        line: "irqbalance",
        arguments: "receive",
        id: "irqbalance",
        severity: "note",
        words: "running",
    };
    check(&fault, &before, &bed.findings("receive"));
}

/// The peer of a veth in the same namespace decides whether tags are in the frames.
#[test]
fn tags_that_the_peer_leaves_out_are_found() {
    root_or_skip!();
    let near = Namespace::create("doc-tags").unwrap();
    let _veth = Veth::create(&near, "a", &near, "b", VethOptions::default()).unwrap();
    let find = || {
        let doctor = ["doctor", "--json", "-i", "a"];
        let output = near.command(LINERATE).args(doctor).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = report["findings"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["id"] == "vlan-strip").unwrap()
    };
    let found = find();
    assert_eq!((&found["severity"], &found["fixable"]), (&"note".into(), &true.into()), "{found}");
    assert_eq!(found["command"], "ethtool -K b tx-vlan-hw-insert off");
    near.interface("b").unwrap().set_features(&[("tx-vlan-hw-insert", false)]).unwrap();
    assert_eq!(find()["severity"], "ok");
}
