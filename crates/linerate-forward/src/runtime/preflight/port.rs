//! Checks of one interface.

use std::io;
use std::thread;

use linerate_net::ethtool::{self, Channels};
use linerate_net::link::Link;
use linerate_net::namespace::Namespace;
use linerate_net::text::plural;

use super::offload::turn_off;
use super::report::{Check, Outcome, Report, refused, warning};
use super::{Options, host, veth};
use crate::runtime::link::{for_tc_only, longest_in_one_buffer, too_long_for_xdp};

pub(super) fn examine(
    link: &Link,
    links: &[Link],
    names: &[String],
    options: &Options,
    report: &mut Report,
) -> io::Result<()> {
    let name = Some(link.name.as_str());
    // Nothing has to be prepared for TC.
    if options.tc && for_tc_only(link).is_some() {
        let is_bridge = link.kind == "bridge";
        let kind = if is_bridge { host::bridge_filter() } else { Outcome::Fine };
        report.add(name, Check::Kind, kind);
        return Ok(());
    }
    let kind = kind(link, links);
    let may_be = kind == Outcome::Fine;
    report.add(name, Check::Kind, kind);
    if !may_be {
        return Ok(());
    }
    let mtu = mtu(link, options);
    let is_for_tc = matches!(mtu, Outcome::Warning { .. });
    report.add(name, Check::Mtu, mtu);
    if is_for_tc {
        return Ok(());
    }
    report.add(name, Check::Program, program(link, options));
    let xdp = ethtool::xdp_features(link.index)?;
    let native = match xdp {
        Some(xdp) if !xdp.is_native() => warning(
            "its driver runs no XDP programs, or not as its queues are set; they run in the stack \
             instead, which saves less",
            "take another interface, or see `ethtool -l`",
        ),
        _ => Outcome::Fine,
    };
    report.add(name, Check::Native, native);
    let features = ethtool::features(link.index)?;
    let own = Namespace::current()?;
    let mut off = |what: &str, check, offload: &str, short: &str| -> io::Result<()> {
        let outcome = if features.is_active(offload) {
            let (outcome, fix) = turn_off(&own, "", link, what, offload, short, options)?;
            report.fixes.extend(fix);
            outcome
        } else {
            Outcome::Fine
        };
        report.add(name, check, outcome);
        Ok(())
    };
    off("frames are joined before XDP sees them (LRO)", Check::Coalescing, "rx-lro", "lro")?;
    off("frames are joined before XDP sees them", Check::Coalescing, "rx-gro-hw", "rx-gro-hw")?;
    if link.kind == "veth" {
        return veth::examine(link, links, names, xdp, options, report);
    }
    let tags = "VLAN tags are taken out of frames before XDP sees them";
    off(tags, Check::Tags, "rx-vlan-hw-parse", "rxvlan")?;
    off(tags, Check::Tags, "rx-vlan-stag-hw-parse", "rx-vlan-stag-hw-parse")?;
    report.add(name, Check::Queues, queues(link, ethtool::channels(link.index)?));
    Ok(())
}

