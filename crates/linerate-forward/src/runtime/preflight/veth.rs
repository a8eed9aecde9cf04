//! What the far end of a veth must be able to (`drivers/net/veth.c`).
//!
//! Redirected frames go into the receive ring of the far end, which exists only while that has an XDP program
//! or generic receive offload; without either they are dropped. A far end that leaves a VLAN tag beside a
//! frame, as a card would put it in, hides it from XDP.

use std::io;

use linerate_bpf::link::{Hook, Link as Held};
use linerate_bpf::xdp::AttachMode;
use linerate_net::Connection;
use linerate_net::ethtool::{self, Features, XdpFeatures};
use linerate_net::link::{self, Link};
use linerate_net::namespace::Namespace;

use super::offload::turn_off;
use super::report::{Check, Outcome, Report, Stub, refused, warning};
use super::{Options, probe};

/// The far end, as it is.
struct Peer {
    link: Link,
    namespace: Namespace,
    /// How a command line is begun that is to run where it is.
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
    // Where both ends are to be ports, each has a program soon.
    let both = port.link_netnsid.is_none()
        && peer.as_ref().is_some_and(|peer| names.contains(&peer.link.name));
    let ready = both
        || match (xdp, &peer) {
            (Some(xdp), _) => xdp.can_transmit(),
            (None, Some(peer)) => peer.link.xdp.is_some() || peer.features.is_active("rx-gro"),
            (None, None) => false,
        };
    let Some(peer) = peer else {
        let outcome = if ready {
            Outcome::Fine
        } else {
            refused(
                "the far end of this veth has no XDP program and no GRO, without which it drops \
                 redirected frames, and no name and no process leads to its network namespace",
                "there: `ethtool -K INTERFACE gro on`",
            )
        };
        report.add(name, Check::Transmit, outcome);
        return Ok(());
    };
    let outcome = if ready { Outcome::Fine } else { give_program(port, &peer, options, report)? };
    report.add(name, Check::Transmit, outcome);
    for (offload, short) in
        [("tx-vlan-hw-insert", "txvlan"), ("tx-vlan-stag-hw-insert", "tx-vlan-stag-hw-insert")]
    {
        let outcome = if peer.features.is_active(offload) {
            let what = format!("the far end {} leaves VLAN tags beside its frames", peer.link.name);
            let Peer { namespace, prefix, link, .. } = &peer;
            match turn_off(namespace, prefix, link, &what, offload, short, options)? {
                (outcome, Some(fix)) => {
                    report.fixes.push(fix);
                    outcome
                }
                // Who tags no frames there may go without.
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
                "the far end {} leaves checksums of what it sends itself unfinished; such sessions stay \
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

/// Puts a program on the far end that passes everything.
fn give_program(
    port: &Link,
    peer: &Peer,
    options: &Options,
    report: &mut Report,
) -> io::Result<Outcome> {
    let Peer { link, namespace, prefix, .. } = peer;
    let reason = format!(
        "the far end {} of this veth has no XDP program and no GRO, without which it drops redirected \
         frames",
        link.name
    );
    let command = format!("`{prefix}ethtool -K {} gro on`", link.name);
    if !options.fix {
        return Ok(refused(reason, command));
    }
    // Its receive queues must be as many as this end's transmit queues, and this end's MTU fit.
    let attached = namespace.run(|| {
        let stub = probe::stub()?;
        let hook = Hook::Xdp(AttachMode::Native);
        Held::attach(std::os::fd::AsFd::as_fd(&stub), &link.name, link.index, hook)
            .map_err(crate::Error::from)
    })?;
    let held = match attached {
        Ok(held) => held,
        Err(error) => {
            let reason = format!("{reason}, and it cannot be given one: {error}");
            return Ok(refused(reason, format!("try {command}")));
        }
    };
    if ethtool::xdp_features(port.index)?.is_some_and(|xdp| !xdp.can_transmit()) {
        return Ok(refused(
            format!("{reason}; one was tried, and did not help"),
            format!("try {command}"),
        ));
    }
    let (interface, peer) = (port.name.clone(), link.name.clone());
    let done = format!("the far end {peer} was given an XDP program that passes everything");
    report.stubs.push(Stub { interface, peer, link: held });
    Ok(Outcome::Fixed(done))
}

impl Peer {
    /// `None` where nothing leads to it.
    fn of(port: &Link, links: &[Link]) -> io::Result<Option<Self>> {
        linerate_bpf::log_to_tracing();
        let Some(index) = port.link else { return Ok(None) };
        let (namespace, prefix) = match port.link_netnsid {
            None => (Namespace::of_thread()?, String::new()),
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
        })?;
        let (link, features) = seen?;
        Ok(Some(Self { link, namespace, prefix, features }))
    }
}

/// How a command line begins that is to run in this namespace.
fn prefix(namespace: &Namespace) -> String {
    let path = namespace.path();
    match (path.starts_with("/run/netns"), path.file_name()) {
        (true, Some(name)) => format!("ip netns exec {} ", name.display()),
        _ => format!("nsenter --net={} ", path.display()),
    }
}
