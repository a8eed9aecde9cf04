//! Keeps sessions with the kernel that a rule of the packet filter would not treat alike packet by packet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use linerate_bpf::netfilter::{NetfilterLink, NetfilterLinks};
use linerate_net::link::{self, Link};
use linerate_net::ruleset::{
    Action, Entry, Families, Field, Kind, Options, Program, Range, Ruleset, Seen, Sessions,
};

use crate::Result;
use crate::config::{Config, Selector};
use crate::maps::Maps;
use crate::table::control::Control;
use crate::table::layout::RULE_ENTRIES;
use crate::table::layout::rules::{OFFLOADED, ROUTE};
use crate::table::rules::Rules;

/// What the user wants of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    options: Options,
    accelerate: Vec<Selector>,
    exempt: Vec<Selector>,
}

impl From<&Config> for Policy {
    fn from(config: &Config) -> Self {
        let (accelerate, exempt) = (config.accelerate.clone(), config.exempt.clone());
        let options = Options { strict: config.strict, after_packets: config.after_packets };
        Self { options, accelerate, exempt }
    }
}

/// Evaluates the rules of the namespace of the calling thread, and makes all sessions stale where the answer is new. Of
/// several threads who reads last has to write last.
///
/// # Errors
/// When the maps of the programs cannot be written.
pub fn refresh(control: &Control, maps: &Maps, policy: &Policy) -> Result<()> {
    let mut ruleset = Ruleset::load(&policy.options).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the rules of the packet filter: the kernel forwards everything");
        unreadable()
    });
    let mut is_coarse = false;
    let links = NetfilterLinks::open().and_then(|links| links.list()).inspect_err(|error| {
        tracing::warn!(%error, "cannot list the BPF programs at netfilter's hooks: the kernel forwards everything");
    });
    let interfaces = link::all();
    let interfaces = interfaces.as_deref().ok();
    for (kind, program) in Kind::all().into_iter().zip(&mut ruleset.programs) {
        let links = links.as_deref().ok();
        names_of(links, kind).into_iter().for_each(|name| keep_all(program, name));
        // What the user has chosen stays exact.
        let mut own = Program::default();
        policy.prepend(&mut own, kind, interfaces);
        is_coarse |= program.limit(RULE_ENTRIES.saturating_sub(own.entries.len()).max(1));
        policy.prepend(program, kind, interfaces);
        is_coarse |= program.limit(RULE_ENTRIES);
    }
    let rules = Rules::new(maps)?;
    let known: BTreeSet<_> = rules.kept()?.into_iter().map(|kept| kept.rule).collect();
    let is_new = rules.write(&ruleset)?;
    if control.set_rules(bits(ruleset.route, policy)) || is_new {
        control.bump_generation();
    }
    for (rule, rules) in newcomers(&known, &ruleset.rules()) {
        tracing::warn!(rule, rules, "sessions stay with the kernel");
    }
    if is_coarse && is_new {
        tracing::warn!(
            "more than {RULE_ENTRIES} rules keep sessions with the kernel: they keep more sessions than they match"
        );
    }
    Ok(())
}

impl Policy {
    /// Puts entries for the selectors before those of rules; `interfaces` is None where they are unknown.
    fn prepend(&self, program: &mut Program, kind: Kind, interfaces: Option<&[Link]>) {
        let (mut rules, mut entries) = (Vec::new(), Vec::new());
        for selector in &self.exempt {
            rules.push(format!("exempt {selector}"));
            let action = Action::Keep(rules.len() - 1);
            let selected = selected(selector, kind, interfaces)
                .unwrap_or_else(|| vec![(Sessions::ALL, Seen::default())]);
            let selected = selected.into_iter();
            entries.extend(selected.map(|(sessions, seen)| Entry { sessions, seen, action }));
        }
        if !self.accelerate.is_empty() {
            let selected = |selector| selected(selector, kind, interfaces).unwrap_or_default();
            let selected: Vec<_> = self.accelerate.iter().flat_map(selected).collect();
            rules.push("not in accelerate".to_owned());
            let others = Action::Keep(rules.len() - 1);
            // Behind the entry for all others.
            let action = Action::Skip(entries.len() + selected.len() + 1);
            let selected = selected.into_iter();
            entries.extend(selected.map(|(sessions, seen)| Entry { sessions, seen, action }));
            let (sessions, seen) = (Sessions::ALL, Seen::default());
            entries.push(Entry { sessions, seen, action: others });
        }
        program.prepend(rules, entries);
    }
}

