//! [`Xtables`]: the rules of x_tables (`struct ipt_entry`, `struct ip6t_entry`), for evaluation.

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use super::Families;
use super::connection_mark::ConnectionMarks;
use super::evaluate::{
    Evaluation, FORWARD, POST_ROUTING, PRE_ROUTING, Program, Rule, Scope, Verdict, Writes,
};
use super::extension::{self, Target};
use super::register::interfaces;
use super::sessions::{Field, Match};
use super::xtables::{KINDS, Kind, NAME, TARGET, half, name_at, word};
use crate::netlink::bytes_at;

/// The hooks of forwarded packets, with the names of their chains.
const HOOKS: [(u32, &str); 3] =
    [(PRE_ROUTING, "PREROUTING"), (FORWARD, "FORWARD"), (POST_ROUTING, "POSTROUTING")];
/// The target that begins a chain of the user, and carries its name.
const ERROR: &[u8] = b"ERROR";
/// Bytes of an interface's name.
const INTERFACE: usize = 16;

/// The tables of the namespace of the calling thread.
#[derive(Debug, Default)]
pub(super) struct Xtables(Vec<Table>);

impl Xtables {
    pub(super) fn load() -> io::Result<Self> {
        let mut tables = Vec::new();
        for kind in &KINDS {
            kind.tables(|name, info, entries| tables.push(Table::new(kind, name, info, entries)))?;
        }
        Ok(Self(tables))
    }

    /// What their rules write.
    pub(super) fn writes(&self) -> Writes {
        self.0.iter().fold(Writes::default(), |all, table| all.or(table.writes()))
    }

    /// Notes what rules do with the marks of connections.
    pub(super) fn connection_marks(&self, marks: &mut ConnectionMarks) {
        self.0.iter().for_each(|table| table.connection_marks(marks));
    }

    /// The packets of which rules look at routes.
    pub(super) fn routes(&self) -> Families {
        let mut families = Families::default();
        self.0.iter().for_each(|table| families.add(table.routes()));
        families
    }

    /// Appends what they do with sessions of a kind.
    pub(super) fn evaluate(&self, scope: Scope<'_>, program: &mut Program) {
        self.0.iter().for_each(|table| table.evaluate(scope, program));
    }
}

/// A table in memory.
#[derive(Clone, Copy, Debug)]
pub struct TableDump<'a> {
    /// It is of ip6tables.
    pub is_ipv6: bool,
    /// `filter` and the like.
    pub name: &'a str,
    /// `struct ipt_getinfo`.
    pub info: &'a [u8],
    /// The entries of `struct ipt_get_entries`.
    pub entries: &'a [u8],
}

impl<'a> FromIterator<TableDump<'a>> for Xtables {
    fn from_iter<T: IntoIterator<Item = TableDump<'a>>>(tables: T) -> Self {
        let table = |one: TableDump<'_>| {
            Table::new(&KINDS[usize::from(one.is_ipv6)], one.name, one.info, one.entries)
        };
        Self(tables.into_iter().map(table).collect())
    }
}

/// A table.
#[derive(Debug)]
struct Table {
    kind: &'static Kind,
    name: String,
    info: Vec<u8>,
    entries: Vec<u8>,
}

impl Table {
    fn new(kind: &'static Kind, name: &str, info: &[u8], entries: &[u8]) -> Self {
        Self { kind, name: name.to_owned(), info: info.to_owned(), entries: entries.to_owned() }
    }

    /// What its rules write.
    fn writes(&self) -> Writes {
        self.entries().fold(Writes::default(), |all, entry| {
            match self.target(entry).map(|at| name_at(entry, at)) {
                None | Some(b"" | ERROR) => all,
                Some(name) => all.or(extension::writes(name)),
            }
        })
    }

    /// Notes what its rules do with the marks of connections.
    fn connection_marks(&self, marks: &mut ConnectionMarks) {
        let info = |entry: &'_ [u8], at| entry.get(at + TARGET..).unwrap_or_default().to_vec();
        for entry in self.entries() {
            let mut guard = None;
            for at in self.matches(entry) {
                let name = name_at(entry, at);
                guard = extension::reads_connection_mark(name, &info(entry, at), marks).or(guard);
            }
            if let Some(at) = self.target(entry) {
                let name = name_at(entry, at);
                extension::writes_connection_mark(name, &info(entry, at), guard, marks);
            }
        }
    }

    /// The packets of which a rule looks at routes.
    fn routes(&self) -> Families {
        let looks =
            |entry| self.matches(entry).any(|at| extension::looks_at_routes(name_at(entry, at)));
        if self.entries().any(looks) { self.kind.families } else { Families::default() }
    }

