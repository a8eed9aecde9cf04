//! Keeps sessions with the kernel that a rule of the packet filter would not treat alike packet by packet.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use linerate_bpf::netfilter::{NetfilterLink, NetfilterLinks};
use linerate_net::link;
use linerate_net::ruleset::{
    Action, Entry, Families, Field, Kind, Options, Program, Range, Ruleset, Seen, Sessions,
};

use crate::Result;
use crate::config::{Config, Selector};
use crate::maps::Maps;
use crate::table::control::Control;
use crate::table::layout::RULE_ENTRIES;
use crate::table::layout::rules::ROUTE;
use crate::table::rules::Rules;

/// What the user wants of rules.
#[derive(Clone, Debug, Default)]
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

/// Evaluates the rules of the namespace of the calling thread, and makes all sessions stale where the answer is new.
///
/// # Errors
/// When the maps of the programs cannot be written.
pub fn refresh(control: &Control, maps: &Maps, policy: &Policy) -> Result<()> {
    // Two watches overlap while the ports change: who reads last has to write last.
    static EVALUATION: Mutex<()> = Mutex::new(());
    let _evaluation = EVALUATION.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ruleset = Ruleset::load(&policy.options).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read the rules of the packet filter: the kernel forwards everything");
        unreadable()
    });
    let mut is_coarse = false;
    let links = NetfilterLinks::open().and_then(|links| links.list()).unwrap_or_else(|error| {
        tracing::warn!(%error, "sessions do not stay with the kernel for BPF programs at its hooks");
        Vec::new()
    });
    for (kind, program) in Kind::all().into_iter().zip(&mut ruleset.programs) {
        for link in links.iter().filter(|link| sees(link, kind)) {
            let (sessions, seen) = (Sessions::ALL, Seen::default());
            let entry = Entry { sessions, seen, action: Action::Keep(0) };
            program.prepend(vec![name(link)], vec![entry]);
        }
        // What the user has chosen stays exact.
        let mut own = Program::default();
        policy.prepend(&mut own, kind);
        is_coarse |= program.limit(RULE_ENTRIES.saturating_sub(own.entries.len()).max(1));
        policy.prepend(program, kind);
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

impl Policy {
    /// Puts entries for the selectors before those of rules.
    fn prepend(&self, program: &mut Program, kind: Kind) {
        let (mut rules, mut entries) = (Vec::new(), Vec::new());
        for selector in &self.exempt {
            rules.push(format!("exempt {selector}"));
            let action = Action::Keep(rules.len() - 1);
            let selected = selected(selector, kind).into_iter();
            entries.extend(selected.map(|(sessions, seen)| Entry { sessions, seen, action }));
        }
        if !self.accelerate.is_empty() {
            let selected: Vec<_> =
                self.accelerate.iter().flat_map(|selector| selected(selector, kind)).collect();
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

/// The sessions of a kind that a selector means.
fn selected(selector: &Selector, kind: Kind) -> Vec<(Sessions, Seen)> {
    let any = |fields: [Field; 2], range: Range, seens: [Seen; 2]| {
        let of = |field| seens.map(|seen| (Sessions::with(field, range.clone()), seen));
        fields.into_iter().flat_map(of).collect()
    };
    let seen = Seen::default();
    let out = Seen { is_source_out: true, is_destination_out: true, ..seen };
    match selector {
        Selector::Interface(name) => {
            let links = link::all().unwrap_or_default();
            let Some(link) = links.iter().find(|link| link.name == *name) else {
                return Vec::new();
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
        Selector::Mark(mark) => {
            let mark = u128::from(*mark);
            vec![(Sessions::with(Field::Mark, mark..=mark), seen)]
        }
    }
}

/// The hooks of forwarded packets (`NF_INET_PRE_ROUTING`, `NF_INET_FORWARD`, `NF_INET_POST_ROUTING`).
const HOOKS: [(u32, &str); 3] = [(0, "prerouting"), (2, "forward"), (4, "postrouting")];

/// Whether a BPF program at a hook of netfilter sees packets of these sessions: what it does with them is unknown.
fn sees(link: &NetfilterLink, kind: Kind) -> bool {
    let family = if kind.is_ipv6 { libc::NFPROTO_IPV6 } else { libc::NFPROTO_IPV4 };
    i32::from(link.family) == family && HOOKS.iter().any(|(hook, _)| *hook == link.hook)
}

fn name(link: &NetfilterLink) -> String {
    let hook = HOOKS.iter().find(|(hook, _)| *hook == link.hook).map_or("", |(_, name)| name);
    format!("BPF program {} at {hook}, link {}", link.program, link.id)
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