/// Whether its egress is enabled.
fn kind(link: &Link, links: &[Link]) -> Outcome {
    let name = |index: u32| links.iter().find(|one| one.index == index).map(|one| &*one.name);
    let members: Vec<_> = links
        .iter()
        .filter(|one| one.master == Some(link.index))
        .map(|one| one.name.as_str())
        .collect();
    let below = link.link.filter(|_| link.link_netnsid.is_none()).and_then(name);
    if link.is_loopback() {
        return refused("it is the loopback interface", "name interfaces that frames leave by");
    }
    match link.kind.as_str() {
        "bridge" | "bond" | "team" | "vrf" => {
            let remedy = if members.is_empty() {
                "it has none yet".to_owned()
            } else {
                format!("name {} instead", members.join(" and "))
            };
            refused(format!("a {} sends by its members", link.kind), remedy)
        }
        "vlan" | "macvlan" | "macvtap" | "ipvlan" | "ipvtap" | "macsec" => refused(
            format!("a {} device sends through its lower device", link.kind),
            match below {
                Some(below) => format!("name {below} instead: VLAN tags are part of a session"),
                None => "name that one instead, in its network namespace".to_owned(),
            },
        ),
        "dummy" | "ifb" | "nlmon" | "vcan" => refused(
            format!("nothing leaves by a {} device", link.kind),
            "name interfaces that frames leave by",
        ),
        "vxlan" | "geneve" | "gre" | "gretap" | "erspan" | "ip6gre" | "ip6gretap" | "ip6erspan"
        | "ipip" | "sit" | "ip6tnl" | "vti" | "vti6" | "xfrm" | "wireguard" | "ppp" | "bareudp"
        | "gtp" | "l2tpeth" => refused(
            format!("what goes into a {} tunnel leaves by another interface", link.kind),
            match below {
                Some(below) => format!("the kernel goes on forwarding it; {below} can be a port"),
                None => "the kernel goes on forwarding it; leave it out".to_owned(),
            },
        ),
        _ if !link.is_ethernet() => {
            refused("it is no Ethernet interface", "only those can be ports: leave it out")
        }
        _ => Outcome::Fine,
    }
}

fn program(link: &Link, options: &Options) -> Outcome {
    match link.xdp {
        Some(id) if !options.adopted.contains(&link.index) => refused(
            format!("another XDP program is on it (id {id})"),
            format!(
                "end who put it there: `linerate forward detach` for another instance, a capture or a \
                 receiver of Linerate by itself; `bpftool link` shows links, and what hangs on none is taken \
                 off by `ip link set dev {} xdp off`",
                link.name
            ),
        ),
        _ => Outcome::Fine,
    }
}

fn mtu(link: &Link, options: &Options) -> Outcome {
    let remedy = format!("`ip link set dev {} mtu {}`", link.name, longest_in_one_buffer());
    match too_long_for_xdp(link, options.multi_buffer) {
        None => Outcome::Fine,
        Some(reason) if options.tc => warning(format!("{reason}: TC forwards its packets"), remedy),
        Some(reason) => refused(reason, remedy),
    }
}

/// If a driver has fewer queues for redirected frames than CPUs, it drops the frames of the other CPUs or
/// makes CPUs wait for each other.
fn queues(link: &Link, channels: Option<Channels>) -> Outcome {
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    match channels {
        Some(channels) if channels.tx_queues() < cpus => {
            let queues = channels.tx_queues();
            let kind = if channels.combined_max > 0 { "combined" } else { "tx" };
            let wanted = cpus.min(channels.max_tx_queues());
            let remedy = if wanted > queues {
                format!("`ethtool -L {} {kind} {wanted}`", link.name)
            } else {
                let cpus = plural(queues.into(), "CPU");
                format!("it has no more: have only {cpus} serve interrupts of ports")
            };
            let what = format!(
                "{} for {}: what other CPUs redirect may be dropped or wait",
                plural(queues.into(), "transmit queue"),
                plural(cpus.into(), "CPU")
            );
            warning(what, remedy)
        }
        _ => Outcome::Fine,
    }
}

#[cfg(test)]
mod tests {
    use linerate_net::privilege::{self, CapabilitySet};
    use linerate_testkit::{self as testkit, Veth, VethOptions, root_or_skip};

    use super::*;

    fn link(namespace: &testkit::Namespace, name: &str) -> Link {
        let links = namespace.run(linerate_net::link::all).unwrap().unwrap();
        links.into_iter().find(|link| link.name == name).unwrap()
    }

    /// The results of a check.
    fn of(report: &Report, check: Check) -> Vec<&Outcome> {
        let found = report.findings.iter().filter(|finding| finding.check == check);
        found.map(|finding| &finding.outcome).collect()
    }

