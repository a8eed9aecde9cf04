//! Programs that others attach to the ports keep their effect, with plain Linux as the oracle: at tcx and clsact, ingress
//! and egress, there from the start or added later.

use std::os::fd::AsFd;
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, TC_EGRESS, TC_INGRESS, TcHookBuilder};
use linerate_bpf::link::{Hook, Link};
use linerate_testkit::tools::compile_bpf;
use linerate_testkit::{Interface, root_or_skip, wait_for};

use super::datapath::{datapaths, port, takes};
use super::support::Net;

/// Where a program is attached.
#[derive(Clone, Copy, Debug)]
enum Place {
    Tcx,
    Clsact,
}

const PLACES: [Place; 2] = [Place::Tcx, Place::Clsact];

/// A program of `others.bpf.c` on an interface of the router.
struct Other<'n> {
    net: &'n Net,
    object: Object,
    held: Held,
}

enum Held {
    Tcx {
        _link: Link,
    },
    /// What removes it.
    Clsact(String),
}

impl<'n> Other<'n> {
    fn attach(net: &'n Net, program: &str, to: &Interface, place: Place, is_egress: bool) -> Self {
        let source = format!("{}/tests/it/forward/others.bpf.c", env!("CARGO_MANIFEST_DIR"));
        let object = compile_bpf(source.as_ref(), Path::new(env!("CARGO_TARGET_TMPDIR")));
        let object = ObjectBuilder::default().open_file(object).unwrap().load().unwrap();
        let held = {
            let program = object.progs().find(|found| found.name() == program).unwrap();
            let program = program.as_fd().try_clone_to_owned().unwrap();
            let attach = || match place {
                Place::Tcx => {
                    let hook = if is_egress { Hook::TcxEgress } else { Hook::TcxIngress };
                    let link = Link::attach(program.as_fd(), to.name(), to.index(), hook);
                    Held::Tcx { _link: link.unwrap() }
                }
                Place::Clsact => {
                    let mut builder = TcHookBuilder::new(program.as_fd());
                    builder.ifindex(to.index().cast_signed()).handle(1).priority(1);
                    let mut hook = builder.hook(if is_egress { TC_EGRESS } else { TC_INGRESS });
                    hook.create().unwrap();
                    hook.attach().unwrap();
                    let direction = if is_egress { "egress" } else { "ingress" };
                    Held::Clsact(format!("tc filter del dev {} {direction} pref 1", to.name()))
                }
            };
            net.router.run(attach).unwrap()
        };
        Self { net, object, held }
    }

    /// Has `redirect` send to this interface.
    fn redirects_to(&self, to: u32) {
        let state = self.object.maps().find(|map| map.name() == "state").unwrap();
        let (target, to) = (1_u32.to_ne_bytes(), u64::from(to).to_ne_bytes());
        state.update(&target, &to, MapFlags::ANY).unwrap();
    }

    /// IPv4 packets that it saw.
    fn seen(&self) -> u64 {
        let state = self.object.maps().find(|map| map.name() == "state").unwrap();
        let count = state.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        u64::from_ne_bytes(count.try_into().unwrap())
    }
}

impl Drop for Other<'_> {
    fn drop(&mut self) {
        if let Held::Clsact(remove) = &self.held {
            self.net.router_does(remove);
        }
    }
}

/// Packets that came to the other end of the interface `spy`.
fn redirected(net: &Net) -> u64 {
    net.router.interface("behind").unwrap().statistics().unwrap().rx_packets
}

/// An egress program that takes every packet away.
fn takes_away(place: Place, program: &str) {
    let net = Net::new();
    net.router_does("ip link add spy type veth peer name behind");
    net.router_does("ip link set spy up");
    net.router_does("ip link set behind up");
    let spy = net.router.interface("spy").unwrap().index();
    let attach = || {
        let other = Other::attach(&net, program, &net.right.a, place, true);
        other.redirects_to(spy);
        other
    };
    let none = |port: u16| {
        let before = redirected(&net);
        // More than it takes to learn a session.
        for _ in 0..3 {
            assert_eq!(net.ask_in_vain(0, port), 0, "{place:?} {program}");
        }
        assert!(program == "drop" || redirected(&net) >= before + 3, "{place:?} {program}");
    };
    let other = attach();
    let _daemon = net.run("");
    none(4000);
    assert!(other.seen() >= 3, "{place:?} {program}: {}", other.seen());
    drop(other);
    wait_for("XDP", || takes(&net, 4001, "xdp", "xdp"));
    let _later = attach();
    wait_for("the program to be obeyed", || net.ask_in_vain(0, 4001) == 0);
    none(4001);
}

#[test]
fn an_egress_program_that_drops_is_obeyed() {
    root_or_skip!();
    PLACES.into_iter().for_each(|place| takes_away(place, "drop"));
}

#[test]
fn an_egress_program_that_redirects_is_obeyed() {
    root_or_skip!();
    PLACES.into_iter().for_each(|place| takes_away(place, "redirect"));
}

/// Whether `other` sees each of 50 packets that are forwarded.
fn sees_all(net: &Net, port: u16, other: &Other<'_>) {
    let before = other.seen();
    assert_eq!(net.ask(0, port, 50), 50);
    assert!(other.seen() >= before + 50, "{} of 50", other.seen() - before);
}

#[test]
fn an_egress_program_sees_every_packet() {
    root_or_skip!();
    for place in PLACES {
        let net = Net::new();
        let attach = || Other::attach(&net, "count", &net.right.a, place, true);
        let other = attach();
        let _daemon = net.run("");
        wait_for("TC", || takes(&net, 4000, "tc", "xdp"));
        sees_all(&net, 4000, &other);
        drop(other);
        wait_for("XDP", || takes(&net, 4000, "xdp", "xdp"));
        let later = attach();
        wait_for("TC again", || takes(&net, 4000, "tc", "xdp"));
        sees_all(&net, 4000, &later);
        let told = port(&net, "right")["egress"]["reason"].clone();
        let expected = match place {
            Place::Tcx => "another tcx egress program",
            Place::Clsact => "egress filter bpf",
        };
        assert_eq!(told, expected);
    }
}

#[test]
fn an_ingress_program_sees_every_packet() {
    root_or_skip!();
    for place in PLACES {
        let net = Net::new();
        let attach = || Other::attach(&net, "count", &net.left.a, place, false);
        let other = attach();
        let _daemon = net.run("");
        // A late notification may have sessions learned once more.
        wait_for("only the way back", || {
            sees_all(&net, 4000, &other);
            datapaths(&net, 4000) == ["xdp"]
        });
        drop(other);
        wait_for("XDP", || takes(&net, 4000, "xdp", "xdp"));
        let later = attach();
        let expected = match place {
            Place::Tcx => "another tcx ingress program",
            Place::Clsact => "ingress filter bpf",
        };
        wait_for("the program to be told", || {
            let left = &port(&net, "left")["ingress"];
            left["reason"] == expected && left["datapath"].is_null()
        });
        sees_all(&net, 4000, &later);
    }
}
