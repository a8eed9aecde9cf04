//! A TUN device shares the interface with the host: the kernel finds the neighbours, and everything that is
//! not for the device's addresses stays the host's.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use linerate_bpf::link::has_tcx_ingress_program;
use linerate_testkit::tools::{ip, run};
use linerate_testkit::{
    Mac, Namespace, Process, Veth, VethOptions, root_or_skip, uninterrupted, wait_for,
};
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use serde_json::Value;

use super::support::{FAR, Hosts, NEAR, count, give_addresses, tcp, udp};
use crate::LINERATE;

/// Addresses of the host on the veth pair, beside those of the device.
const HOST: [(&str, u8); 2] = [("10.8.0.9", 24), ("fd08::9", 64)];

/// What every interface with IPv6 has, but for those in namespaces of tests: without it nobody can be asked
/// who has an IPv6 address.
const LINK_LOCAL: (&str, u8) = ("fe80::9", 64);

/// A host with its own addresses on the veth pair, and a guest for the device.
struct Shared {
    hosts: Hosts,
    guest: Namespace,
}

impl Shared {
    fn new() -> Self {
        let hosts = Hosts::new();
        for (address, prefix) in HOST.into_iter().chain([LINK_LOCAL]) {
            hosts.veth.a.add_address(address.parse().unwrap(), prefix).unwrap();
        }
        Self { hosts, guest: Namespace::create("upl-guest").unwrap() }
    }

    /// Starts an uplink with its TUN device in the guest.
    fn uplink(&self, arguments: &str) -> Process {
        let uplink = self.hosts.tun(&format!("--netns {} {arguments}", self.guest.name()));
        give_addresses(&self.guest);
        uplink
    }

    /// TCP both ways over IPv4 and IPv6, between guest and peer and between host and peer.
    fn talk(&self, bytes: usize) {
        for ((near, host), far) in NEAR.iter().zip(HOST).zip(FAR) {
            tcp(&self.guest, &self.hosts.far, far.0, bytes);
            tcp(&self.hosts.far, &self.guest, near.0, bytes);
            tcp(&self.hosts.near, &self.hosts.far, far.0, bytes);
            tcp(&self.hosts.far, &self.hosts.near, host.0, bytes);
        }
    }
}

