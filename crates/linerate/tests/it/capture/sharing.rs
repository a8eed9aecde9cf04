//! Several readers, several interfaces, several captures.

use std::net::UdpSocket;

use linerate_pcapfile::Reader;
use linerate_testkit::root_or_skip;

use super::support::{Cable, everybody_accepts, folder, listening, numbers};
use crate::LINERATE;

#[test]
fn several_readers_share_the_frames() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let path = folder.path().join("threads.pcapng");
    let options = "--source packet --threads 3 --fanout lb --json";
    let capture = cable.capture(&format!("-w {} {options} udp", path.display()));
    cable.send(3000, 64);
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    // Each frame goes to another reader: the file has them in the order in which they were sent.
    assert_eq!(numbers(&path), (0..3000).collect::<Vec<_>>());
    assert_eq!(json["interfaces"][0]["readers"], 3);
    everybody_accepts(&path);
}

#[test]
fn captures_at_the_same_time_do_not_disturb_each_other() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let start = |(number, source): (usize, &&str)| {
        let path = folder.path().join(format!("{number}.pcapng"));
        let file = path.display();
        let capture = cable.capture(&format!(
            "--source {source} -w {file} -B 16384 udp[8:4] % 2 = {}",
            number % 2
        ));
        (capture, path)
    };
    let running: Vec<_> =
        ["tee", "tee", "packet", "packet"].iter().enumerate().map(start).collect();
    cable.send(1000, 64);
    for (number, (capture, path)) in running.into_iter().enumerate() {
        let (status, _, printed) = capture.interrupt();
        assert!(status.success(), "{printed}");
        let expected: Vec<u32> = (0..1000).filter(|n| n % 2 == number as u32 % 2).collect();
        assert_eq!(numbers(&path), expected, "capture {number}: {printed}");
    }
}

/// Twenty datagrams of a host to itself.
fn to_self() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..20 {
        socket.send_to(&[0; 64], "127.0.0.1:5000").unwrap();
    }
}

#[test]
fn several_interfaces_share_a_file() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    let path = folder.path().join("two.pcapng");
    cable.far.interface("lo").unwrap().up().unwrap();
    let capture = cable.capture(&format!("-i lo -w {} --json udp", path.display()));
    cable.send(30, 64);
    cable.far.run(to_self).unwrap();
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    let mut reader = Reader::open(&path).unwrap();
    let mut counts = [0, 0];
    while let Some(record) = reader.next().unwrap() {
        counts[record.interface as usize] += 1;
    }
    assert_eq!(counts, [30, 20], "{printed}");
    let names: Vec<_> = reader.interfaces().iter().map(|one| one.name.clone().unwrap()).collect();
    assert_eq!(names, ["far", "lo"]);
    assert_eq!(json["interfaces"][1]["captured"], 20, "{json}");
    everybody_accepts(&path);
}

#[test]
fn all_interfaces_are_captured_and_one_may_go() {
    root_or_skip!();
    let mut cable = Cable::new();
    let folder = folder();
    let path = folder.path().join("any.pcapng");
    cable.far.interface("lo").unwrap().up().unwrap();
    let mut command = cable.far.command(LINERATE);
    command.args(["capture", "-i", "any", "--json", "-w"]).arg(&path).arg("udp");
    let mut capture = listening(&mut command);
    // A line for each interface.
    capture.until("listening on far");
    cable.send(30, 64);
    cable.far.run(to_self).unwrap();
    cable.veth.take().unwrap().delete().unwrap();
    capture.until("interface far is gone");
    cable.far.run(to_self).unwrap();
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    let count = |name: &str| {
        let interfaces = json["interfaces"].as_array().unwrap();
        interfaces.iter().find(|one| one["name"] == name).unwrap()["captured"].clone()
    };
    assert_eq!((count("far"), count("lo")), (30.into(), 40.into()), "{json}");
    everybody_accepts(&path);
    let output = cable.run("-i any --source tee --discard");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// The capture watches interfaces from its start on, however late its readers start: here they wait for the reader of a
/// pipe. Packets that are read after the interface has gone are its packets.
#[test]
fn an_interface_that_goes_before_its_packets_are_read_keeps_them() {
    root_or_skip!();
    let mut cable = Cable::new();
    let folder = folder();
    let path = folder.path().join("any.pipe");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut command = cable.far.command(LINERATE);
    command.args(["capture", "-i", "any", "--json", "-w"]).arg(&path).arg("udp");
    let mut capture = listening(&mut command);
    capture.until("listening on far");
    // In many blocks of the ring.
    for _ in 0..30 {
        cable.send(1, 64);
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    cable.veth.take().unwrap().delete().unwrap();
    let read = std::thread::spawn(move || std::fs::read(&path).unwrap());
    capture.until("interface far is gone");
    let (status, json, printed) = capture.interrupt();
    assert!(status.success(), "{printed}");
    assert!(!read.join().unwrap().is_empty());
    let interfaces = json["interfaces"].as_array().unwrap();
    let far = interfaces.iter().find(|one| one["name"] == "far").unwrap();
    assert_eq!((&far["captured"], &json["captured"]), (&30.into(), &30.into()), "{json}");
}
