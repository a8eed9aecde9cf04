//! A reader that gets no CPU time for a while, beside tcpdump with its own buffer.

use std::time::Duration;

use linerate_testkit::{Process, root_or_skip, skip, wait_for};
use nix::sys::signal::Signal;

use super::support::{Cable, folder, listening, numbers};

/// The ring's bytes count, not how long it has had them: where little comes, each block has a packet or two.
#[test]
fn a_stall_that_tcpdump_survives_loses_nothing() {
    root_or_skip!();
    if std::process::Command::new("tcpdump").arg("--version").output().is_err() {
        skip!("there is no tcpdump");
    }
    const PACKETS: u32 = 350;
    let (cable, folder) = (Cable::new(), folder());
    let more = "for i in $(seq 20); do ip link add d$i type veth peer name e$i && ip link set d$i up; done";
    assert!(cable.far.command("sh").args(["-c", more]).status().unwrap().success());
    let path = |name: &str| folder.path().join(name).with_extension("pcap");
    let mut captures = Vec::new();
    for (name, interface, format) in
        [("one", "far", "pcap"), ("cooked", "any", "pcap"), ("any", "any", "pcapng")]
    {
        let mut linerate = cable.far.command(crate::LINERATE);
        linerate.args(["capture", "-U", "udp", "--format", format, "-i", interface, "-w"]);
        linerate.arg(path(name));
        captures.push((name, listening(&mut linerate)));
    }
    let mut tcpdump = cable.far.command("tcpdump");
    tcpdump.args(["-i", "far", "-U", "-Z", "root", "udp", "-w"]).arg(path("tcpdump"));
    captures.push(("tcpdump", listening(&mut tcpdump)));
    let all = |signal| captures.iter().for_each(|(_, one): &(_, Process)| one.signal(signal));
    all(Signal::SIGSTOP);
    for _ in 0..PACKETS {
        cable.send(1, 64);
        std::thread::sleep(Duration::from_millis(10));
    }
    all(Signal::SIGCONT);
    for (name, capture) in captures {
        wait_for("all packets", || numbers(&path(name)).len() == PACKETS as usize);
        let (status, _, printed) = capture.end(Signal::SIGINT);
        assert!(status.success() && printed.contains("0 packets dropped"), "{name}: {printed}");
    }
}
