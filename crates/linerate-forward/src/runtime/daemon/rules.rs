//! Keeps sessions with the kernel that a rule of the packet filter wants to see every packet of.

use linerate_net::ruleset::{Families, Ruleset};

use crate::table::control::Control;
use crate::table::layout::rules::{QUEUE, ROUTE, SOURCE_MAC};

/// Reads the ruleset of the namespace of the calling thread, and makes all sessions stale where the answer is new.
pub(super) fn refresh(control: &Control) {
    let rules = match Ruleset::load() {
        Ok(ruleset) => bits(&ruleset),
        Err(error) => {
            tracing::warn!(%error, "cannot read the rules of the packet filter: the kernel forwards everything");
            bits(&Ruleset { queue: Families { ipv4: true, ipv6: true }, ..Ruleset::default() })
        }
    };
    if !control.set_rules(rules) {
        return;
    }
    control.bump_generation();
    for (bit, what) in [
        (QUEUE, "a rule hands packets to a program (NFQUEUE) or copies them"),
        (SOURCE_MAC, "a rule looks at source MAC addresses"),
    ] {
        for (family, shift) in [("IPv4", 0), ("IPv6", 1)] {
            if rules & bit << shift != 0 {
                tracing::warn!(family, "sessions stay with the kernel: {what}");
            }
        }
    }
}

fn bits(ruleset: &Ruleset) -> u32 {
    let of = |families: Families, bit: u32| {
        (if families.ipv4 { bit } else { 0 }) | (if families.ipv6 { bit << 1 } else { 0 })
    };
    of(ruleset.queue, QUEUE) | of(ruleset.source_mac, SOURCE_MAC) | of(ruleset.route, ROUTE)
}