/// The sessions of a kind that a selector means. None: unknown, as the interfaces are.
fn selected(
    selector: &Selector,
    kind: Kind,
    interfaces: Option<&[Link]>,
) -> Option<Vec<(Sessions, Seen)>> {
    let any = |fields: [Field; 2], range: Range, seens: [Seen; 2]| {
        let of = |field| seens.map(|seen| (Sessions::with(field, range.clone()), seen));
        fields.into_iter().flat_map(of).collect()
    };
    let seen = Seen::default();
    let out = Seen { is_source_out: true, is_destination_out: true, ..seen };
    let selected = match selector {
        Selector::Interface(name) => {
            let Some(link) = interfaces?.iter().find(|link| link.name == *name) else {
                return Some(Vec::new());
            };
            let index = u128::from(link.index);
            let device = Seen { is_device: true, ..seen };
            any([Field::Input, Field::Output], index..=index, [seen, device])
        }
        Selector::Prefix(prefix) if prefix.address().is_ipv6() != kind.is_ipv6 => Vec::new(),
        Selector::Prefix(prefix) => {
            let (first, bits) = match prefix.address() {
                IpAddr::V4(address) => (u128::from(u32::from(address)), 32),
                IpAddr::V6(address) => (u128::from(address), 128),
            };
            let others = match bits - u32::from(prefix.length()) {
                0 => 0,
                free => u128::MAX >> (128 - free),
            };
            any([Field::Source, Field::Destination], first..=first | others, [seen, out])
        }
        Selector::Port(ports) => {
            let ports = u128::from(*ports.start())..=u128::from(*ports.end());
            any([Field::SourcePort, Field::DestinationPort], ports, [seen, out])
        }
        Selector::Offloaded => vec![(Sessions::ALL, Seen { is_offloaded: true, ..seen })],
        Selector::Mark(mark) => {
            let mark = u128::from(*mark);
            vec![(Sessions::with(Field::Mark, mark..=mark), seen)]
        }
    };
    Some(selected)
}

/// The hooks of forwarded packets (`NF_INET_PRE_ROUTING`, `NF_INET_FORWARD`, `NF_INET_POST_ROUTING`).
const HOOKS: [(u32, &str); 3] = [(0, "prerouting"), (2, "forward"), (4, "postrouting")];

/// Keeps all sessions of the program's kind with the kernel.
fn keep_all(program: &mut Program, rule: String) {
    let (sessions, seen, action) = (Sessions::ALL, Seen::default(), Action::Keep(0));
    program.prepend(vec![rule], vec![Entry { sessions, seen, action }]);
}

/// The BPF programs at hooks of netfilter that see packets of these sessions: what they do with them is unknown. None
/// where the kernel does not list them: there may be some.
fn names_of(links: Option<&[NetfilterLink]>, kind: Kind) -> Vec<String> {
    let Some(links) = links else {
        return vec!["BPF programs that cannot be listed".to_owned()];
    };
    let family = if kind.is_ipv6 { libc::NFPROTO_IPV6 } else { libc::NFPROTO_IPV4 };
    let name = |link: &NetfilterLink| {
        let (_, hook) = HOOKS.iter().find(|(hook, _)| *hook == link.hook)?;
        Some(format!("BPF program {} at {hook}, link {}", link.program, link.id))
    };
    links.iter().filter(|link| i32::from(link.family) == family).filter_map(name).collect()
}

/// The rules that are new where they are, a table's chain or a hook: the first of each place, and how many. The kernel
/// numbers a rule anew when it is replaced, so that numbers alone make no new one.
fn newcomers<'a>(known: &BTreeSet<String>, rules: &BTreeSet<&'a str>) -> Vec<(&'a str, usize)> {
    let place = |rule: &'a str| rule.trim_end_matches(|c: char| c.is_ascii_digit());
    let mut former = BTreeMap::<&str, usize>::new();
    for rule in known {
        *former.entry(rule.trim_end_matches(|c: char| c.is_ascii_digit())).or_default() += 1;
    }
    let mut places = BTreeMap::<&str, Vec<&str>>::new();
    rules.iter().for_each(|rule| places.entry(place(rule)).or_default().push(rule));
    let new = places.into_iter().filter_map(|(place, rules)| {
        let new = rules.len().saturating_sub(former.get(place).copied().unwrap_or(0));
        let first = rules.into_iter().find(|rule| !known.contains(*rule))?;
        (new > 0).then_some((first, new))
    });
    new.collect()
}

/// All sessions stay with the kernel.
fn unreadable() -> Ruleset {
    let mut program = Program::default();
    keep_all(&mut program, "rules that cannot be read".to_owned());
    let route = Families { ipv4: true, ipv6: true };
    Ruleset { programs: std::array::from_fn(|_| program.clone()), route }
}

fn bits(route: Families, policy: &Policy) -> u32 {
    let bit = |is_set, bit| if is_set { bit } else { 0 };
    bit(route.ipv4, ROUTE)
        | bit(route.ipv6, ROUTE << 1)
        | bit(policy.accelerate.contains(&Selector::Offloaded), OFFLOADED)
}

#[cfg(test)]
mod tests;
