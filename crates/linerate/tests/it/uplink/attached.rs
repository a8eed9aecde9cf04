//! Devices that the uplink does not make: TAP devices and macvtaps that exist, descriptors, and sockets of virtual
//! machines. QEMU is the peer at a socket: a hub in it joins the socket to a TAP device, so that no guest has to start.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;

use linerate_testkit::tools::ip;
use linerate_testkit::{Namespace, Process, root_or_skip, skip, wait_for};
use nix::sys::signal::Signal;

use super::support::{FAR, Hosts, NEAR, count, give_addresses, tcp, udp};
use crate::LINERATE;

/// QEMU between a TAP device of the guest, `up0`, and a socket; `None` if it is not installed.
fn qemu(guest: &Namespace, stream: &str, stdin: Stdio) -> Option<Process> {
    let mut command = guest.command_killed_with_parent("qemu-system-x86_64");
    command.args(["-M", "none", "-nodefaults", "-display", "none", "-netdev"]);
    command.arg(format!("stream,id=s,{stream}"));
    for netdev in [
        "tap,id=t,ifname=up0,script=no,downscript=no",
        "hubport,id=h0,hubid=0,netdev=s",
        "hubport,id=h1,hubid=0,netdev=t",
    ] {
        command.args(["-netdev", netdev]);
    }
    let child = command.stdin(stdin).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().ok()?;
    let process = Process::from(child);
    wait_for("the device of QEMU", || guest.interface("up0").is_ok());
    guest.interface("up0").unwrap().up().unwrap();
    give_addresses(guest);
    Some(process)
}

fn at(path: &Path) -> String {
    format!("server=off,addr.type=unix,addr.path={}", path.display())
}

fn talk(guest: &Namespace, hosts: &Hosts, bytes: usize) {
    for (near, far) in NEAR.iter().zip(FAR) {
        tcp(guest, &hosts.far, far.0, bytes);
        tcp(&hosts.far, guest, near.0, bytes);
        udp(&hosts.far, guest, near.0, &[1, 1000, 1400], 0);
        udp(guest, &hosts.far, far.0, &[1, 1000, 1400], 0);
    }
}

#[test]
fn qemu_has_the_interface_by_a_socket_and_comes_again() {
    root_or_skip!();
    let hosts = Hosts::new();
    // As every veth is: super-packets and open checksums come from the peer, and QEMU takes neither.
    hosts.veth.b.set_offloads(true).unwrap();
    let guest = Namespace::create("upl-guest").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vm.sock");
    for backend in ["xdp", "packet"] {
        let uplink = hosts.start(&format!("--socket {} --backend {backend}", path.display()));
        for round in 0..2 {
            let Some(qemu) = qemu(&guest, &at(&path), Stdio::null()) else {
                skip!("needs qemu-system-x86_64");
            };
            talk(&guest, &hosts, 1 << 20);
            if round == 0 {
                qemu.signal(Signal::SIGKILL);
            } else {
                qemu.signal(Signal::SIGTERM);
            }
            qemu.wait();
            wait_for("its device is gone", || guest.interface("up0").is_err());
        }
        let report = uplink.stop();
        assert_eq!((&report["kind"], &report["queues"]), (&"socket".into(), &1.into()), "{report}");
        assert!(
            count(&report, "tx.packets") > 100 && count(&report, "rx.frames") > 100,
            "{report}"
        );
        for none in ["tx.super_packets", "rx.super_packets", "dropped.too_long"] {
            assert_eq!(count(&report, none), 0, "{report}");
        }
        assert!(!path.exists());
    }
}

#[test]
fn a_socket_that_was_passed_ends_with_its_other_end() {
    root_or_skip!();
    let hosts = Hosts::new();
    let guest = Namespace::create("upl-guest").unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut command = hosts.near.command(LINERATE);
    command.args(["uplink", "-i", "wire", "--json", "--fd", "0"]);
    command.stdin(Stdio::from(std::os::fd::OwnedFd::from(ours)));
    let mut uplink = Process::start(&mut command);
    // The command has a copy of the socket, too.
    drop(command);
    uplink.until("it leaves to the uplink");
    let theirs = Stdio::from(std::os::fd::OwnedFd::from(theirs));
    let Some(qemu) = qemu(&guest, "server=off,addr.type=fd,addr.str=0", theirs) else {
        skip!("needs qemu-system-x86_64");
    };
    talk(&guest, &hosts, 1 << 18);
    qemu.signal(Signal::SIGKILL);
    qemu.wait();
    let (status, _, said) = uplink.wait();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the program at descriptor 0"), "{said}");
}