    /// A veth has the offload and can switch it, so it serves as a card here.
    #[test]
    fn tags_that_a_card_takes_out_of_frames_are_left_in_and_taken_out_again() {
        root_or_skip!();
        let namespace = testkit::Namespace::create("pfcard").unwrap();
        let cable = Veth::create(&namespace, "a", &namespace, "b", VethOptions::default()).unwrap();
        cable
            .a
            .set_features(&[("rx-vlan-hw-parse", true), ("rx-vlan-stag-hw-parse", true)])
            .unwrap();
        let card = Link { kind: String::new(), ..link(&namespace, "a") };
        let links = [card.clone()];
        let examine = |fix| {
            let mut report = Report::default();
            let options = Options { fix, ..Options::default() };
            let examine = || examine(&card, &links, &["a".to_owned()], &options, &mut report);
            namespace.run(examine).unwrap().unwrap();
            report
        };
        let is_on = || {
            let features = namespace.run(|| ethtool::features(card.index)).unwrap().unwrap();
            ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"].map(|name| features.is_active(name))
        };
        assert_eq!(is_on(), [true; 2]);

        let report = examine(false);
        let [Outcome::Refused { remedy, .. }, Outcome::Refused { .. }] =
            of(&report, Check::Tags)[..]
        else {
            panic!("{report:?}")
        };
        assert!(remedy.contains("`ethtool -K a rxvlan off`"), "{remedy}");
        assert_eq!((is_on(), report.fixes.len()), ([true; 2], 0));

        let report = examine(true);
        let fixed = of(&report, Check::Tags);
        assert!(fixed.iter().all(|one| matches!(one, Outcome::Fixed(_))), "{report:?}");
        assert_eq!((is_on(), report.fixes.len()), ([false; 2], 2));
        // Handled like frames that a card joins.
        let joined = of(&report, Check::Coalescing);
        assert!(joined.iter().all(|one| **one == Outcome::Fine), "{report:?}");
        assert!(of(&examine(true), Check::Tags).iter().all(|one| **one == Outcome::Fine));

        let restore = || crate::runtime::preflight::restore(&report.fixes);
        // As a service that may not enter the namespace.
        let without_privilege = || {
            privilege::keep_only(CapabilitySet::NET_ADMIN).unwrap();
            restore()
        };
        let errors = thread::scope(|scope| scope.spawn(without_privilege).join().unwrap());
        let told: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert!(told[0].contains("`ethtool -K a rx-vlan-hw-parse on`"), "{told:?}");
        assert_eq!((is_on(), told.len()), ([false; 2], 2));
        let errors = namespace.run(restore).unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(is_on(), [true; 2]);
    }

    #[test]
    fn fewer_queues_than_cpus_are_told_with_what_helps() {
        let link = Link { name: "eth1".to_owned(), ..Link::default() };
        let cpus = thread::available_parallelism().unwrap().get() as u32;
        let channels = |used, most, combined| match combined {
            true => Channels { combined_count: used, combined_max: most, ..Channels::default() },
            false => Channels { tx_count: used, tx_max: most, ..Channels::default() },
        };
        let told = |used, most, combined| match queues(&link, Some(channels(used, most, combined)))
        {
            Outcome::Warning { remedy, .. } => remedy,
            Outcome::Fine => String::new(),
            other => panic!("{other:?}"),
        };
        assert_eq!(told(cpus, cpus, true), "");
        assert_eq!(told(0, cpus, true), format!("`ethtool -L eth1 combined {cpus}`"));
        assert_eq!(told(0, cpus, false), format!("`ethtool -L eth1 tx {cpus}`"));
        assert!(told(0, 0, true).contains("no more"), "{}", told(0, 0, true));
        assert_eq!(queues(&link, None), Outcome::Fine);
    }

    #[test]
    fn the_queues_of_a_device_are_read() {
        root_or_skip!();
        let namespace = testkit::Namespace::create("pfqueue").unwrap();
        let _cable =
            Veth::create(&namespace, "a", &namespace, "b", VethOptions::default()).unwrap();
        let link = link(&namespace, "a");
        let found = namespace.run(|| ethtool::channels(link.index)).unwrap().unwrap();
        let found = found.expect("a veth tells its queues");
        let most = found.max_tx_queues();
        assert_eq!((most, found.combined_max), (link.num_tx_queues, 0), "{found:?}");
        assert!((1..=most).contains(&found.tx_queues()), "{found:?}");
    }
}
