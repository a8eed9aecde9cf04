//! How an uplink starts, answers and ends: what it refuses, and that it leaves nothing behind.

use std::process::Output;
use std::time::Duration;

use linerate_bpf::link::has_tcx_ingress_program;
use linerate_testkit::tools::ip;
use linerate_testkit::{Namespace, Process, root_or_skip, skip, wait_for};
use nix::sys::signal::Signal;

use super::support::{FAR, Hosts, NEAR, count, give_addresses, tcp, udp};
use crate::LINERATE;

/// Runs an uplink that is to end with an error.
fn refused(hosts: &Hosts, arguments: &str) -> String {
    let mut command = hosts.near.command(LINERATE);
    let command = command.args(["uplink", "--tap", "up0", "-i"]);
    let output: Output = command.args(arguments.split_whitespace()).output().unwrap();
    assert!(!output.status.success(), "{arguments}: {output:?}");
    assert!(hosts.near.interface("up0").is_err(), "a device after {arguments}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn nothing_is_left_behind() {
    root_or_skip!();
    let hosts = Hosts::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let uplink = hosts.uplink("--backend xdp");
        assert!(hosts.veth.a.has_xdp().unwrap());
        tcp(&hosts.near, &hosts.far, FAR[0].0, 100_000);
        uplink.signal(signal);
        let (status, ..) = uplink.wait();
        assert_eq!(status.success(), signal != Signal::SIGKILL);
        // The kernel takes a killed process apart in its own time.
        wait_for("the XDP program to be gone", || !hosts.veth.a.has_xdp().unwrap());
        assert!(hosts.near.interface("up0").is_err(), "a device after {signal}");
    }
    // The veth pair is the host's again.
    hosts.veth.a.add_address("10.8.0.1".parse().unwrap(), 24).unwrap();
    tcp(&hosts.near, &hosts.far, FAR[0].0, 100_000);
}

/// Whether a tcx program is on the veth pair's near end.
fn is_guarded(hosts: &Hosts) -> bool {
    let index = hosts.veth.a.index();
    hosts.near.run(|| has_tcx_ingress_program(index).unwrap()).unwrap()
}

#[test]
fn the_host_does_not_answer_for_the_packet_back_end() {
    root_or_skip!();
    let hosts = Hosts::new();
    // The host has the guest's address and no socket: it would refuse every connection.
    let (address, prefix) = NEAR[0];
    hosts.veth.a.add_address(address.parse().unwrap(), prefix).unwrap();
    let guest = Namespace::create("upl-guest").unwrap();
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let uplink = hosts.bare(&format!("--backend packet --take-over --netns {}", guest.name()));
        if uplink.stderr().contains("the host's own stack hears") {
            uplink.stop();
            skip!("the kernel has no tcx (Linux 6.6)");
        }
        give_addresses(&guest);
        assert!(is_guarded(&hosts));
        tcp(&hosts.far, &guest, address, 1 << 20);
        udp(&hosts.far, &guest, address, &[1000; 3], 0);
        uplink.signal(signal);
        uplink.wait();
        // The kernel takes a killed process apart in its own time.
        wait_for("the tcx program to be gone", || !is_guarded(&hosts));
        // The host is itself again.
        tcp(&hosts.far, &hosts.near, address, 100_000);
    }
}

#[test]
fn an_interface_in_use_is_left_alone() {
    root_or_skip!();
    let hosts = Hosts::new();
    hosts.veth.a.add_address("192.0.2.1".parse().unwrap(), 24).unwrap();
    for backend in ["auto", "xdp", "packet"] {
        let printed = refused(&hosts, &format!("wire --backend {backend}"));
        assert!(printed.contains("192.0.2.1") && printed.contains("--take-over"), "{printed}");
    }
    let uplink = hosts.uplink("--take-over");
    tcp(&hosts.near, &hosts.far, FAR[0].0, 100_000);
    uplink.stop();
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    root_or_skip!();
    let hosts = Hosts::new();
    for (arguments, reason) in [
        ("nowhere", "nowhere"),
        ("lo --take-over --backend xdp", "the MTU of lo"),
        ("wire --mtu 1600", "more than wire has"),
        ("wire --queues 2 --backend xdp", "too few"),
        ("wire --cpu 999", "CPU 999"),
        ("wire --netns no-such-namespace", "no-such-namespace"),
        ("wire --policy maybe", "setting"),
    ] {
        let printed = refused(&hosts, arguments);
        assert!(printed.contains(reason), "{arguments}: {printed}");
        assert!(!hosts.veth.a.has_xdp().unwrap(), "an XDP program after {arguments}");
    }
    let first = hosts.bare("--backend xdp");
    for backend in ["auto", "xdp", "packet"] {
        // One that is not refused runs for ever.
        let mut second = hosts.near.command("timeout");
        second.args(["20", LINERATE, "uplink", "-i", "wire", "--take-over", "--backend", backend]);
        let printed = String::from_utf8_lossy(&second.output().unwrap().stderr).into_owned();
        assert!(printed.contains("by XDP (linerate"), "{backend}: {printed}");
    }
    first.stop();
}

