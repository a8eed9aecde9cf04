use linerate_net::ruleset::local_filter;
use linerate_testkit::{print_skipped, root_or_skip, test_name};

use crate::support::{Cable, cable, stdout_of, try_stdout_of};

#[test]
fn a_chain_that_may_decide_about_packets_to_this_host_is_found() {
    root_or_skip!();
    let Cable { near, veth: _veth, far: _far } = cable();
    let found = |v6| near.run(|| local_filter("a", v6).unwrap()).unwrap();
    let check = |command: &str, v4: Option<&str>, v6: Option<&str>| {
        stdout_of(&near, command);
        assert_eq!([found(false).as_deref(), found(true).as_deref()], [v4, v6], "{command}");
    };
    assert_eq!([found(false), found(true)], [None, None]);
    if try_stdout_of(&near, "nft add table inet t").is_err() {
        linerate_testkit::skip!("the kernel has no nftables");
    }
    // Neither an empty chain, nor one that packets to this host do not meet.
    check("nft add chain inet t in { type filter hook input priority 0 ; }", None, None);
    check(
        "nft add chain inet t by { type filter hook forward priority 0 ; policy drop ; }",
        None,
        None,
    );
    check(
        "nft add chain inet t out { type filter hook output priority 0 ; policy drop ; }",
        None,
        None,
    );
    check("nft add chain inet t other", None, None);
    check("nft add rule inet t other drop", None, None);
    let chain = Some("nftables chain t in");
    check("nft add rule inet t in udp dport 7 accept", chain, chain);
    check("nft flush chain inet t in", None, None);
    check("nft chain inet t in { policy drop ; }", chain, chain);
    check("nft delete table inet t", None, None);
    // Of one version.
    check("nft add table ip6 t", None, None);
    check(
        "nft add chain ip6 t pre { type filter hook prerouting priority 0 ; policy drop ; }",
        None,
        Some("nftables chain t pre"),
    );
    check("nft delete table ip6 t", None, None);
    // Of one device.
    check("nft add table netdev t", None, None);
    let device =
        "nft add chain netdev t a { type filter hook ingress device a priority 0 ; policy drop ; }";
    match try_stdout_of(&near, device) {
        Err(why) => print_skipped(&format!("{} of a device", test_name!()), &why),
        Ok(_) => {
            let chain = Some("nftables chain t a".to_owned());
            assert_eq!([found(false), found(true)], [chain.clone(), chain]);
            let elsewhere = near.run(|| local_filter("lo", false).unwrap()).unwrap();
            assert_eq!(elsewhere, None);
        }
    }
    check("nft delete table netdev t", None, None);
}

#[test]
fn a_chain_of_iptables_legacy_is_found() {
    root_or_skip!();
    let Cable { near, veth: _veth, far: _far } = cable();
    if try_stdout_of(&near, "iptables-legacy -t raw -L").is_err() {
        linerate_testkit::skip!("there is no iptables-legacy");
    }
    let found = |v6| near.run(|| local_filter("a", v6).unwrap()).unwrap();
    let check = |command: &str, v4: Option<&str>| {
        stdout_of(&near, command);
        assert_eq!((found(false).as_deref(), found(true)), (v4, None), "{command}");
    };
    check("iptables-legacy -t raw -A OUTPUT -p udp --dport 7 -j DROP", None);
    check("iptables-legacy -P FORWARD DROP", None);
    check(
        "iptables-legacy -t raw -A PREROUTING -p udp --dport 7 -j DROP",
        Some("iptables chain raw PREROUTING"),
    );
    check("iptables-legacy -t raw -F PREROUTING", None);
    check("iptables-legacy -A INPUT -p udp -j ACCEPT", Some("iptables chain filter INPUT"));
    check("iptables-legacy -D INPUT 1", None);
    check("iptables-legacy -P INPUT DROP", Some("iptables chain filter INPUT"));
    check("iptables-legacy -P INPUT ACCEPT", None);
}
