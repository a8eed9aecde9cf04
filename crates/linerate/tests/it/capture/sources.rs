//! Every source, with the filter on either side.

use std::net::UdpSocket;
use std::time::Duration;

use linerate_testkit::{root_or_skip, uninterrupted};

use super::support::{Cable, everybody_accepts, folder, numbers, statistics};

#[test]
fn every_source_brings_every_frame_into_the_file() {
    root_or_skip!();
    for source in ["packet", "xdp --take-over", "tee"] {
        let cable = Cable::new();
        let folder = folder();
        let path = folder.path().join("all.pcapng");
        let file = path.display();
        let capture =
            cable.capture(&format!("--source {source} -w {file} --json -B 16384 udp port 5000"));
        cable.send(5000, 64);
        let (status, json, printed) = capture.interrupt();
        assert!(status.success(), "{source}: {printed}");
        assert_eq!(numbers(&path), (0..5000).collect::<Vec<_>>(), "{source}: {printed}");
        everybody_accepts(&path);
        assert_eq!(json["captured"], 5000, "{json}");
        assert_eq!(json["received"], 5000, "{json}");
        assert_eq!(json["dropped"]["total"], 0, "{json}");
        assert_eq!(json["written"], 5000, "{json}");
        assert_eq!(json["filter"]["in"], "kernel", "{json}");
        assert!(source.starts_with(json["source"].as_str().unwrap()), "{json}");
        for key in ["pages", "seconds", "files", "bytes", "interfaces", "cpu"] {
            assert!(!json[key].is_null(), "{key} in {json}");
        }
        assert!(printed.contains("5000 packets captured"), "{printed}");
        assert!(!cable.veth().b.has_xdp().unwrap(), "{source} left its program behind");
        let statistics = statistics(&path);
        assert_eq!(statistics.filter_accepted, Some(5000));
        assert_eq!(statistics.delivered, Some(5000));
    }
}

#[test]
fn a_filter_in_user_space_gives_the_same() {
    root_or_skip!();
    let cable = Cable::new();
    let folder = folder();
    for source in ["packet", "tee"] {
        let path = folder.path().join(source);
        let file = path.display();
        let options = format!("--source {source} -w {file} --json --filter-in user");
        let capture = cable.capture(&format!("{options} udp and udp[8:4] < 10"));
        cable.send(100, 64);
        let (_, json, printed) = capture.interrupt();
        assert_eq!(numbers(&path), (0..10).collect::<Vec<_>>(), "{printed}");
        assert_eq!((&json["filter"]["in"], &json["received"]), (&"user".into(), &10.into()));
    }
}

/// The program does not know which frames a filter in user space accepts: the host keeps all of them.
#[test]
fn a_filter_in_user_space_takes_nothing_from_the_host() {
    root_or_skip!();
    let (cable, folder) = (Cable::new(), folder());
    let path = folder.path().join("user");
    let options = format!("-w {} --source xdp --take-over --filter-in user", path.display());
    let server = cable.far.run(|| UdpSocket::bind("10.9.0.2:5000").unwrap()).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let capture = cable.capture(&format!("{options} udp and udp[8:4] < 10"));
    cable.send(50, 64);
    let received = (0..50).filter(|_| uninterrupted(|| server.recv(&mut [0; 128])).is_ok()).count();
    let (_, _, printed) = capture.interrupt();
    assert_eq!(received, 50, "{printed}");
    assert_eq!(numbers(&path), (0..10).collect::<Vec<_>>(), "{printed}");
    assert!(printed.contains("the host gets all frames of far"), "{printed}");
}