#[test]
fn the_counts_are_told_when_asked_for() {
    root_or_skip!();
    let hosts = Hosts::new();
    let mut uplink = hosts.uplink("");
    tcp(&hosts.near, &hosts.far, FAR[0].0, 1 << 20);
    uplink.signal(Signal::SIGUSR1);
    uplink.until("not split");
    assert!(uplink.stderr().contains("super-packets split into"), "{}", uplink.stderr());
    let report = uplink.stop();
    assert!(report["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    assert_eq!(count(&report, "dropped.umem_full"), 0, "{report}");
}

/// Holds that it ends by itself, and says this.
#[track_caller]
fn fails(uplink: Process, words: &str) {
    let (status, _, printed) = uplink.wait();
    assert!(!status.success() && printed.contains(words), "{printed}");
}

#[test]
fn the_interface_going_away_ends_it() {
    root_or_skip!();
    for backend in ["xdp", "packet"] {
        let hosts = Hosts::new();
        let uplink = hosts.uplink(&format!("--backend {backend}"));
        hosts.veth.delete().unwrap();
        fails(uplink, "interface wire is gone");
    }
}

#[test]
fn the_device_going_away_ends_it() {
    root_or_skip!();
    let hosts = Hosts::new();
    let uplink = hosts.uplink("");
    hosts.near.interface("up0").unwrap().delete().unwrap();
    fails(uplink, "up0 is gone");
}

#[test]
fn both_going_away_ends_it() {
    root_or_skip!();
    for backend in ["xdp", "packet"] {
        let hosts = Hosts::new();
        let uplink = hosts.uplink(&format!("--backend {backend}"));
        let device = hosts.near.interface("up0").unwrap();
        hosts.veth.delete().unwrap();
        // It may have ended by now, and taken the device along.
        let _ = device.delete();
        fails(uplink, "is gone");
    }
}

#[test]
fn the_interface_moving_to_another_namespace_ends_it() {
    root_or_skip!();
    for backend in ["xdp", "packet"] {
        let hosts = Hosts::new();
        let other = Namespace::create("upl-other").unwrap();
        let uplink = hosts.uplink(&format!("--backend {backend}"));
        ip(&hosts.near, &format!("link set wire netns {}", other.name()));
        fails(uplink, "interface wire is gone");
        assert!(!other.interface("wire").unwrap().has_xdp().unwrap(), "an XDP program moved along");
    }
}

#[test]
fn the_namespace_of_the_device_being_deleted_ends_it() {
    root_or_skip!();
    let hosts = Hosts::new();
    for device in ["--tap", "--tun"] {
        let guest = Namespace::create("upl-guest").unwrap();
        let uplink = hosts.start(&format!("{device} up0 --netns {}", guest.name()));
        give_addresses(&guest);
        let words = format!("the network namespace {} of the device was deleted", guest.name());
        drop(guest);
        fails(uplink, &words);
        assert!(!hosts.veth.a.has_xdp().unwrap(), "an XDP program after {device}");
    }
    // It is made in one namespace and lives in another.
    let guest = Namespace::create("upl-guest").unwrap();
    let uplink = hosts.start("--tap up0");
    ip(&hosts.near, &format!("link set up0 netns {}", guest.name()));
    drop(guest);
    fails(uplink, "up0 is gone");
}

#[test]
fn no_thread_keeps_a_capability_or_spins() {
    root_or_skip!();
    let hosts = Hosts::new();
    let uplink = hosts.uplink("");
    let process = format!("/proc/{}", uplink.id());
    let unprivileged = |status: &str| status.contains("CapEff:\t0000000000000000");
    let all = || {
        let tasks = std::fs::read_dir(format!("{process}/task")).unwrap();
        tasks.flatten().all(|task| {
            unprivileged(&std::fs::read_to_string(task.path().join("status")).unwrap_or_default())
        })
    };
    wait_for("threads without capabilities", all);
    // Clock ticks of user and system time, fields 14 and 15 of the line.
    let ticks = || {
        let stat = std::fs::read_to_string(format!("{process}/stat")).unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    for down in [false, true] {
        if down {
            hosts.veth.a.down().unwrap();
        }
        std::thread::sleep(Duration::from_millis(200));
        let before = ticks();
        std::thread::sleep(Duration::from_secs(1));
        let spent = ticks() - before;
        assert!(spent < 50, "{spent} ticks in an idle second, interface down: {down}");
    }
    uplink.stop();
}
