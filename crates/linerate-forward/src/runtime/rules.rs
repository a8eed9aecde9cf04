//! Keeps sessions with the kernel that a rule of the packet filter would not treat alike packet by packet.

use std::collections::BTreeSet;

use linerate_net::ruleset::{Action, Entry, Families, Options, Program, Ruleset, Seen, Sessions};

use crate::Result;
use crate::maps::Maps;
use crate::table::control::Control;
use crate::table::layout::RULE_ENTRIES;
use crate::table::layout::rules::ROUTE;
use crate::table::rules::Rules;

/// Evaluates the rules of the namespace of the calling thread, and makes all sessions stale where the answer is new.
///
/// # Errors
/// When the maps of the programs cannot be written.
pub fn refresh(control: &Control, maps: &Maps, options: &Options) -> Result<()> {
    let mut ruleset = Ruleset::load(options).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the rules of the packet filter: the kernel forwards everything");
        unreadable()
    });
    let mut is_coarse = false;
    for program in &mut ruleset.programs {
        is_coarse |= program.limit(RULE_ENTRIES);
    }
    let rules = Rules::new(maps)?;
    let known: BTreeSet<_> = rules.kept()?.into_iter().map(|kept| kept.rule).collect();
    let is_new = rules.write(&ruleset)?;
    if control.set_rules(bits(ruleset.route)) || is_new {
        control.bump_generation();
    }
    for rule in ruleset.rules() {
        if !known.contains(rule) {
            tracing::warn!(rule, "sessions stay with the kernel");
        }
    }
    if is_coarse && is_new {
        tracing::warn!(
            "more than {RULE_ENTRIES} rules keep sessions with the kernel: they keep more sessions than they match"
        );
    }
    Ok(())
}

/// All sessions stay with the kernel.
fn unreadable() -> Ruleset {
    let entry = Entry { sessions: Sessions::ALL, seen: Seen::default(), action: Action::Keep(0) };
    let rules = vec!["rules that cannot be read".to_owned()];
    let program = Program { entries: vec![entry], rules };
    let route = Families { ipv4: true, ipv6: true };
    Ruleset { programs: std::array::from_fn(|_| program.clone()), route }
}

fn bits(route: Families) -> u32 {
    (if route.ipv4 { ROUTE } else { 0 }) | (if route.ipv6 { ROUTE << 1 } else { 0 })
}
