//! Offloads that join frames or take parts out of them before somebody sees them.

use linerate_net::ethtool::{self, Features};
use linerate_net::link::Link;

use super::Answer;
use crate::context::Context;
use crate::finding::Job;
use crate::setting::Change;

/// The features of an interface; an answer where the kernel does not answer.
fn features(link: &Link) -> Result<Features, Answer> {
    ethtool::features(link.index).map_err(|error| Answer::unknown(error.to_string()))
}

/// A finding where `feature` is on, with the change that turns it off where the driver can.
fn must_be_off(link: &Link, feature: &str, found: Answer, fine: &str) -> Answer {
    let features = match features(link) {
        Ok(features) => features,
        Err(unknown) => return unknown,
    };
    match (features.is_active(feature), features.is_fixed(feature)) {
        (false, _) => Answer::ok(fine),
        (true, true) => Answer { what: format!("{} (the driver fixes that)", found.what), ..found },
        (true, false) => found.change(Change::feature(&link.name, feature, false)),
    }
}

/// `generic-receive-offload` and its relatives: they help sockets, and hide frames from a capture.
fn joins(context: &Context<'_>, link: &Link, feature: &str, what: &str) -> Vec<Answer> {
    if context.is_only(Job::Capture) {
        return must_be_off(link, feature, Answer::warning(what), "off").alone();
    }
    // Other jobs are faster with it.
    let found = must_be_off(link, feature, Answer::note(what), "off");
    let remedy = found.remedy.command().map(|command| {
        format!("{command}, if only captures use the interface (`linerate doctor capture --fix`)")
    });
    match remedy {
        Some(remedy) => found.by_hand(&remedy).alone(),
        None => found.alone(),
    }
}

pub(super) fn gro(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    let what = "GRO joins frames before packet sockets see them";
    joins(context, link, "rx-gro", what)
}

pub(super) fn gro_list(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    let what = "GRO joins UDP frames to lists before packet sockets see them (rx-gro-list)";
    joins(context, link, "rx-gro-list", what)
}

pub(super) fn gro_forwarding(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    let what = "GRO joins UDP frames that nobody here receives (rx-udp-gro-forwarding)";
    joins(context, link, "rx-udp-gro-forwarding", what)
}

pub(super) fn hardware_gro(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    let found = Answer::warning("the card joins frames before anybody sees them (rx-gro-hw)");
    must_be_off(link, "rx-gro-hw", found, "the card does not join frames (rx-gro-hw)").alone()
}

pub(super) fn lro(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    let found = Answer::warning("the card joins frames before anybody sees them (LRO)");
    must_be_off(link, "rx-lro", found, "the card does not join frames (LRO)").alone()
}

pub(super) fn vlan(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    if link.is_veth() {
        return vlan_of_peer(context, link).alone();
    }
    let mut answers = Vec::new();
    for (feature, tags) in
        [(ethtool::RX_VLAN_OFFLOAD, "VLAN tags"), ("rx-vlan-stag-hw-parse", "service VLAN tags")]
    {
        let what = format!("{tags} are taken out of frames before XDP sees them ({feature})");
        let found = Answer::warning(what);
        answers.push(must_be_off(link, feature, found, &format!("{tags} stay in the frames")));
    }
    answers
}

/// What the stack leaves out of a frame that it sends stays out of it in a veth.
fn vlan_of_peer(context: &Context<'_>, link: &Link) -> Answer {
    let feature = "tx-vlan-hw-insert";
    match link.veth_peer(&context.host.links) {
        Some(peer) => {
            let what = format!(
                "VLAN tags that the peer {} sends are not in the frames ({feature})",
                peer.name
            );
            must_be_off(peer, feature, Answer::note(what), "VLAN tags stay in the frames")
        }
        None => Answer::note(format!(
            "its peer, in another network namespace, decides whether VLAN tags are in the frames ({feature})"
        )),
    }
}
