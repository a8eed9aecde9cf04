//! [`Nftables`]: the chains, rules and sets of nftables (`include/uapi/linux/netfilter/nf_tables.h`).

use std::collections::HashMap;
use std::io;

use super::Families;
use super::connection_mark::{ConnectionMarks, Written};
use super::evaluate::{FORWARD, POST_ROUTING, PRE_ROUTING, Verdict, Writes};
use super::extension;
use super::nft_message::{
    Attributes, CHAIN_HOOK, CHAIN_NAME, CHAIN_TABLE, HEADER, HOOK_NUMBER, dump, text,
};
use super::nft_set::{SET_NAME, SET_TABLE, Set};
use crate::netlink::{Message, bytes_at, put_attr};

// Attributes.
const CHAIN_TYPE: u16 = 7;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_HANDLE: u16 = 3;
const RULE_EXPRESSIONS: u16 = 4;
/// Of a list of elements.
const LIST_TABLE: u16 = 1;
const LIST_SET: u16 = 2;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;
const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_SOURCE: u16 = 5;
const META_KEY: u16 = 2;
const META_SOURCE: u16 = 3;
const DYNAMIC_SET: u16 = 1;
/// Of `match` and `target`, by which iptables-nft uses the extensions of x_tables.
const COMPAT_NAME: u16 = 1;
const COMPAT_INFO: u16 = 3;
const FIB_RESULT: u16 = 2;
const RT_KEY: u16 = 2;

/// `NFT_FIB_RESULT_ADDRTYPE` and `NFT_RT_TCPMSS`.
const FIB_TYPE: u32 = 3;
const RT_TCPMSS: u32 = 3;
/// `NFT_PAYLOAD_NETWORK_HEADER`.
pub(super) const NETWORK: u32 = 1;
/// `NFT_META_MARK`.
pub(super) const MARK: u32 = 3;
/// `NFT_CT_*`.
pub(super) const CT_MARK: u32 = 3;
pub(super) const CT_LABELS: u32 = 13;

/// `NF_BR_LOCAL_IN`, `NF_BR_LOCAL_OUT`: what is routed passes them on its way from and to a bridge.
const BRIDGE_IN: u32 = 1;
pub(super) const BRIDGE_OUT: u32 = 3;

/// Family, table and name of a chain or set.
type Key = (u8, Vec<u8>, Vec<u8>);

/// All chains with their rules, and all sets.
#[derive(Debug, Default)]
pub(super) struct Nftables {
    pub chains: Vec<Chain>,
    numbers: HashMap<Key, usize>,
    sets: HashMap<Key, Set>,
}

/// A chain.
#[derive(Debug)]
pub(super) struct Chain {
    pub family: u8,
    table: Vec<u8>,
    name: Vec<u8>,
    /// Hook and priority of a base chain that each forwarded packet of its family passes.
    pub base: Option<(u32, i32)>,
    /// Handles and expressions.
    pub rules: Vec<(u64, Vec<u8>)>,
}

