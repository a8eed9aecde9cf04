use linerate_testkit::{Namespace, Veth, VethOptions, probe_or_skip, root_or_skip};

use super::*;
use crate::runtime::program::{Options, Programs, unavailable};

#[test]
fn what_we_made_goes_and_what_others_need_stays() {
    root_or_skip!();
    probe_or_skip!(unavailable());
    let space = Namespace::create("clsact").unwrap();
    let cable = Veth::create(&space, "a", &space, "b", VethOptions::default()).unwrap();
    let (a, b) = (cable.a.index(), cable.b.index());
    let programs = Programs::load(&Options { max_sessions: 1024, ..Options::default() }).unwrap();
    let inside = || {
        let attach = |ifindex| {
            let learn = programs.get("learn").unwrap();
            let mut filter = super::attach(learn, ifindex, TC_EGRESS).unwrap();
            filter.keep();
            filter.made
        };
        assert!(!exists(a).unwrap());
        assert!(attach(a), "made by us");
        assert!(exists(a).unwrap() && has_filters(a).unwrap() && !exists(b).unwrap());
        remove(a, true).unwrap();
        assert!(!exists(a).unwrap());
        remove(a, true).unwrap();

        // Somebody else's filter, added later.
        assert!(attach(a));
        let tc = |words: &str| {
            let words = words.split(' ');
            assert!(std::process::Command::new("tc").args(words).status().unwrap().success());
        };
        let mark = programs.get("forward_tc").unwrap();
        let mut theirs = TcHookBuilder::new(mark);
        theirs.ifindex(a.cast_signed()).handle(1).priority(7);
        theirs.hook(TC_INGRESS).attach().unwrap();
        remove(a, true).unwrap();
        assert!(exists(a).unwrap() && has_filters(a).unwrap());

        // Somebody else's clsact, empty.
        tc("qdisc add dev b clsact");
        assert!(!attach(b), "found");
        remove(b, false).unwrap();
        assert!(exists(b).unwrap() && !has_filters(b).unwrap());
    };
    space.run(inside).unwrap();
}
