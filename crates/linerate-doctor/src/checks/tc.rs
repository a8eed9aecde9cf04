//! Queueing disciplines, filters and tcx programs of an interface.

use linerate_bpf::link::tcx_programs;
use linerate_net::link::Link;
use linerate_net::qdisc::{EGRESS_FILTERS, INGRESS_FILTERS, Qdisc};
use linerate_net::ruleset::DeviceChain;

use super::{Answer, FORWARD};
use crate::context::Context;
use crate::finding::Job;
use crate::setting::quoted;

/// Queueing disciplines that neither shape nor drop by choice.
const TRIVIAL: &[&str] = &["noqueue", "mq", "pfifo_fast"];

pub(super) fn qdiscs(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    let qdiscs = match context.host.connection.qdiscs(link.index) {
        Ok(qdiscs) => qdiscs,
        Err(error) => return Answer::unknown(error.to_string()).alone(),
    };
    // The kernel's own ones have no handle.
    let is_obeyed = |qdisc: &&Qdisc| {
        !qdisc.is_ingress() && qdisc.handle != 0 && !TRIVIAL.contains(&qdisc.kind.as_str())
    };
    match qdiscs.iter().find(is_obeyed) {
        Some(qdisc) => {
            let what = format!("what leaves goes through a queueing discipline ({})", qdisc.kind);
            let command =
                format!("tc qdisc del dev {} root (if you do not need it)", quoted(&link.name));
            Answer::warning(what).by_hand(&command).alone()
        }
        None => Answer::ok("no queueing discipline that somebody attached").alone(),
    }
}

pub(super) fn ingress_filters(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    filters(context, link, INGRESS_FILTERS, "ingress", "comes in")
}

pub(super) fn egress_filters(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    filters(context, link, EGRESS_FILTERS, "egress", "leaves")
}

fn filters(context: &Context<'_>, link: &Link, parent: u32, hook: &str, what: &str) -> Vec<Answer> {
    let mut answers = Vec::new();
    match context.host.connection.filters(link.index, parent) {
        Ok(filters) if filters.is_empty() => {}
        Ok(filters) => {
            let mut kinds: Vec<_> = filters.iter().map(|one| one.kind.as_str()).collect();
            kinds.sort_unstable();
            kinds.dedup();
            let found = format!("what {what} meets filters ({})", kinds.join(", "));
            let command = format!(
                "tc filter del dev {} {hook} (if you do not need them)",
                quoted(&link.name)
            );
            if hook == "ingress" {
                answers.push(Answer::note(&found).by_hand(&command).of(&[Job::Receive]));
            }
            answers.push(Answer::warning(found).by_hand(&command).of(FORWARD));
        }
        Err(error) => answers.push(Answer::unknown(error.to_string())),
    }
    match DeviceChain::all() {
        Ok(chains) => answers.extend(
            chains
                .iter()
                .filter(|chain| chain.is_egress == (hook == "egress") && chain.is_on(&link.name))
                .map(|chain| {
                    Answer::warning(format!("what {what} meets chain {} of nftables", chain.name))
                        .by_hand(&format!("nft list table netdev {} (or inet)", chain.table))
                        .of(FORWARD)
                }),
        ),
        Err(error) => answers.push(Answer::unknown(format!("chains of nftables: {error}"))),
    }
    if answers.is_empty() {
        answers.push(Answer::ok(format!("no filter for what {what}")));
    }
    answers
}

pub(super) fn tcx(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    match tcx_programs(link.index).map(|both| both.map(|programs| programs.count)) {
        Ok([0, 0]) => Answer::ok("no tcx program").alone(),
        Ok([ingress, egress]) => {
            let what =
                format!("tcx programs: {ingress} for what comes in, {egress} for what leaves");
            Answer::note(what).by_hand(&format!("bpftool net show dev {}", link.name)).alone()
        }
        Err(error) => Answer::unknown(error.to_string()).alone(),
    }
}
