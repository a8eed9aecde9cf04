//! [`Rules`]: the rules of packet filters that keep sessions with the kernel, as the programs see them.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use linerate_net::ruleset::{Action, Entry, Field, Kind, Program, Range, Ruleset};
use serde::Serialize;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::maps::Maps;
use crate::table::layout::{
    KeptRule, RULE_ENTRIES, RULE_GROUPS, RULES_MAX, RuleEntry, RuleList, RuleSet, seen,
};
use crate::{Error, Result};

/// A rule that keeps sessions with the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Its name: table, chain, and handle or number.
    pub rule: String,
    /// Packets that no session was learned from because of it.
    pub packets: u64,
}

/// The maps of an instance that hold rules.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    lists: &'a MapHandle,
    kept: &'a MapHandle,
}

impl<'a> Rules<'a> {
    /// Of the programs with these maps.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they have no rules.
    pub fn new(maps: &'a Maps) -> Result<Self> {
        Ok(Self { lists: maps.get("rules")?, kept: maps.get("kept_rules")? })
    }

    /// Writes what the programs are to look at. Whether that is new; a bump has to follow then.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn write(&self, ruleset: &Ruleset) -> Result<bool> {
        let mut names = Vec::new();
        let mut is_new = false;
        for ((number, kind), program) in (0u32..).zip(Kind::all()).zip(&ruleset.programs) {
            let list = encode(program, kind.is_ipv6, &mut names);
            is_new |= self.update(self.lists, number, list.as_bytes())?;
        }
        for (number, name) in (0u32..).zip(&names) {
            let kept = KeptRule { packets: 0, name: *name };
            // The packets of the same rule stay.
            if self.read(number)?.is_none_or(|old| old.name != kept.name) {
                self.update(self.kept, number, kept.as_bytes())?;
            }
        }
        let none = KeptRule::new_zeroed();
        for number in names.len() as u32..RULES_MAX as u32 {
            if self.read(number)?.is_none_or(|old| old == none) {
                break;
            }
            self.update(self.kept, number, none.as_bytes())?;
        }
        Ok(is_new)
    }

    /// The rules that keep sessions, with those first that kept most.
    ///
    /// # Errors
    /// [`Error::Bpf`].
    pub fn kept(&self) -> Result<Vec<Kept>> {
        let mut all = Vec::new();
        for number in 0..RULES_MAX as u32 {
            let Some(kept) = self.read(number)?.filter(|kept| kept.name[0] != 0) else { break };
            let name = kept.name.split(|byte| *byte == 0).next().unwrap_or_default();
            let rule = String::from_utf8_lossy(name).into_owned();
            all.push(Kept { rule, packets: kept.packets });
        }
        all.sort_by_key(|kept| std::cmp::Reverse(kept.packets));
        Ok(all)
    }

    fn read(&self, number: u32) -> Result<Option<KeptRule>> {
        let value = lookup(self.kept, number)?;
        Ok(value.and_then(|value| KeptRule::read_from_bytes(&value).ok()))
    }

    /// Whether the value was another.
    fn update(&self, map: &MapHandle, number: u32, value: &[u8]) -> Result<bool> {
        if lookup(map, number)?.is_some_and(|old| old == value) {
            return Ok(false);
        }
        let written = map.update(&number.to_ne_bytes(), value, MapFlags::ANY);
        written.map_err(|error| Error::bpf("write the rules", &error))?;
        Ok(true)
    }
}

fn lookup(map: &MapHandle, number: u32) -> Result<Option<Vec<u8>>> {
    map.lookup(&number.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| Error::bpf("read the rules", &error))
}

