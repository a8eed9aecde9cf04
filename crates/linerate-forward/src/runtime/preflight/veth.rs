//! Requirements for a veth's peer (`drivers/net/veth.c`).
//!
//! Redirected frames go into the receive ring of the peer, which exists only while the peer has an XDP
//! program or generic receive offload; without either they are dropped. A peer with VLAN transmit offload
//! leaves a VLAN tag outside of the frame, and so hides it from XDP.

use std::io;

use linerate_bpf::link::{Hook, Link as Held};
use linerate_bpf::xdp::AttachMode;
use linerate_net::Connection;
use linerate_net::ethtool::{self, Features, XdpFeatures};
use linerate_net::link::{self, Link};
use linerate_net::namespace::Namespace;

use super::offload::turn_off;
use super::report::{Check, Outcome, PeerProgram, Report, refused, warning};
use super::{Options, probe};

/// What it takes to examine a peer in another network namespace.
const HOW_TO_ENTER: &str = "it takes CAP_SYS_ADMIN, and a name or a process that leads there";

/// The state of the peer.
struct Peer {
    link: Link,
    namespace: Namespace,
    /// Command prefix to run a command in its namespace.
    prefix: String,
    features: Features,
}

pub(super) fn examine(
    port: &Link,
    links: &[Link],
    names: &[String],
    xdp: Option<XdpFeatures>,
    options: &Options,
    report: &mut Report,
) -> io::Result<()> {
    let name = Some(port.name.as_str());
    let peer = Peer::of(port, links)?;
    // If both ends are going to be ports, each will have a program.
    let both = port.link_netnsid.is_none()
        && peer.as_ref().is_some_and(|peer| names.contains(&peer.link.name));
    let ready = both
        || match (xdp, &peer) {
            (Some(xdp), _) => xdp.can_transmit(),
            (None, Some(peer)) => peer.link.xdp.is_some() || peer.features.is_active("rx-gro"),
            (None, None) => false,
        };
    let Some(peer) = peer else {
        // Test frames show what this kernel does not announce ([`super::verify_transmit`]).
        if ready || xdp.is_none() && options.probe {
            let what = "the peer of this veth was not examined: VLAN tags outside of its frames would be \
                        overlooked, and sessions with partial checksums stay with the kernel";
            let remedy =
                format!("{HOW_TO_ENTER}; or there: `ethtool -K INTERFACE txvlan off tx off`");
            report.add(name, Check::Transmit, Outcome::Fine);
            report.add(name, Check::Peer, warning(what, remedy));
        } else {
            let reason = "the peer of this veth has no XDP program and no GRO, without which it drops \
                          redirected frames, and its network namespace cannot be entered";
            let remedy = format!("{HOW_TO_ENTER}; or there: `ethtool -K INTERFACE gro on`");
            let is_known = xdp.is_some();
            report.add(name, Check::Peer, tc_or_refused(is_known && options.tc, reason, remedy));
        }
        return Ok(());
    };
    let outcome = if ready { Outcome::Fine } else { give_program(port, &peer, options, report)? };
    report.add(name, Check::Transmit, outcome);
    for (offload, short) in
        [("tx-vlan-hw-insert", "txvlan"), ("tx-vlan-stag-hw-insert", "tx-vlan-stag-hw-insert")]
    {
        let outcome = if peer.features.is_active(offload) {
            let what =
                format!("the peer {} leaves VLAN tags outside of its frames", peer.link.name);
            let Peer { namespace, prefix, link, .. } = &peer;
            match turn_off(namespace, prefix, link, &what, offload, short, options)? {
                (outcome, Some(fix)) => {
                    report.fixes.push(fix);
                    outcome
                }
                // Not needed if the peer sends no VLAN tags.
                (Outcome::Refused { reason, remedy }, None) => warning(reason, remedy),
                (other, None) => other,
            }
        } else {
            Outcome::Fine
        };
        report.add(name, Check::Tags, outcome);
    }
    let unfinished = ["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"];
    let outcome = if unfinished.iter().any(|offload| peer.features.is_active(offload)) {
        warning(
            format!(
                "the peer {} leaves checksums of packets that it sends itself partial; such sessions stay \
                 with the kernel",
                peer.link.name
            ),
            format!("`{}ethtool -K {} tx off`", peer.prefix, peer.link.name),
        )
    } else {
        Outcome::Fine
    };
    report.add(name, Check::Checksums, outcome);
    Ok(())
}

