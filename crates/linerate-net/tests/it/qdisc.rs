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
