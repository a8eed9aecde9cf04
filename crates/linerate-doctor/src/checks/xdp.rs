//! XDP on an interface: the mode, by trying; zero-copy; the program of somebody else.

use std::path::Path;

use linerate_bpf::Error;
use linerate_bpf::xdp::{self, AttachMode, Owner};
use linerate_forward::runtime::pins::{BPFFS, Namespace, Pins};
use linerate_net::ethtool;
use linerate_net::link::Link;

use super::Answer;
use crate::context::Context;
use crate::finding::Job::{Capture, Forward, Receive, Uplink};
use crate::setting::quoted;

pub(super) fn program(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    let program = match xdp::attached(&link.name) {
        Ok(None) => return Answer::ok("no XDP program is attached").alone(),
        Ok(Some(program)) => program,
        Err(error) => return Answer::unknown(error.to_string()).alone(),
    };
    if let Some(instance) = instance_of(link) {
        let what = format!("linerate forward accelerates it (instance {instance})");
        return vec![
            Answer::ok(&what).of(&[Forward]),
            Answer::note(what)
                .by_hand("capture and receive use packet sockets beside it, or --source tee")
                .of(&[Capture, Receive, Uplink]),
        ];
    }
    let owner = program.owner();
    let name = match (program.name.as_str(), program.lacks_privilege()) {
        (_, true) => "whose name this process may not see".to_owned(),
        (name, false) => format!("\"{name}\""),
    };
    let what = format!(
        "XDP program {name} (id {}, {}) is attached; it is held by {owner}",
        program.id, program.mode
    );
    if program.is_linerate() {
        return Answer::note(what)
            .by_hand("end that linerate, or use --source tee with both")
            .alone();
    }
    let remedy = match owner {
        Owner::Interface => {
            let word = if program.mode == AttachMode::Generic { "xdpgeneric" } else { "xdpdrv" };
            format!("ip link set dev {} {word} off", quoted(&link.name))
        }
        Owner::Processes(_) => "end that process".to_owned(),
        Owner::PinnedLink(id) => format!("bpftool --bpffs link show id {id}, and remove that file"),
        Owner::Unknown => "as root this says who holds it".to_owned(),
    };
    vec![
        Answer::fatal(&what).by_hand(&remedy).of(&[Forward]),
        Answer::warning(&what).by_hand(&remedy).of(&[Capture, Receive, Uplink]),
    ]
}

/// The instance of `linerate forward` that the interface is a port of.
pub(super) fn instance_of(link: &Link) -> Option<String> {
    let here = Namespace::current().ok()?;
    let instances = Pins::instances(Path::new(BPFFS)).ok()?;
    instances.into_iter().find(|instance| {
        let state = Pins::of(instance).state();
        state.is_ok_and(|state| state.namespace == here && state.port(link.index).is_some())
    })
}

pub(super) fn mode(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    if !context.options.attach {
        return Answer::unknown("not tried (--no-attach)").alone();
    }
    if !link.is_up() {
        return Answer::unknown("not tried: the interface is down").alone();
    }
    match xdp::try_attach(&link.name, AttachMode::Native) {
        Ok(()) => Answer::ok("the driver takes an XDP program (native)").alone(),
        Err(error @ Error::Privilege { .. }) => Answer::unknown(error.to_string()).alone(),
        Err(Error::ForeignProgram { mode: AttachMode::Native, .. }) => {
            Answer::ok("the driver runs an XDP program (native)").alone()
        }
        Err(Error::ForeignProgram { .. }) => {
            Answer::unknown("not tried: a generic program is attached").alone()
        }
        Err(Error::System { source, .. }) => refused(link, &source).alone(),
        Err(error) => Answer::unknown(error.to_string()).alone(),
    }
}

/// The driver refuses a program: does the stack take it?
fn refused(link: &Link, reason: &std::io::Error) -> Answer {
    match xdp::try_attach(&link.name, AttachMode::Generic) {
        Ok(()) => {
            Answer::warning(format!("the driver refuses native XDP ({reason}); generic XDP works"))
                .by_hand(&advice(link))
        }
        Err(generic) => {
            Answer::warning(format!("neither native XDP ({reason}) nor generic XDP: {generic}"))
                .by_hand(&advice(link))
        }
    }
}

/// What most often keeps a driver from native XDP.
fn advice(link: &Link) -> String {
    let name = &link.name;
    match link.kind.as_str() {
        "veth" => format!(
            "a veth needs as many receive queues as its peer has transmit queues (ethtool -l {name}), and an \
             MTU that fits into a page"
        ),
        "" => format!(
            "see dmesg; drivers ask for fewer channels (ethtool -L {name}), an MTU that fits into a page, or no \
             LRO (ethtool -K {name} lro off)"
        ),
        kind => format!("a {kind} device has no native XDP: use its lower device"),
    }
}

pub(super) fn features(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    match ethtool::xdp_features(link.index) {
        Ok(Some(features)) if features.has_zero_copy() => {
            Answer::ok("AF_XDP sockets share frames with the driver (zero-copy)")
        }
        Ok(Some(_)) => Answer::note("the driver has no zero-copy AF_XDP"),
        Ok(None) => Answer::unknown("this kernel does not say (it does from Linux 6.3 on)"),
        Err(error) => Answer::unknown(error.to_string()),
    }
    .alone()
}