impl Nftables {
    /// Reads those of the namespace of the calling thread.
    pub(super) fn load() -> io::Result<Self> {
        let mut all = Self::default();
        for what in [libc::NFT_MSG_GETCHAIN, libc::NFT_MSG_GETRULE] {
            dump(what, &[0; HEADER], |message| all.add(message))?;
        }
        if all.chains.iter().all(|chain| chain.rules.is_empty()) {
            return Ok(all);
        }
        dump(libc::NFT_MSG_GETSET, &[0; HEADER], |message| all.add(message))?;
        let keys = all.sets.iter().filter(|(_, set)| !set.varies).map(|(key, _)| key.clone());
        for (family, table, name) in keys.collect::<Vec<_>>() {
            let mut request = vec![family, 0, 0, 0];
            put_attr(&mut request, LIST_TABLE, &[&table[..], &[0]].concat());
            put_attr(&mut request, LIST_SET, &[&name[..], &[0]].concat());
            match dump(libc::NFT_MSG_GETSETELEM, &request, |message| all.add(message)) {
                // It is gone. Another change is announced.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    all.sets.remove(&(family, table, name));
                }
                other => other?,
            }
        }
        Ok(all.finish())
    }

    /// Adds an object of a dump. Chains come before their rules, and sets before their elements.
    pub(super) fn add(&mut self, message: Message<'_>) {
        let body = message.body;
        match i32::from(message.kind & 0xff) {
            libc::NFT_MSG_NEWCHAIN => self.add_chain(body),
            libc::NFT_MSG_NEWRULE => self.add_rule(body),
            libc::NFT_MSG_NEWSET => {
                let key = key_of(body, SET_TABLE, SET_NAME);
                self.sets.extend(key.map(|key| (key, Set::new(Attributes::of(body)))));
            }
            libc::NFT_MSG_NEWSETELEM => {
                let set =
                    key_of(body, LIST_TABLE, LIST_SET).and_then(|key| self.sets.get_mut(&key));
                if let Some(set) = set {
                    set.add_elements(Attributes::of(body));
                }
            }
            _ => {}
        }
    }

    /// After the last message: intervals have both ends, and packets change the sets that rules add to.
    pub(super) fn finish(mut self) -> Self {
        self.sets.values_mut().for_each(Set::add_intervals);
        for chain in &self.chains {
            for (name, data) in chain.expressions() {
                if name == b"dynset"
                    && let Some(set) = data.get(DYNAMIC_SET)
                    && let Some(set) = self.sets.get_mut(&chain.sibling(set))
                {
                    set.varies = true;
                }
            }
        }
        self
    }

    fn add_chain(&mut self, body: &[u8]) {
        let Some(key) = key_of(body, CHAIN_TABLE, CHAIN_NAME) else { return };
        let own = Attributes::of(body);
        let hook = own.nested(CHAIN_HOOK);
        let hook = hook.number(HOOK_NUMBER).zip(hook.number(HOOK_PRIORITY));
        // Chains of other types than this see the first packet of a connection, or those of this host.
        let is_filter = own.text(CHAIN_TYPE) == Some(b"filter");
        let base = hook.filter(|(hook, _)| is_filter && is_passed(key.0, *hook));
        let base = base.map(|(hook, priority)| (hook, priority as i32));
        self.numbers.insert(key.clone(), self.chains.len());
        let (family, table, name) = key;
        self.chains.push(Chain { family, table, name, base, rules: Vec::new() });
    }

    fn add_rule(&mut self, body: &[u8]) {
        let chain = key_of(body, RULE_TABLE, RULE_CHAIN).and_then(|key| self.numbers.get(&key));
        let Some(chain) = chain else { return };
        let own = Attributes::of(body);
        let handle = own.get(RULE_HANDLE).and_then(|value| bytes_at(value, 0));
        let list = own.get(RULE_EXPRESSIONS).unwrap_or_default().to_vec();
        self.chains[*chain].rules.push((handle.map_or(0, u64::from_be_bytes), list));
    }

    /// What rules of any chain write.
    pub(super) fn writes(&self) -> Writes {
        let mut writes = Writes::default();
        for (name, data) in self.chains.iter().flat_map(Chain::expressions) {
            match name {
                b"meta" if data.number(META_SOURCE).is_some() => {
                    writes.mark |= data.number(META_KEY) == Some(MARK);
                }
                b"payload" if data.number(PAYLOAD_SOURCE).is_some() => {
                    writes.dscp |= data.number(PAYLOAD_BASE) == Some(NETWORK);
                }
                b"target" => {
                    writes = writes.or(extension::writes(data.text(COMPAT_NAME).unwrap_or(b"")));
                }
                _ => {}
            }
        }
        writes
    }

    /// Notes what rules of any chain do with the marks of connections.
    pub(super) fn connection_marks(&self, marks: &mut ConnectionMarks) {
        let rules = self.chains.iter().flat_map(|chain| &chain.rules);
        rules.for_each(|(_, list)| connection_marks(Attributes::from(&list[..]), marks));
    }

    /// The families whose rules look at routes.
    pub(super) fn routes(&self) -> Families {
        let looks = |(name, data): (&[u8], Attributes<'_>)| match name {
            // The type of an address is that of its route; all else looks for an interface.
            b"fib" => data.number(FIB_RESULT) != Some(FIB_TYPE),
            // The maximum segment size counts for SYN packets only, which the kernel gets.
            b"rt" => data.number(RT_KEY) != Some(RT_TCPMSS),
            b"match" => extension::looks_at_routes(data.text(COMPAT_NAME).unwrap_or(b"")),
            _ => false,
        };
        let mut found = Families::default();
        for chain in &self.chains {
            if let Some((families, _)) = families_of(chain.family)
                && chain.expressions().any(looks)
            {
                found.add(families);
            }
        }
        found
    }

    /// The verdict in the data of an expression or element.
    pub(super) fn verdict(&self, chain: &Chain, data: &[u8]) -> Option<Verdict> {
        let verdict = Attributes::from(data).nested(DATA_VERDICT);
        let to = || self.numbers.get(&chain.sibling(verdict.get(VERDICT_CHAIN)?)).copied();
        match verdict.number(VERDICT_CODE)? as i32 {
            libc::NF_DROP => Some(Verdict::Drop),
            libc::NF_ACCEPT => Some(Verdict::Accept),
            libc::NFT_CONTINUE | libc::NFT_BREAK => Some(Verdict::Continue),
            libc::NFT_JUMP => to().map(Verdict::Jump),
            libc::NFT_GOTO => to().map(Verdict::Goto),
            libc::NFT_RETURN => Some(Verdict::Return),
            _ => None,
        }
    }

    /// A set of the table of a chain.
    pub(super) fn set(&self, chain: &Chain, name: &[u8]) -> Option<&Set> {
        self.sets.get(&chain.sibling(name))
    }
}