/// Attaches a program to the peer that returns XDP_PASS.
fn give_program(
    port: &Link,
    peer: &Peer,
    options: &Options,
    report: &mut Report,
) -> io::Result<Outcome> {
    let Peer { link, namespace, prefix, .. } = peer;
    let reason = format!(
        "the peer {} of this veth has no XDP program and no GRO, without which it drops redirected \
         frames",
        link.name
    );
    let command = format!("`{prefix}ethtool -K {} gro on`", link.name);
    if !options.fix {
        return Ok(refused(reason, command));
    }
    // It needs as many receive queues as this end has transmit queues, and this end's MTU must fit.
    let attached = namespace.run(|| {
        let program = probe::pass_program()?;
        let hook = Hook::Xdp(AttachMode::Native);
        Held::attach(std::os::fd::AsFd::as_fd(&program), &link.name, link.index, hook)
            .map_err(crate::Error::from)
    })?;
    let held = match attached {
        Ok(held) => held,
        Err(error) => {
            let reason = format!("{reason}, and it cannot be given one: {error}");
            return Ok(tc_or_refused(options.tc, &reason, format!("try {command}")));
        }
    };
    if ethtool::xdp_features(port.index)?.is_some_and(|xdp| !xdp.can_transmit()) {
        let reason = format!("{reason}; one was tried, and did not help");
        return Ok(tc_or_refused(options.tc, &reason, format!("try {command}")));
    }
    let (interface, peer) = (port.name.clone(), link.name.clone());
    let done = format!("an XDP program that passes everything was attached to the peer {peer}");
    report.peer_programs.push(PeerProgram { interface, peer, link: held });
    Ok(Outcome::Fixed(done))
}

/// A port that XDP cannot send by: TC can, if it may.
fn tc_or_refused(may_take_tc: bool, reason: &str, remedy: String) -> Outcome {
    match may_take_tc {
        true => warning(format!("{reason}; what leaves by this end takes TC"), remedy),
        false => refused(reason, remedy),
    }
}

impl Peer {
    /// `None` if no name or process gives access to it, or the privilege is missing.
    fn of(port: &Link, links: &[Link]) -> io::Result<Option<Self>> {
        linerate_bpf::log_to_tracing();
        let Some(index) = port.link else { return Ok(None) };
        let (namespace, prefix) = match port.link_netnsid {
            None => (Namespace::current()?, String::new()),
            Some(id) => {
                let Some(namespace) = Connection::open()?.namespace(id) else { return Ok(None) };
                let prefix = prefix(&namespace);
                (namespace, prefix)
            }
        };
        let here = links.iter().find(|link| port.link_netnsid.is_none() && link.index == index);
        let seen = namespace.run(|| {
            let link = match here {
                Some(link) => Some(link.clone()),
                None => link::by_index(index)?,
            };
            let gone = || io::Error::from(io::ErrorKind::NotFound);
            Ok::<_, io::Error>((link.ok_or_else(gone)?, ethtool::features(index)?))
        });
        // As the service: the peer stays as it is.
        let (link, features) = match seen {
            Err(linerate_net::Error::Privilege { .. }) => return Ok(None),
            // The capability counts in the user namespace that owns the other one.
            Err(linerate_net::Error::System { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                return Ok(None);
            }
            seen => seen??,
        };
        Ok(Some(Self { link, namespace, prefix, features }))
    }
}

/// Command prefix to run a command in this namespace.
fn prefix(namespace: &Namespace) -> String {
    let path = namespace.path();
    match (path.starts_with("/run/netns"), path.file_name()) {
        (true, Some(name)) => format!("ip netns exec {} ", name.display()),
        _ => format!("nsenter --net={} ", path.display()),
    }
}
