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
mod tests;
