//! Keeps sessions with the kernel that a rule of the packet filter wants to see every packet of.

use linerate_net::ruleset::{Families, Kind, Options, Ruleset};

use crate::table::control::Control;
use crate::table::layout::rules::{QUEUE, ROUTE};

/// Reads the ruleset of the namespace of the calling thread, and makes all sessions stale where the answer is new.
pub(super) fn refresh(control: &Control) {
    let rules = match Ruleset::load(&Options::default()) {
        Ok(ruleset) => bits(&ruleset),
        Err(error) => {
            tracing::warn!(%error, "cannot read the rules of the packet filter: the kernel forwards everything");
            QUEUE | QUEUE << 1
        }
    };
    if !control.set_rules(rules) {
        return;
    }
    control.bump_generation();
}

fn bits(ruleset: &Ruleset) -> u32 {
    let of = |families: Families, bit: u32| {
        (if families.ipv4 { bit } else { 0 }) | (if families.ipv6 { bit << 1 } else { 0 })
    };
    let mut queue = Families::default();
    for (kind, program) in Kind::all().iter().zip(&ruleset.programs) {
        let is_kept = !program.entries.is_empty();
        queue.ipv6 |= kind.is_ipv6 && is_kept;
        queue.ipv4 |= !kind.is_ipv6 && is_kept;
    }
    of(queue, QUEUE) | of(ruleset.route, ROUTE)
}
