//! Sessions that nothing is done to, and what of a packet makes another session.

use std::time::Duration;

use linerate_forward::reason::Reason;
use linerate_forward::refusal::Refusal;
use linerate_forward::table::layout::flags;
use linerate_forward::table::session::Session;

use linerate_testkit::wait_for;

use crate::common::accelerator::Accelerator;
use linerate_testkit::lab::{BOTH, LEFT, Lab, RIGHT, at, deliver};
use linerate_testkit::tools::run;

#[test]
fn both_directions_are_learned_at_the_second_packet() {
    learner_or_skip!();
    let lab = Lab::new("lpl");
    let fast = Accelerator::attach(&lab);
    for family in BOTH {
        let flow = lab.flow(family);
        let (here, there) = (flow.here, flow.there);
        flow.ask("one");
        flow.answer("one");
        assert!(fast.session(here, there).is_none(), "{}", fast.describe());
        assert!(fast.session(there, here).is_none(), "{}", fast.describe());
        let before = fast.left(Reason::Unknown);
        for _ in 1..10 {
            assert_eq!((flow.ask("more"), flow.answer("more")), (here, there));
        }
        assert_eq!(fast.left(Reason::Unknown) - before, 2, "{}", fast.describe());

        let out = fast.learned(here, there);
        let (session, hop) = fast.stored(&out);
        assert_eq!(hop.destination_mac, lab.wan.b.mac().0);
        assert_eq!(hop.source_mac, lab.wan.a.mac().0);
        assert_eq!(hop.dst_mac, lab.lan.a.mac().0);
        assert_eq!((hop.ifindex, hop.out_ifindex), (lab.lan.a.index(), lab.wan.a.index()));
        assert_eq!((hop.mtu, hop.port, hop.out_tags), (1500, 1, 0));
        assert_eq!(hop.flags, flags::FIB);
        assert_eq!(session.transport_delta, [0, 0]);
        assert_eq!(session.generation, fast.control.generation());
        // Those before, at and after learning: the header, and "one" once, and "more".
        let headers = if family == 0 { 28 } else { 48 };
        assert_eq!((out.packets, out.bytes), (10, 10 * headers + 3 + 9 * 4), "{out:?}");
        let back = fast.learned(there, here);
        assert_eq!(back.next_hop.0, lab.lan.b.mac().0);
        assert_eq!((back.packets, back.bytes), (10, 10 * headers + 3 + 9 * 4), "{back:?}");
    }
}

#[test]
fn one_packet_makes_no_session() {
    learner_or_skip!();
    let lab = Lab::new("lon");
    let fast = Accelerator::attach(&lab);
    let flow = lab.flow(0);
    for port in 10_000..10_500 {
        flow.client.send_to(b"scan", at(RIGHT[0], port)).expect("sent");
        // No more at once than a veth's ring holds, even if the CPU that drains it is busy.
        if port % 50 == 49 {
            let so_far = u64::from(port) - 9_999;
            wait_for("refused", || fast.refused(Refusal::Admission) >= so_far);
        }
    }
    flow.ask("one");
    assert_eq!(fast.sessions(), [], "{}", fast.describe());
    assert_eq!(fast.refused(Refusal::Admission), 501, "{}", fast.describe());
}

#[test]
fn a_change_makes_the_next_packet_ask_the_kernel_once() {
    learner_or_skip!();
    let lab = Lab::new("lst");
    let fast = Accelerator::attach(&lab);
    let flow = lab.flow(0);
    (0..5).for_each(|_| _ = flow.ask("before"));
    let generation = |session: &Session| fast.stored(session).0.generation;
    let before = fast.learned(flow.here, flow.there);
    let first = generation(&before);
    fast.control.bump_generation();
    (0..5).for_each(|_| _ = flow.ask("after"));
    let after = fast.learned(flow.here, flow.there);
    assert_eq!(fast.left(Reason::Stale), 1, "{}", fast.describe());
    assert_eq!(generation(&after), first + 1);
    assert_eq!((before.revalidations, after.revalidations), (0, 1));
    assert_eq!((after.slot, after.packets), (before.slot, 10), "{}", fast.describe());
}

