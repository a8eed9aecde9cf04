use linerate_net::Connection;
use linerate_testkit::root_or_skip;

use crate::support::{Cable, cable, stdout_of, try_stdout_of};

#[test]
fn a_clsact_and_its_filters_are_seen() {
    root_or_skip!();
    let Cable { near, veth, far: _far } = cable();
    let index = veth.a.index();
    let now = || {
        near.run(|| {
            let connection = Connection::open().unwrap();
            let qdiscs = connection.qdiscs(index).unwrap();
            let ingress = qdiscs.iter().any(|qdisc| qdisc.is_ingress());
            let filters = connection.clsact_filters(index).unwrap();
            (ingress, connection.has_clsact(index).unwrap(), filters)
        })
        .unwrap()
    };
    assert_eq!(now(), (false, false, 0));
    if try_stdout_of(&near, "tc qdisc add dev a clsact").is_err() {
        linerate_testkit::skip!("the kernel has no clsact");
    }
    assert_eq!(now(), (true, true, 0));
    match try_stdout_of(&near, "tc filter add dev a egress protocol ip prio 7 matchall action pass")
    {
        Ok(_) => assert!(now().2 > 0),
        Err(_) => linerate_testkit::print_skipped(
            linerate_testkit::test_name!(),
            "the kernel has no matchall",
        ),
    }
    stdout_of(&near, "tc qdisc del dev a clsact");
    assert_eq!(now(), (false, false, 0));
}

#[test]
fn inner_classes_and_their_filters_are_seen() {
    root_or_skip!();
    let Cable { near, veth, far: _far } = cable();
    let index = veth.a.index();
    for line in [
        "qdisc add dev a root handle 1: htb default 10",
        "class add dev a parent 1: classid 1:1 htb rate 100mbit",
        "class add dev a parent 1:1 classid 1:10 htb rate 50mbit",
        "class add dev a parent 1:1 classid 1:20 htb rate 50mbit",
        "filter add dev a parent 1:1 protocol all u32 match u32 0 0 action mirred egress mirror dev a",
    ] {
        if let Err(error) = try_stdout_of(&near, &format!("tc {line}")) {
            linerate_testkit::skip!(&format!("the kernel has no HTB, u32 or mirred: {error}"));
        }
    }
    near.run(|| {
        let connection = Connection::open().unwrap();
        assert_eq!(connection.inner_classes(index).unwrap(), [0x1_0001]);
        let filters = connection.filters(index, 0x1_0001).unwrap();
        let filter = filters.iter().find(|filter| !filter.actions.is_empty()).unwrap();
        assert_eq!(
            (filter.kind.as_str(), &filter.actions[..]),
            ("u32", &["mirred".to_owned()][..])
        );
        assert!(connection.filters(index, 0x1_0000).unwrap().is_empty(), "those of the qdisc");
        assert_eq!(connection.qdiscs(index).unwrap()[0].kind, "htb");
    })
    .unwrap();
}
