use std::time::Duration;

use linerate_net::ethtool;
use linerate_net::link::{self, Link, Options};
use linerate_net::{Connection, Interface};
use linerate_testkit::{print_skipped, root_or_skip, test_name};

use crate::support::{Cable, cable, stdout_of, try_stdout_of};

/// An administrator has made it promiscuous.
fn is_promisc(link: &Link) -> bool {
    link.flags & libc::IFF_PROMISC as u32 != 0
}

#[test]
fn a_link_is_what_ip_shows() {
    root_or_skip!();
    let Cable { near, far, veth } = cable();
    stdout_of(&near, "ip link set dev a mtu 1400 promisc on");
    let from_far = || {
        Connection::open().unwrap().resolve(
            veth.b.index(),
            "10.1.0.1".parse().unwrap(),
            Duration::from_secs(10),
        )
    };
    assert!(far.run(from_far).unwrap().unwrap().is_some(), "it has received a question");
    let links = near.run(|| link::all().unwrap()).unwrap();
    assert_eq!(links.iter().map(|link| &link.name[..]).collect::<Vec<_>>(), ["lo", "a"]);
    let link = &links[1];
    assert_eq!((link.index, &link.kind[..], link.mtu), (veth.a.index(), "veth", 1400));
    assert_eq!(link.address.unwrap().0, veth.a.mac().0);
    assert!(link.is_up() && link.is_running() && link.is_ethernet() && link.operational);
    assert!(is_promisc(link) && link.promiscuity == 1 && !link.is_loopback());
    assert_eq!((link.link, link.master, link.xdp), (Some(veth.b.index()), None, None));
    assert!(link.link_netnsid.is_some() && link.veth_peer(&links).is_none());
    assert!(link.lower().is_none());
    let shown = stdout_of(&near, "ip -details link show a");
    for word in [
        format!("{}: a@if{}", link.index, veth.b.index()),
        format!("link/ether {}", link.address.unwrap()),
        format!("link-netns {}", far.name()),
        format!("promiscuity {}", link.promiscuity),
        format!("numtxqueues {} ", link.num_tx_queues),
        format!("numrxqueues {} ", link.num_rx_queues),
    ] {
        assert!(shown.contains(&word), "{word}: {shown}");
    }
    let counter = |name| {
        let mut command = near.command("ip");
        let output = command.args(["-json", "-statistics", "link", "show", "a"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (rx, _) = text.split_once("\"tx\":").unwrap();
        let (_, value) = rx.rsplit_once(&format!("\"{name}\":")).unwrap();
        value.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse::<u64>().unwrap()
    };
    let (packets, bytes) = (counter("packets"), counter("bytes"));
    let by_index = near.run(|| link::by_index(link.index).unwrap().unwrap()).unwrap();
    let statistics = by_index.statistics;
    assert!(packets > 0);
    // The peer may ask again meanwhile.
    assert!((packets..=counter("packets")).contains(&statistics.rx_packets), "{statistics:?}");
    assert!((bytes..=counter("bytes")).contains(&statistics.rx_bytes), "{statistics:?}");
    assert!(near.run(|| link::by_name("b").is_err()).unwrap());
}

#[test]
fn devices_know_their_upper_and_lower_devices() {
    root_or_skip!();
    let Cable { near, veth: _veth, far: _far } = cable();
    let find = || near.run(|| link::all().unwrap()).unwrap();
    let named =
        |links: &[Link], name: &str| links.iter().find(|one| one.name == name).cloned().unwrap();
    match try_stdout_of(&near, "ip link add name br0 type bridge") {
        Ok(_) => {
            stdout_of(&near, "ip link set dev a master br0");
            let links = find();
            assert_eq!(named(&links, "a").master, Some(named(&links, "br0").index));
            assert_eq!(named(&links, "br0").kind, "bridge");
            stdout_of(&near, "ip link set dev a nomaster");
            assert_eq!(named(&find(), "a").master, None);
        }
        Err(_) => print_skipped(test_name!(), "the kernel has no bridges"),
    }
    match try_stdout_of(&near, "ip link add link a name a.5 type vlan id 5") {
        Ok(_) => {
            let links = find();
            assert_eq!(named(&links, "a.5").lower(), Some(named(&links, "a").index));
            assert_eq!(named(&links, "a.5").kind, "vlan");
        }
        Err(_) => print_skipped(test_name!(), "the kernel has no VLANs"),
    }
    stdout_of(&near, "ip link add name c type veth peer name d");
    let links = find();
    let (c, d) = (named(&links, "c"), named(&links, "d"));
    assert_eq!(c.veth_peer(&links), Some(&d));
    assert_eq!(d.veth_peer(&links), Some(&c));
    assert_eq!((c.lower(), c.is_up()), (None, false));
}

#[test]
fn settings_of_a_link_are_changed_and_no_others() {
    root_or_skip!();
    let Cable { near, veth, far: _far } = cable();
    let index = veth.a.index();
    near.run(|| {
        let connection = Connection::open().unwrap();
        let set = |options| connection.set_link(index, &options).unwrap();
        let now = || connection.link_by_index(index).unwrap().unwrap();
        let before = now();
        let address = linerate_wire_address([2, 0, 0, 0, 0, 9]);
        set(Options { mtu: Some(1300), address: Some(address), ..Options::default() });
        let after = now();
        assert_eq!((after.mtu, after.address), (1300, Some(address)));
        assert!(after.is_up() && !is_promisc(&after));
        set(Options { promisc: Some(true), ..Options::default() });
        assert!(is_promisc(&now()) && now().is_up() && now().mtu == 1300);
        set(Options { up: Some(false), ..Options::default() });
        assert!(is_promisc(&now()) && !now().is_up());
        let gso = Options { gso_max_size: Some(9000), gso_max_segs: Some(3), ..Options::default() };
        set(gso);
        assert_eq!(before.index, now().index);
        let gone = connection.set_link(i32::MAX as u32, &Options::default());
        assert!(gone.is_err());
    })
    .unwrap();
    let shown = stdout_of(&near, "ip -details link show a");
    assert!(shown.contains("gso_max_size 9000 gso_max_segs 3"), "{shown}");
}

fn linerate_wire_address(bytes: [u8; 6]) -> linerate_wire::ethernet::Address {
    linerate_wire::ethernet::Address(bytes)
}

#[test]
fn features_and_channels_are_what_ethtool_has() {
    root_or_skip!();
    let Cable { near, veth, far: _far } = cable();
    let index = veth.a.index();
    near.run(|| {
        assert_eq!(Interface::open("a").unwrap().driver().as_deref(), Some("veth"));
        let channels = ethtool::channels(index).unwrap().unwrap();
        assert_eq!((channels.rx_count, channels.tx_count, channels.combined_count), (1, 1, 0));
        assert_eq!(ethtool::channels(1).unwrap(), None, "the loopback interface has none");
        for on in [true, false, true] {
            ethtool::set_features(index, &[("rx-gro", on), ("no-such-feature", on)]).unwrap();
            assert_eq!(ethtool::features(index).unwrap().is_active("rx-gro"), on);
        }
        // A veth strips tags where its own side is told to, and always on the other.
        let stripped = || ethtool::strips_vlan_tags(index);
        ethtool::set_features(index, &[(ethtool::RX_VLAN_OFFLOAD, false)]).unwrap();
        assert!(!stripped());
        ethtool::set_features(index, &[(ethtool::RX_VLAN_OFFLOAD, true)]).unwrap();
        assert!(stripped());
        let features = ethtool::features(index).unwrap();
        assert!(features.is_fixed("vlan-challenged") && !features.is_fixed("rx-gro"));
        if let Some(xdp) = ethtool::xdp_features(index).unwrap() {
            assert!(xdp.is_native());
        }
    })
    .unwrap();
    if let Ok(shown) = try_stdout_of(&near, "ethtool -k a") {
        assert!(shown.contains("generic-receive-offload: on"), "{shown}");
        assert!(shown.contains("rx-vlan-offload: on"), "{shown}");
    }
}