/// Sends to a port where nobody listens, which the host at `address` is to say by ICMP; whether it does.
fn answers(from: &Namespace, address: &str) -> bool {
    let any = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = from.run(|| UdpSocket::bind(any)).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket.connect((address, 9)).unwrap();
    socket.send(b"anybody?").is_ok()
        && uninterrupted(|| socket.recv(&mut [0; 8]))
            .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Has `address` answer by ICMP.
fn knock(from: &Namespace, address: &str) {
    wait_for(&format!("{address} does not answer"), || answers(from, address));
}

fn none_unsplit(report: &Value) {
    assert_eq!(report["unsplit"], serde_json::json!({}), "{report}");
    assert_eq!(report["kind"], "tun", "{report}");
}

#[test]
fn guest_and_host_share_the_interface() {
    root_or_skip!();
    for arguments in ["--backend xdp", "--backend packet", "--backend xdp --no-offload"] {
        let shared = Shared::new();
        let uplink = shared.uplink(arguments);
        for (near, far) in NEAR.iter().zip(FAR) {
            knock(&shared.guest, far.0);
            knock(&shared.hosts.far, near.0);
        }
        shared.talk(2 << 20);
        for (near, far) in NEAR.iter().zip(FAR) {
            udp(&shared.guest, &shared.hosts.far, far.0, &[1, 1400, 30_000], 0);
            udp(&shared.hosts.far, &shared.guest, near.0, &[1, 1400, 30_000], 0);
            udp(&shared.guest, &shared.hosts.far, far.0, &[30_000; 4], 1000);
            udp(&shared.hosts.far, &shared.guest, near.0, &[30_000; 4], 1000);
        }
        let report = uplink.stop();
        none_unsplit(&report);
        let (supers, segments) =
            (count(&report, "tx.super_packets"), count(&report, "tx.segments"));
        let offloads = !arguments.contains("--no-offload");
        assert_eq!(offloads, supers > 0, "{arguments}: {report}");
        assert!(!offloads || segments > 4 * supers, "{arguments}: {report}");
        assert_eq!(offloads, count(&report, "rx.super_packets") > 0, "{arguments}: {report}");
        assert!(count(&report, "rx.neighbour_replies") >= 2, "{arguments}: {report}");
        // The host is alone again, and no host has the device's addresses.
        assert!(shared.guest.interface("up0").is_err());
        tcp(&shared.hosts.near, &shared.hosts.far, FAR[0].0, 100_000);
    }
}

#[test]
fn the_interface_may_get_another_hardware_address() {
    root_or_skip!();
    let other = Mac([2, 0, 0, 0, 0x0c, 1]);
    let forget = |hosts: &Hosts| {
        for family in ["-4", "-6"] {
            ip(&hosts.far, &format!("{family} neigh flush dev plain"));
        }
    };
    for arguments in ["--backend xdp", "--backend packet"] {
        let shared = Shared::new();
        let mut uplink = shared.uplink(arguments);
        shared.talk(100_000);
        shared.hosts.veth.a.set_mac(other).unwrap();
        uplink.until(&format!("has the hardware address {other} now"));
        forget(&shared.hosts);
        shared.talk(100_000);
        let neighbour = run(&shared.hosts.far, "ip", &["neigh", "show", NEAR[0].0], "");
        assert!(neighbour.contains(&other.to_string()), "{arguments}: {neighbour}");
        let report = uplink.stop();
        assert_eq!(report["mac"], other.to_string(), "{report}");

        // A TAP device has its own address, and keeps it.
        let hosts = Hosts::new();
        let mut uplink = hosts.uplink(arguments);
        hosts.talk(100_000);
        hosts.veth.a.set_mac(other).unwrap();
        uplink.until("has the hardware address");
        forget(&hosts);
        hosts.talk(100_000);
        uplink.stop();
    }
}

#[test]
fn a_device_in_the_host_itself_works_too() {
    root_or_skip!();
    let hosts = Hosts::new();
    hosts.veth.a.add_address(LINK_LOCAL.0.parse().unwrap(), LINK_LOCAL.1).unwrap();
    // Without a route through the interface there are no IPv6 neighbours; for IPv4 the kernel then takes
    // everybody for one.
    ip(&hosts.near, "route add fd08::/64 dev wire metric 2048");
    let uplink = hosts.tun("");
    give_addresses(&hosts.near);
    hosts.talk(1 << 20);
    none_unsplit(&uplink.stop());
}

#[test]
fn addresses_may_come_and_go() {
    root_or_skip!();
    let shared = Shared::new();
    let uplink = shared.uplink("");
    let device = shared.guest.interface("up0").unwrap();
    tcp(&shared.hosts.far, &shared.guest, NEAR[0].0, 100_000);
    let second = "10.8.0.33";
    device.add_address(second.parse().unwrap(), 24).unwrap();
    tcp(&shared.hosts.far, &shared.guest, second, 100_000);
    // Nobody has it any more: neither the guest nor the host answers.
    ip(&shared.guest, "addr del 10.8.0.33/24 dev up0");
    ip(&shared.hosts.far, "neigh flush all");
    wait_for("somebody answers", || {
        assert!(!answers(&shared.hosts.far, second));
        run(&shared.hosts.far, "ip", &["neigh", "show", second], "").contains("FAILED")
    });
    uplink.stop();
}

#[test]
fn packets_for_elsewhere_go_through_the_gateway_of_the_host() {
    root_or_skip!();
    let shared = Shared::new();
    let far = &shared.hosts.far;
    let beyond = Namespace::create("upl-beyond").unwrap();
    let cable = Veth::create(far, "in", &beyond, "out", VethOptions::default()).unwrap();
    for (router, end, net, host) in
        [("10.9.0.1", "10.9.0.2", "10.9.0.0", FAR[0].0), ("fd09::1", "fd09::2", "fd09::", FAR[1].0)]
    {
        let len = if net.contains(':') { 64 } else { 24 };
        cable.a.add_address(router.parse().unwrap(), len).unwrap();
        cable.b.add_address(end.parse().unwrap(), len).unwrap();
        let any = if net.contains(':') { "::" } else { "0.0.0.0" };
        beyond.add_route(any.parse().unwrap(), 0, router.parse().unwrap()).unwrap();
        // The host's routes count, not those of the guest, which have no next hop.
        shared.hosts.near.add_route(net.parse().unwrap(), len, host.parse().unwrap()).unwrap();
    }
    for end in [&cable.a, &shared.hosts.veth.b] {
        end.add_address("fe80::1".parse().unwrap(), 64).unwrap();
    }
    far.set_forwarding(true).unwrap();
    let uplink = shared.uplink("");
    for net in ["10.9.0.0/24", "fd09::/64"] {
        ip(&shared.guest, &format!("route add {net} dev up0"));
    }
    for end in ["10.9.0.2", "fd09::2"] {
        tcp(&shared.guest, &beyond, end, 1 << 20);
    }
    none_unsplit(&uplink.stop());
}

#[test]
fn a_neighbour_that_changes_its_address_is_followed() {
    root_or_skip!();
    for backend in ["xdp", "packet"] {
        let shared = Shared::new();
        let uplink = shared.uplink(&format!("--backend {backend}"));
        tcp(&shared.guest, &shared.hosts.far, FAR[0].0, 100_000);
        // It says so, as one that takes over from another does, and the host's kernel hears of it.
        shared.hosts.far.sysctl("net/ipv4/conf/plain/arp_notify", "1").unwrap();
        shared.hosts.veth.b.set_mac(Mac([2, 0, 0, 0, 0, 0x77])).unwrap();
        tcp(&shared.guest, &shared.hosts.far, FAR[0].0, 100_000);
        uplink.stop();
    }
}

#[test]
fn a_neighbour_is_heard_that_changes_its_address_and_asks_for_the_device_alone() {
    root_or_skip!();
    for backend in ["xdp", "packet"] {
        let shared = Shared::new();
        // The kernel itself does not ask again: the neighbour's request for the device is all that is heard of it.
        for family in ["ipv4", "ipv6"] {
            let delay = format!("net/{family}/neigh/wire/delay_first_probe_time");
            shared.hosts.near.sysctl(&delay, "1000").unwrap();
        }
        let uplink = shared.uplink(&format!("--backend {backend}"));
        for (number, (near, far)) in NEAR.iter().zip(FAR).enumerate() {
            tcp(&shared.guest, &shared.hosts.far, far.0, 1000);
            let mac = Mac([2, 0, 0, 0, 1, number as u8]);
            shared.hosts.veth.b.set_mac(mac).unwrap();
            tcp(&shared.hosts.far, &shared.guest, near.0, 1000);
            let entry =
                shared.hosts.near.command("ip").args(["neigh", "show", far.0]).output().unwrap();
            let entry = String::from_utf8_lossy(&entry.stdout).into_owned();
            assert!(entry.contains(&mac.to_string()), "{entry}");
        }
        uplink.stop();
    }
}

#[test]
fn a_gateway_that_is_not_there_is_named_and_its_packets_are_counted() {
    root_or_skip!();
    let shared = Shared::new();
    let nowhere = "10.8.0.200";
    let mut uplink = shared.uplink("");
    let socket = shared.guest.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    for _ in 0..300 {
        socket.send_to(b"anybody?", (nowhere, 9)).unwrap();
    }
    uplink.until(&format!("nobody answers for {nowhere} on wire"));
    // No route at all: IPv6 has none that would be assumed.
    let six = shared.guest.run(|| UdpSocket::bind("[::]:0")).unwrap().unwrap();
    ip(&shared.guest, "route add 2001:db8::/32 dev up0");
    six.send_to(b"anybody?", ("2001:db8::1", 9)).unwrap();
    // Others are not held up by it.
    tcp(&shared.guest, &shared.hosts.far, FAR[0].0, 100_000);
    let report = uplink.stop();
    let (lost, full) =
        (count(&report, "dropped.unreachable"), count(&report, "dropped.unresolved"));
    assert_eq!(lost + full, 301, "{report}");
    assert!(lost >= 101, "{report}");
}

/// The error that a connected socket hears of after it has sent `bytes` bytes.
fn heard(from: &Namespace, address: &str, bytes: usize) -> Option<std::io::Error> {
    let any = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = from.run(|| UdpSocket::bind(any)).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // Without this, UDP hears of errors only that are for good.
    match address.contains(':') {
        true => setsockopt(&socket, sockopt::Ipv6RecvErr, &true).unwrap(),
        false => setsockopt(&socket, sockopt::Ipv4RecvErr, &true).unwrap(),
    }
    socket.connect((address, 9)).unwrap();
    socket.send(&vec![0; bytes]).unwrap();
    uninterrupted(|| socket.recv(&mut [0; 8])).err()
}

#[test]
fn the_stack_hears_why_packets_do_not_go_on_as_on_the_interface() {
    root_or_skip!();
    let shared = Shared::new();
    let uplink = shared.uplink("");
    for (nobody, family) in [("10.8.0.200", 0), ("fd08::200", 1)] {
        let plain = heard(&shared.hosts.near, nobody, 8).and_then(|error| error.raw_os_error());
        let through = heard(&shared.guest, nobody, 8).and_then(|error| error.raw_os_error());
        assert_eq!((plain, through), (Some(nix::libc::EHOSTUNREACH), plain), "{nobody}");
        // TCP gives up at once too.
        let refused = shared.guest.run(|| std::net::TcpStream::connect((nobody, 9))).unwrap();
        let refused = refused.expect_err("nobody is there").raw_os_error();
        assert_eq!(refused, Some(nix::libc::EHOSTUNREACH), "{nobody}");
        udp(&shared.guest, &shared.hosts.far, FAR[family].0, &[1000], 0);
    }
    // A device whose MTU is raised above the interface's: senders learn of the interface's.
    ip(&shared.guest, "link set up0 mtu 9000");
    for (far, _) in FAR {
        let error = heard(&shared.guest, far, 4000).and_then(|error| error.raw_os_error());
        assert_eq!(error, Some(nix::libc::EMSGSIZE), "{far}");
        tcp(&shared.guest, &shared.hosts.far, far, 1 << 20);
    }
    let report = uplink.stop();
    assert!(count(&report, "rx.icmp_errors") >= 6, "{report}");
    assert!(count(&report, "dropped.too_long") >= 2, "{report}");
}

#[test]
fn the_interface_may_go_down_and_up() {
    root_or_skip!();
    let shared = Shared::new();
    let mut uplink = shared.uplink("");
    knock(&shared.guest, FAR[0].0);
    shared.hosts.veth.a.down().unwrap();
    uplink.until("interface wire is down");
    shared.hosts.veth.a.up().unwrap();
    uplink.until("interface wire is up again");
    knock(&shared.guest, FAR[0].0);
    knock(&shared.hosts.far, NEAR[0].0);
    uplink.stop();
}

#[test]
fn a_tun_device_leaves_nothing_behind_and_one_thread_one_capability() {
    root_or_skip!();
    const NET_ADMIN: u64 = 1 << 12;
    let shared = Shared::new();
    let index = shared.hosts.veth.a.index();
    for (backend, signal) in
        [("xdp", Signal::SIGTERM), ("packet", Signal::SIGTERM), ("packet", Signal::SIGKILL)]
    {
        let uplink = shared.uplink(&format!("--backend {backend}"));
        let tasks = format!("/proc/{}/task", uplink.id());
        let capabilities = || -> Vec<u64> {
            let tasks = std::fs::read_dir(&tasks).unwrap();
            let effective = |task: std::fs::DirEntry| {
                let status = std::fs::read_to_string(task.path().join("status")).ok()?;
                let line = status.lines().find_map(|line| line.strip_prefix("CapEff:\t"))?;
                u64::from_str_radix(line, 16).ok()
            };
            tasks.flatten().filter_map(effective).filter(|set| *set != 0).collect()
        };
        wait_for("capabilities", || capabilities() == [NET_ADMIN]);
        knock(&shared.guest, FAR[0].0);
        uplink.signal(signal);
        uplink.wait();
        wait_for("a device or a program is left", || {
            let guarded =
                shared.hosts.near.run(|| has_tcx_ingress_program(index).unwrap()).unwrap();
            !guarded
                && !shared.hosts.veth.a.has_xdp().unwrap()
                && shared.guest.interface("up0").is_err()
        });
    }
}

#[test]
fn a_port_of_a_bridge_is_refused_and_told_why() {
    root_or_skip!();
    let hosts = Hosts::new();
    ip(&hosts.near, "link add br0 type bridge");
    ip(&hosts.near, "link set wire master br0");
    let mut command = hosts.near.command(LINERATE);
    let output = command.args(["uplink", "--tun", "up0", "-i", "wire"]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && printed.contains("port of br0"), "{printed}");
}

#[test]
fn the_host_refuses_what_the_guest_does_not_have() {
    root_or_skip!();
    let shared = Shared::new();
    let uplink = shared.uplink("");
    // The host's own address and a closed port: the host's stack answers.
    knock(&shared.hosts.far, HOST[0].0);
    uplink.stop();
}

#[test]
fn devices_on_one_interface_reach_each_other_and_nobody_else_hears_it() {
    root_or_skip!();
    let shared = Shared::new();
    let other = Namespace::create("upl-other").unwrap();
    let first = shared.uplink("--backend packet");
    let second =
        shared.hosts.start(&format!("--tun up0 --backend packet --netns {}", other.name()));
    let theirs = [("10.8.0.3", 24), ("fd08::3", 64)];
    let device = other.interface("up0").unwrap();
    for (address, prefix) in theirs {
        device.add_address(address.parse().unwrap(), prefix).unwrap();
    }
    shared.talk(1 << 20);
    let before = shared.hosts.veth.b.statistics().unwrap().rx_bytes;
    for (near, their) in NEAR.iter().zip(theirs) {
        knock(&shared.guest, their.0);
        tcp(&shared.guest, &other, their.0, 4 << 20);
        tcp(&other, &shared.guest, near.0, 4 << 20);
        udp(&other, &shared.guest, near.0, &[30_000; 4], 1000);
    }
    let heard = shared.hosts.veth.b.statistics().unwrap().rx_bytes - before;
    assert!(heard < 1 << 20, "{heard} bytes are on the wire");
    shared.talk(1 << 20);
    for report in [first.stop(), second.stop()] {
        none_unsplit(&report);
        assert!(count(&report, "rx.joined") > 0, "{report}");
    }
}