    /// Appends what its base chains do with sessions of a kind.
    fn evaluate(&self, scope: Scope<'_>, program: &mut Program) {
        // Its rules see the first packet of a connection only.
        if self.name == "nat" || self.kind.families.ipv6 != scope.kind.is_ipv6 {
            return;
        }
        let hooks = word(&self.info, NAME).unwrap_or(0);
        for (hook, chain) in HOOKS.into_iter().filter(|(hook, _)| hooks & 1 << hook != 0) {
            let at = 4 * hook as usize;
            let bounds = word(&self.info, NAME + 4 + at).zip(word(&self.info, NAME + 24 + at));
            let Some((first, policy)) = bounds else { continue };
            let (scope, seen) = scope.at(hook, self.priority());
            let base = Chain { table: self, name: chain, first, policy: Some(policy) };
            let mut chains: HashMap<usize, Rc<[Rule]>> = HashMap::new();
            let mut rules = |at: usize| {
                let read = || match at == first {
                    true => base.rules(&scope),
                    false => self.user_chain(at).rules(&scope),
                };
                chains.entry(at).or_insert_with(|| read().into()).clone()
            };
            Evaluation::base_chain(program, seen, &base.to_string(), first, &mut rules);
        }
    }

    /// `NF_IP_PRI_RAW` and so on.
    fn priority(&self) -> i32 {
        match &*self.name {
            "raw" => -300,
            "mangle" => -150,
            "security" => 50,
            _ => 0,
        }
    }

    /// The entry at an offset, and the offset of the next.
    fn entry(&self, at: usize) -> Option<(&[u8], usize)> {
        let entry = self.entries.get(at..)?;
        let size = half(entry, self.kind.matched + 6).filter(|size| *size > 0)?;
        Some((entry.get(..size)?, at + size))
    }

    fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (entry, next) = self.entry(at)?;
            at = next;
            Some(entry)
        })
    }

    /// Where the matches of an entry are.
    fn matches(&self, entry: &[u8]) -> impl Iterator<Item = usize> {
        let end = self.target(entry).unwrap_or(0);
        let next =
            |at: &usize| half(entry, *at).filter(|size| *size >= TARGET).map(|size| at + size);
        std::iter::successors(Some(self.kind.head), next).take_while(move |at| *at < end)
    }

    /// Where the target of an entry is.
    fn target(&self, entry: &[u8]) -> Option<usize> {
        half(entry, self.kind.matched + 4)
    }

    /// The chain that begins behind an entry with its name.
    fn user_chain(&self, first: usize) -> Chain<'_> {
        let (mut at, mut name) = (0, "");
        while let Some((entry, next)) = self.entry(at).filter(|(_, next)| *next <= first) {
            let target = self.target(entry).unwrap_or(0);
            if next == first && name_at(entry, target) == ERROR {
                let text = entry.get(target + TARGET..).unwrap_or_default();
                let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
                name = str::from_utf8(text).unwrap_or_default();
            }
            at = next;
        }
        Chain { table: self, name, first, policy: None }
    }
}

/// A chain.
struct Chain<'a> {
    table: &'a Table,
    name: &'a str,
    first: usize,
    /// Of a base chain: its last entry.
    policy: Option<usize>,
}

/// As the operator lists it.
impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let program = if self.table.kind.families.ipv6 { "ip6tables" } else { "iptables" };
        write!(f, "{program}-legacy {} {}", self.table.name, self.name)
    }
}

impl Chain<'_> {
    fn rules(&self, scope: &Scope<'_>) -> Vec<Rule> {
        let mut rules = Vec::new();
        let mut at = self.first;
        while let Some((entry, next)) = self.table.entry(at) {
            let is_policy = self.policy == Some(at);
            let is_other = self.table.target(entry).is_some_and(|at| name_at(entry, at) == ERROR);
            if is_other && self.policy.is_none() {
                break;
            }
            let name = if is_policy {
                format!("{self} policy")
            } else {
                format!("{self} {}", rules.len() + 1)
            };
            // Who cannot be read may do anything.
            let unreadable = || Rule {
                name: name.clone(),
                matched: Match::varying(),
                acts: Match::varying(),
                verdicts: Vec::new(),
            };
            rules.push(self.rule(&name, entry, next, scope).unwrap_or_else(unreadable));
            if is_policy {
                break;
            }
            at = next;
        }
        rules
    }

    fn rule(&self, name: &str, entry: &[u8], next: usize, scope: &Scope<'_>) -> Option<Rule> {
        let (target, is_goto) = (self.table.target(entry)?, self.header(entry)?.is_goto);
        let mut matched = self.header(entry)?.matched(scope)?;
        let mut acts = Match::NEVER;
        for at in self.table.matches(entry) {
            let info = entry.get(at + TARGET..at + half(entry, at)?)?;
            let revision = entry[at + TARGET - 1].into();
            let (found, counts) = extension::matched(name_at(entry, at), revision, info, scope);
            if counts {
                acts = acts.or(matched.clone());
            }
            matched = matched.and(&found);
        }
        let info = entry.get(target + TARGET..)?;
        let done = match name_at(entry, target) {
            b"" => standard(i32::from_ne_bytes(bytes_at(info, 0)?), next, is_goto),
            name => {
                let revision = entry[target + TARGET - 1];
                Some(extension::target(name, revision.into(), info, scope))
            }
        };
        if scope.options.strict && self.policy.is_none_or(|policy| next <= policy) {
            // Each rule counts.
            acts = Match::always();
        }
        let mut verdicts = Vec::new();
        if let Some(Target { acts: does, verdict }) = done {
            if does {
                acts = acts.or(matched.clone());
            }
            verdicts.push((Match::always(), verdict));
        }
        Some(Rule { name: name.to_owned(), matched, acts, verdicts })
    }

    /// What an entry matches by itself.
    fn header<'e>(&self, entry: &'e [u8]) -> Option<Header<'e>> {
        let is_ipv6 = self.table.kind.families.ipv6;
        let bytes = if is_ipv6 { 16 } else { 4 };
        let flags = 4 * bytes + 4 * INTERFACE + if is_ipv6 { 3 } else { 2 };
        Some(Header {
            entry,
            bytes,
            protocol: half(entry, 4 * bytes + 4 * INTERFACE)? as u16,
            // `IPT_F_FRAG`: no packet of a session is one.
            is_fragment: !is_ipv6 && entry.get(flags)? & 1 != 0,
            // `IPT_F_GOTO`, `IP6T_F_GOTO`
            is_goto: entry.get(flags)? & if is_ipv6 { 4 } else { 2 } != 0,
            inversion: *entry.get(flags + 1)?,
        })
    }
}