impl Chain {
    /// The key of another thing in its table.
    fn sibling(&self, name: &[u8]) -> Key {
        (self.family, self.table.clone(), text(name).to_vec())
    }

    /// The expressions of all its rules.
    fn expressions(&self) -> impl Iterator<Item = (&[u8], Attributes<'_>)> {
        self.rules.iter().flat_map(|(_, list)| Attributes::from(&list[..]).expressions())
    }

    pub(super) fn describe(&self) -> String {
        let family = match i32::from(self.family) {
            libc::NFPROTO_INET => "inet",
            libc::NFPROTO_IPV4 => "ip",
            libc::NFPROTO_IPV6 => "ip6",
            _ => "bridge",
        };
        let [table, name] = [&self.table, &self.name].map(|text| String::from_utf8_lossy(text));
        format!("nftables {family} {table} {name}")
    }
}

/// Whether forwarded packets pass a hook of a family.
fn is_passed(family: u8, hook: u32) -> bool {
    match families_of(family) {
        Some((_, true)) => matches!(hook, PRE_ROUTING | FORWARD | POST_ROUTING),
        Some((_, false)) => matches!(hook, PRE_ROUTING | BRIDGE_IN | BRIDGE_OUT | POST_ROUTING),
        None => false,
    }
}

fn key_of(body: &[u8], table: u16, name: u16) -> Option<Key> {
    let own = Attributes::of(body);
    Some((*body.first()?, own.text(table)?.to_vec(), own.text(name)?.to_vec()))
}

/// The packets that rules of a family see, and whether its hooks are those of IP.
pub(super) fn families_of(family: u8) -> Option<(Families, bool)> {
    match i32::from(family) {
        libc::NFPROTO_INET => Some((Families::BOTH, true)),
        libc::NFPROTO_IPV4 => Some((Families::IPV4, true)),
        libc::NFPROTO_IPV6 => Some((Families::IPV6, true)),
        libc::NFPROTO_BRIDGE => Some((Families::BOTH, false)),
        _ => None,
    }
}

/// Notes what a rule with these expressions does with the mark and labels of connections.
fn connection_marks(list: Attributes<'_>, marks: &mut ConnectionMarks) {
    let (mut guard, mut constant, mut loaded) = (None, None, None);
    for (name, data) in list.expressions() {
        let word = |kind| Some(u32::from_ne_bytes(data.value(kind)?.try_into().ok()?));
        let compat =
            || (data.text(COMPAT_NAME).unwrap_or(b""), data.get(COMPAT_INFO).unwrap_or_default());
        let (before, previous) = (loaded.take(), constant.take());
        match (name, data.number(2)) {
            (b"ct", Some(CT_MARK)) if data.number(4).is_none() => {
                marks.is_read = true;
                loaded = data.number(1);
            }
            (b"ct", Some(CT_LABELS)) if data.number(4).is_none() => marks.reads_labels = true,
            (b"ct", Some(CT_MARK)) => {
                let value = previous.filter(|(register, _)| *register == data.number(4));
                marks.written.push(Written { guard, value: value.and_then(|(_, value)| value) });
                // What comes behind in this rule sees another.
                guard = None;
            }
            (b"ct", Some(CT_LABELS)) => marks.writes_labels = true,
            (b"cmp", Some(0)) if before.is_some() && before == data.number(1) => guard = word(3),
            (b"immediate", _) => constant = Some((data.number(1), word(2))),
            (b"match", _) => {
                let (name, info) = compat();
                guard = extension::reads_connection_mark(name, info, marks).or(guard);
            }
            (b"target", _) => {
                let (name, info) = compat();
                extension::writes_connection_mark(name, info, guard, marks);
            }
            _ => {}
        }
    }
}
