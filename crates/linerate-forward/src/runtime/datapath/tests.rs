use super::*;

#[test]
fn a_qdisc_that_somebody_attached_is_obeyed() {
    let qdisc = |kind: &str, handle, parent| Qdisc {
        kind: kind.into(),
        handle,
        parent,
        reads_connection: false,
    };
    let root = 0xffff_ffff;
    assert!(is_obeyed(&qdisc("htb", 0x1_0000, root)));
    assert!(is_obeyed(&qdisc("fq_codel", 0x8001_0000, root)));
    assert!(is_obeyed(&qdisc("tbf", 0x2_0000, 0x1_0001)), "below mq");
    assert!(!is_obeyed(&qdisc("fq_codel", 0, root)), "the kernel's default");
    assert!(!is_obeyed(&qdisc("mq", 0x8001_0000, root)));
    assert!(!is_obeyed(&qdisc("pfifo_fast", 0x8001_0000, root)));
    assert!(!is_obeyed(&qdisc("clsact", 0xffff_0000, 0xffff_fff1)));
}

#[test]
fn what_needs_the_stack_is_named() {
    let filter = |kind: &str, actions: &[&str], matches_connection| {
        let actions = actions.iter().map(|kind| kind.to_string()).collect();
        filter_of_stack(&Filter { kind: kind.into(), priority: 1, actions, matches_connection })
    };
    assert_eq!(filter("u32", &["mirred", "police"], false), None);
    assert_eq!(filter("route", &[], false), Some("filter route".into()));
    assert_eq!(filter("flower", &[], true), Some("filter flower by connection".into()));
    assert_eq!(filter("matchall", &["pedit", "ctinfo"], false), Some("action ctinfo".into()));
    let qdisc = |kind: &str, reads_connection| {
        qdisc_of_stack(&Qdisc { kind: kind.into(), handle: 1, parent: 0, reads_connection })
    };
    assert_eq!([qdisc("cake", false), qdisc("htb", false)], [None, None]);
    assert_eq!(qdisc("cake", true), Some("qdisc cake with nat".into()));
    assert_eq!(qdisc("gred", false), Some("qdisc gred".into()));
}

#[test]
fn each_obstacle_takes_away_what_it_forbids() {
    let has = interface::XDP | interface::ETHERNET;
    let all = interface::XDP_IN | interface::XDP_OUT | interface::TC_IN | interface::TC_OUT;
    let free = Obstacles::default();
    let some = || Some(String::new());
    assert_eq!(flags(has, Mode::Auto, true, &free), has | all);
    assert_eq!(flags(has, Mode::Auto, false, &free), has | all & !interface::XDP_OUT);
    let xdp = interface::XDP_IN | interface::XDP_OUT;
    assert_eq!(flags(has | all, Mode::Xdp, true, &free), has | xdp);
    let ethernet = interface::ETHERNET;
    let tc = interface::TC_IN | interface::TC_OUT;
    assert_eq!(flags(ethernet, Mode::Tc, false, &free), ethernet | tc);
    let shaped = Obstacles { egress_xdp: some(), ..Obstacles::default() };
    assert_eq!(flags(has, Mode::Auto, true, &shaped), has | all & !interface::XDP_OUT);
    let steered = Obstacles { ingress_xdp: some(), ..Obstacles::default() };
    assert_eq!(flags(has, Mode::Auto, true, &steered), has | all & !interface::XDP_IN);
    let mirrored = Obstacles { ingress: some(), ..Obstacles::default() };
    let out = interface::XDP_OUT | interface::TC_OUT;
    assert_eq!(flags(has, Mode::Auto, true, &mirrored), has | out);
    let stack = Obstacles { egress: some(), egress_xdp: some(), ..Obstacles::default() };
    let only_in = interface::XDP_IN | interface::TC_IN;
    assert_eq!(flags(has | all, Mode::Auto, true, &stack), has | only_in);
}
