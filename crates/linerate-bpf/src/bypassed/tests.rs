use linerate_net::privilege::{self, CapabilitySet};
use linerate_testkit::{Namespace, Veth, VethOptions, root_or_skip};

use super::*;

#[test]
fn what_exists_is_named_and_nothing_else() {
    root_or_skip!();
    let host = Namespace::create("bypass-h").unwrap();
    let peer = Namespace::create("bypass-p").unwrap();
    let _cable = Veth::create(&host, "port", &peer, "peer", VethOptions::default()).unwrap();
    let seen = || {
        let found = host.run(|| bypassed(&Interface::open("port").unwrap())).unwrap();
        // Programs are those of the whole host.
        found
            .into_iter()
            .filter(|one| !one.contains("programs") && !one.contains("groups"))
            .collect::<Vec<_>>()
    };
    assert_eq!(seen(), Vec::<String>::new());
    let cases = [
        (
            "nft add table inet t { chain c { type filter hook input priority 0; policy drop; }; }",
            "nftables chain t c",
        ),
        (
            "ip xfrm policy add src 10.8.0.0/16 dst 10.9.0.0/16 dir in action block",
            "IPsec policies",
        ),
        ("tc qdisc add dev port clsact", "tc filters"),
        ("ip link add br0 type bridge", ""),
        ("ip link set port master br0", "br0"),
    ];
    for (line, expected) in cases {
        let mut words = line.split_whitespace();
        let mut command = host.command(words.next().unwrap());
        if !command.args(words).output().unwrap().status.success() {
            linerate_testkit::print_skipped(linerate_testkit::test_name!(), line);
            continue;
        }
        let found = seen();
        assert!(
            expected.is_empty() || found.iter().any(|one| one == expected),
            "{line}: {found:?}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_perhaps_there() {
    let unread = Err(io::Error::from_raw_os_error(libc::EPERM));
    let expected = "perhaps IPsec policies (Operation not permitted (os error 1))";
    assert_eq!(phrase("IPsec policies", unread).as_deref(), Some(expected));
    assert_eq!(phrase("IPsec policies", io::Result::Ok(false)), None);
}

/// A thread without privileges lists no programs, no rules and no policies.
#[test]
fn without_privilege_nothing_is_taken_for_absent() {
    root_or_skip!();
    let found = std::thread::spawn(|| {
        privilege::keep_only(CapabilitySet::empty()).unwrap();
        bypassed(&Interface::open("lo").unwrap())
    });
    let found = found.join().unwrap();
    for what in ["packet filters", "IPsec policies", "sk_lookup programs"] {
        let is_perhaps = |one: &String| one.starts_with("perhaps ") && one.contains(what);
        assert!(found.iter().any(is_perhaps), "{what}: {found:?}");
    }
}