/// What a standard target does; nothing if it only leads to the next rule.
fn standard(verdict: i32, next: usize, is_goto: bool) -> Option<Target> {
    let verdict = match verdict {
        -1 => Verdict::Drop,
        -2 => Verdict::Accept,
        // `XT_RETURN`
        -5 => Verdict::Return,
        ..0 => return Some(Target { acts: true, verdict: Verdict::Continue }),
        chain => match chain as usize {
            chain if chain == next => return None,
            chain if is_goto => Verdict::Goto(chain),
            chain => Verdict::Jump(chain),
        },
    };
    Some(Target { acts: false, verdict })
}

/// `struct ipt_ip` or `struct ip6t_ip6`.
struct Header<'a> {
    entry: &'a [u8],
    /// Of an address.
    bytes: usize,
    protocol: u16,
    is_fragment: bool,
    is_goto: bool,
    /// `IPT_INV_*`.
    inversion: u8,
}

impl Header<'_> {
    fn matched(&self, scope: &Scope<'_>) -> Option<Match> {
        const INPUT: u8 = 1;
        const OUTPUT: u8 = 2;
        const SOURCE: u8 = 8;
        const DESTINATION: u8 = 0x10;
        const FRAGMENT: u8 = 0x20;
        const PROTOCOL: u8 = 0x40;
        let protocol = self.protocol == 0 || self.protocol == u16::from(scope.kind.protocol());
        let parts = [
            (INPUT, self.interface(Field::Input, scope)?),
            (OUTPUT, self.interface(Field::Output, scope)?),
            (SOURCE, self.address(Field::Source, 0, scope)?),
            (DESTINATION, self.address(Field::Destination, 1, scope)?),
            (FRAGMENT, Match::certain(!self.is_fragment)),
            (PROTOCOL, Match::certain(protocol)),
        ];
        let all = parts.into_iter().fold(Match::always(), |all, (flag, one)| {
            all.and(&if self.inversion & flag == 0 { one } else { one.not() })
        });
        Some(all)
    }

    fn address(&self, field: Field, number: usize, scope: &Scope<'_>) -> Option<Match> {
        let read = |number: usize| {
            let bytes = self.entry.get(number * self.bytes..(number + 1) * self.bytes)?;
            Some(bytes.iter().fold(0, |value: u128, byte| value << 8 | u128::from(*byte)))
        };
        let (value, mask) = (read(number)?, read(number + 2)?);
        Some(match mask {
            0 => Match::certain(value == 0),
            _ => extension::masked(field, value, mask, 8 * self.bytes as u32, scope),
        })
    }

    fn interface(&self, field: Field, scope: &Scope<'_>) -> Option<Match> {
        let number = usize::from(field == Field::Output);
        let read = |number: usize| {
            let start = 4 * self.bytes + number * INTERFACE;
            self.entry.get(start..start + INTERFACE)
        };
        let (name, mask) = (read(number)?, read(number + 2)?);
        if mask.iter().all(|byte| *byte == 0) {
            return Some(Match::always());
        }
        let is_meant = |found: &str| {
            let found = found.bytes().chain(std::iter::repeat(0));
            name.iter().zip(mask).zip(found).all(|((name, mask), found)| (name ^ found) & mask == 0)
        };
        Some(match field {
            Field::Output if !scope.has_output => Match::certain(is_meant("")),
            _ if scope.interfaces.is_empty() => Match::unknown(),
            _ => interfaces(field, scope, is_meant),
        })
    }
}