#[test]
fn a_socket_takes_no_other_file_and_no_frame_ends_it() {
    root_or_skip!();
    let hosts = Hosts::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vm.sock");
    std::fs::write(&path, "precious").unwrap();
    let mut command = hosts.near.command(LINERATE);
    let output = command.args(["uplink", "-i", "wire", "--socket"]).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
    for backend in ["packet", "xdp"] {
        let uplink = hosts.start(&format!("--socket {} --backend {backend}", path.display()));
        let mut guest = UnixStream::connect(&path).unwrap();
        for len in [0, 1, 13, 14, 60] {
            let frame = [&(len as u32).to_be_bytes()[..], &vec![0xff; len]].concat();
            guest.write_all(&frame).unwrap();
        }
        // The last of them arrives, so the others were read.
        let received = || {
            let plain = || linerate_net::link::by_name("plain").unwrap().statistics.rx_packets;
            hosts.far.run(plain).unwrap()
        };
        let before = received();
        wait_for("a frame at the other end", || {
            guest.write_all(&[&60_u32.to_be_bytes()[..], &[0xff; 60]].concat()).unwrap();
            received() > before + 2
        });
        // Somebody else's socket of this name stays.
        std::fs::remove_file(&path).unwrap();
        let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let report = uplink.stop();
        assert_eq!(count(&report, "dropped.too_short"), 3, "{backend}: {report}");
        assert!(path.exists());
        drop(other);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_tap_device_is_left_without_offloads_and_not_shared() {
    root_or_skip!();
    let hosts = Hosts::new();
    ip(&hosts.near, "tuntap add up0 mode tap multi_queue");
    let offloads = || {
        let output = hosts.near.command("ethtool").args(["-k", "up0"]).output().unwrap();
        // Those that a program asked for before say so.
        String::from_utf8(output.stdout).unwrap().replace(" [requested on]", "")
    };
    let before = offloads();
    let uplink = hosts.start("--attach up0");
    assert_ne!(offloads(), before);
    let mut second = hosts.near.command(LINERATE);
    let second = second.args(["uplink", "-i", "lo", "--take-over", "--attach", "up0"]);
    let said = String::from_utf8_lossy(&second.output().unwrap().stderr).into_owned();
    assert!(said.contains("up0 is in use: other programs have 1 of its queues"), "{said}");
    uplink.stop();
    assert_eq!(offloads(), before);
}

#[test]
fn a_tap_device_that_exists_is_joined_and_stays() {
    root_or_skip!();
    let hosts = Hosts::new();
    let mac = "02:00:00:00:00:77";
    for (queues, several) in [("", ""), ("--queues 2", "multi_queue"), ("", "multi_queue")] {
        ip(&hosts.near, &format!("tuntap add up0 mode tap {several}"));
        ip(&hosts.near, &format!("link set up0 address {mac} up"));
        give_addresses(&hosts.near);
        let uplink = hosts.start(&format!("--attach up0 {queues}"));
        hosts.talk(1 << 20);
        if several.is_empty() {
            let mut second = hosts.near.command(LINERATE);
            let second = second.args(["uplink", "-i", "lo", "--take-over", "--attach", "up0"]);
            let said = String::from_utf8_lossy(&second.output().unwrap().stderr).into_owned();
            assert!(said.contains("up0 has all its queues with other programs"), "{said}");
        }
        let report = uplink.stop();
        assert_eq!((&report["device"], &report["mac"]), (&"up0".into(), &mac.into()), "{report}");
        assert!(
            count(&report, "tx.super_packets") > 0 && count(&report, "rx.joined") > 0,
            "{report}"
        );
        hosts.near.interface("up0").expect("it stays");
        ip(&hosts.near, "link delete up0");
    }
    for (name, words) in [("wire", "is no TAP or macvtap device"), ("none", "none")] {
        let mut command = hosts.near.command(LINERATE);
        let output = command.args(["uplink", "-i", "wire", "--attach", name]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{said}");
    }
}

/// An ipvtap takes only frames with its lower device's address: an uplink has those of other hosts.
#[test]
fn an_ipvtap_is_refused() {
    root_or_skip!();
    let hosts = Hosts::new();
    let add = "link add link wire name it0 type ipvtap";
    let made = hosts.near.command("ip").args(add.split(' ')).output().unwrap();
    if !made.status.success() {
        skip!("needs ipvtap (CONFIG_IPVTAP)");
    }
    let mut command = hosts.near.command(LINERATE);
    let output = command.args(["uplink", "-i", "wire", "--attach", "it0"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("it0 is no TAP or macvtap device"), "{said}");
}

#[test]
fn a_macvtap_joins_two_networks() {
    root_or_skip!();
    let hosts = Hosts::new();
    let guest = Namespace::create("upl-guest").unwrap();
    // The guest's end of another cable, and the macvtap at this one: what is sent to its address reaches the uplink.
    ip(&hosts.near, "link add lower type veth peer name up0");
    ip(&hosts.near, &format!("link set up0 netns {}", guest.name()));
    ip(&hosts.near, "link set lower up");
    guest.interface("up0").unwrap().up().unwrap();
    give_addresses(&guest);
    ip(&hosts.near, "link add link lower name mt0 type macvtap mode passthru");
    ip(&hosts.near, "link set mt0 up allmulticast on");
    let index = hosts.near.interface("mt0").unwrap().index();
    if !Path::new(&format!("/dev/tap{index}")).exists() {
        skip!("needs /dev/tap{index}");
    }
    let uplink = hosts.start("--attach mt0");
    talk(&guest, &hosts, 1 << 20);
    uplink.stop();
    hosts.near.interface("mt0").expect("it stays");
}