#[test]
fn a_session_is_learned_again_after_its_time() {
    learner_or_skip!();
    let lab = Lab::new("lre");
    let fast = Accelerator::attach_with(&lab, 2, Duration::from_millis(50));
    let flow = lab.flow(1);
    let (here, there) = (flow.here, flow.there);
    let mut sent = 0;
    wait_for("learned again", || {
        flow.ask("on");
        sent += 1;
        fast.session(here, there).is_some_and(|record| record.revalidations >= 3)
    });
    let record = fast.learned(here, there);
    assert_eq!(record.packets, sent, "{}", fast.describe());
    assert_eq!(
        fast.left(Reason::Revalidate),
        u64::from(record.revalidations),
        "{}",
        fast.describe()
    );
}

#[test]
fn the_mtu_is_the_smaller_of_interface_and_route() {
    learner_or_skip!();
    let lab = Lab::new("lmt");
    lab.wan.a.set_mtu(1400).expect("an MTU");
    let via = [("10.9.0.0/24", "10.9.0.9", "1000"), ("fd09::/64", "fd09::9", "1300")];
    for family in BOTH {
        let (network, host, mtu) = via[family];
        let words = ["route", "add", network, "via", RIGHT[family], "mtu", mtu];
        run(&lab.router, "ip", &words, "");
        run(&lab.right, "ip", &["addr", "add", host, "dev", "lo"], "");
    }
    let fast = Accelerator::attach(&lab);
    for family in BOTH {
        let (_, host, mtu) = via[family];
        for (to, expected) in [(RIGHT[family], 1400), (host, mtu.parse().expect("a number"))] {
            let client = Lab::udp(&lab.left, LEFT[family], 4000);
            let server = Lab::udp(&lab.right, to, 5000);
            for _ in 0..3 {
                deliver(&client, at(to, 5000), &server, "small");
            }
            let record = fast.learned(at(LEFT[family], 4000), at(to, 5000));
            assert_eq!(record.mtu, expected, "{to}");
            // One byte more than fits is the kernel's: it fragments, or says how much fits.
            let headers = if family == 0 { 28 } else { 48 };
            let fits = "x".repeat(expected as usize - headers);
            deliver(&client, at(to, 5000), &server, &fits);
            assert_eq!(fast.left(Reason::TooBig), 0, "{}", fast.describe());
            client.send_to(&vec![b'x'; fits.len() + 1], at(to, 5000)).expect("sent");
            wait_for("too big", || fast.left(Reason::TooBig) == 1);
            let map = fast.programs.maps.get("reasons").expect("a map");
            use libbpf_rs::{MapCore, MapFlags};
            let zeros = vec![vec![0; 8]; libbpf_rs::num_possible_cpus().expect("CPUs")];
            let index = (Reason::TooBig as u32).to_ne_bytes();
            map.update_percpu(&index, &zeros, MapFlags::ANY).expect("reset");
        }
    }
}

#[test]
fn what_a_packet_comes_with_is_learned_apart() {
    learner_or_skip!();
    let lab = Lab::new("lds");
    // A router that marks by what came in.
    lab.nft(
        "table inet t {
            chain forward { type filter hook forward priority 0
                ip dscp cs1 ip dscp set af21 return
                ip dscp cs0 ip dscp set ef
                ip6 dscp cs1 ip6 dscp set af21 return
                ip6 dscp cs0 ip6 dscp set ef
            }
        }",
    );
    let fast = Accelerator::attach(&lab);
    for family in BOTH {
        let flow = lab.flow(family);
        // CS1 and CS0, the second with ECT(0), which stays each packet's own.
        for tos in [0x20, 0, 2, 0, 0x22, 0x20, 2] {
            set_tos(&flow.client, family, tos);
            flow.ask("marked");
        }
        let records: Vec<_> = fast
            .sessions()
            .into_iter()
            .filter(|record| record.tuple.destination == flow.there)
            .collect();
        let mut seen: Vec<_> =
            records.iter().map(|record| (record.dscp, record.out_dscp, record.packets)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [(0, 46, 4), (8, 18, 3)], "{}", fast.describe());
        for record in &records {
            assert_eq!(record.nat, None);
        }
    }
}

/// TOS or traffic class of what the socket sends.
fn set_tos(socket: &std::net::UdpSocket, family: usize, tos: u32) {
    use rustix::net::sockopt::{set_ip_tos, set_ipv6_tclass};
    if family == 0 {
        set_ip_tos(socket, tos as u8).expect("a TOS");
    } else {
        set_ipv6_tclass(socket, tos).expect("a traffic class");
    }
}