/// The list of a program, whose rules get numbers among those of all.
fn encode(program: &Program, is_ipv6: bool, names: &mut Vec<[u8; 120]>) -> Box<RuleList> {
    let mut list = Box::new(RuleList::new_zeroed());
    let mut number = |rule: usize| {
        let mut name = [0; 120];
        let text = program.rules[rule].bytes().take(119);
        name.iter_mut().zip(text).for_each(|(to, from)| *to = from);
        let found = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            if names.len() < RULES_MAX {
                names.push(name);
            }
            names.len() - 1
        });
        found as u16
    };
    let shift = if is_ipv6 { 64 } else { 8 };
    for (at, (to, entry)) in list.entries.iter_mut().zip(&program.entries).enumerate() {
        *to = ranges(entry);
        if entry.seen.is_source_out {
            insert(&mut list.source_out, at);
        }
        if entry.seen.is_destination_out {
            insert(&mut list.destination_out, at);
        }
        for (groups, field, shift) in [
            (&mut list.source, Field::Source, shift),
            (&mut list.destination, Field::Destination, shift),
            (&mut list.source_port, Field::SourcePort, 0),
            (&mut list.destination_port, Field::DestinationPort, 0),
        ] {
            let range = entry.sessions.range(field);
            let (first, last) = (range.start() >> shift, range.end() >> shift);
            for group in (first..=last).take(RULE_GROUPS) {
                insert(&mut groups[group as usize % RULE_GROUPS], at);
            }
        }
        match entry.action {
            Action::Keep(rule) => to.rule = number(rule),
            Action::Skip(next) => to.skip = (next - at) as u16,
        }
    }
    list.count = program.entries.len().min(RULE_ENTRIES) as u32;
    list
}

fn insert(set: &mut RuleSet, entry: usize) {
    set[entry / 64] |= 1 << (entry % 64);
}

fn ranges(entry: &Entry) -> RuleEntry {
    let range = |field| entry.sessions.range(field);
    let wide = |field| [*range(field).start(), *range(field).end()].map(halves);
    let numbers = |field| ends::<u32>(range(field), u32::MAX);
    let seen = &entry.seen;
    let bit = |is_set, bit| if is_set { bit } else { 0 };
    RuleEntry {
        source: wide(Field::Source),
        destination: wide(Field::Destination),
        input: numbers(Field::Input),
        output: numbers(Field::Output),
        mark: numbers(Field::Mark),
        source_port: ends(range(Field::SourcePort), u16::MAX),
        destination_port: ends(range(Field::DestinationPort), u16::MAX),
        dscp: ends(range(Field::Dscp), u8::MAX),
        seen: bit(seen.is_source_out, seen::SOURCE_OUT)
            | bit(seen.is_destination_out, seen::DESTINATION_OUT)
            | bit(seen.is_device, seen::DEVICE)
            | bit(seen.is_offloaded, seen::OFFLOADED),
        ..RuleEntry::default()
    }
}

fn halves(address: u128) -> [u64; 2] {
    [(address >> 64) as u64, address as u64]
}

/// The ends of a range of smaller numbers; of none where it has none of them.
fn ends<T: TryFrom<u128> + Default + Copy>(range: &Range, maximum: T) -> [T; 2] {
    match T::try_from(*range.start()) {
        Ok(start) => [start, T::try_from(*range.end()).unwrap_or(maximum)],
        Err(_) => [maximum, T::default()],
    }
}

#[cfg(test)]
mod tests {
    use linerate_net::ruleset::{Seen, Sessions};

    use super::*;

    /// The groups in which the entry of these sessions is.
    fn groups(field: Field, range: Range, is_ipv6: bool) -> Vec<usize> {
        let sessions = Sessions::with(field, range);
        let entry = Entry { sessions, seen: Seen::default(), action: Action::Keep(0) };
        let program = Program { entries: vec![entry], rules: vec!["rule".into()] };
        let list = encode(&program, is_ipv6, &mut Vec::new());
        let groups = match field {
            Field::Source => &list.source,
            Field::DestinationPort => &list.destination_port,
            _ => unreachable!("no other is asked for"),
        };
        (0..RULE_GROUPS).filter(|group| groups[*group][0] == 1).collect()
    }

    #[test]
    fn an_entry_is_in_the_groups_of_its_values() {
        let all: Vec<_> = (0..RULE_GROUPS).collect();
        assert_eq!(groups(Field::DestinationPort, 0x1ff..=0x201, false), [0, 1, 63]);
        assert_eq!(groups(Field::DestinationPort, 0x100..=0x13e, false), all[..63]);
        assert_eq!(groups(Field::DestinationPort, 0x120..=0x15f, false), all);
        assert_eq!(groups(Field::Source, 0x0a00_0105..=0x0a00_0203, false), [1, 2]);
        assert_eq!(groups(Field::Source, 0..=u128::MAX, false), all);
        assert_eq!(groups(Field::Source, 0xfd00_0007 << 64..=0xfd00_0007 << 64 | 9, true), [7]);
        assert_eq!(groups(Field::DestinationPort, 0..=u128::MAX, true), all);
    }
}
