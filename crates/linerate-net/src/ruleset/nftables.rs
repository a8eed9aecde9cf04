//! [`Nftables`]: the chains, rules and sets of nftables (`include/uapi/linux/netfilter/nf_tables.h`).

use std::collections::HashMap;
use std::io;
use std::rc::Rc;

use super::connection_mark::ConnectionMarks;
use super::evaluate::{
    Evaluation, FORWARD, POST_ROUTING, PRE_ROUTING, Program, Scope, Seen, Verdict, Writes,
};
use super::extension;
use super::nft_rule::{Evaluator, MARK, NETWORK, connection_marks, expressions};
use super::nft_set::{SET_NAME, SET_TABLE, Set};
use super::{Families, evaluate};
use crate::netlink::{Protocol, Socket, attribute, bytes_at};

/// Bytes of `struct nfgenmsg`.
pub(super) const HEADER: usize = 4;

/// What a dump is of.
#[derive(Clone, Copy)]
#[repr(u16)]
pub(super) enum Request {
    Chains = libc::NFT_MSG_GETCHAIN as u16,
    Rules = libc::NFT_MSG_GETRULE as u16,
    Sets = libc::NFT_MSG_GETSET as u16,
    Elements = libc::NFT_MSG_GETSETELEM as u16,
}

// Attributes.
pub(super) const CHAIN_TABLE: u16 = 1;
pub(super) const CHAIN_NAME: u16 = 3;
pub(super) const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
pub(super) const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_HANDLE: u16 = 3;
const RULE_EXPRESSIONS: u16 = 4;
const DATA_VALUE: u16 = 1;
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

const FIB_RESULT: u16 = 2;
const RT_KEY: u16 = 2;

/// `NFT_FIB_RESULT_ADDRTYPE` and `NFT_RT_TCPMSS`.
const FIB_TYPE: u32 = 3;
const RT_TCPMSS: u32 = 3;

/// `NF_BR_LOCAL_IN`, `NF_BR_LOCAL_OUT`: what is routed passes them on its way from and to a bridge.
const BRIDGE_IN: u32 = 1;
const BRIDGE_OUT: u32 = 3;

/// Family, table and name of a chain or set.
type Key = (u8, Vec<u8>, Vec<u8>);

/// All chains with their rules, and all sets.
#[derive(Debug, Default)]
pub(super) struct Nftables {
    chains: Vec<Chain>,
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
    base: Option<(u32, i32)>,
    /// Handles and expressions.
    rules: Vec<(u64, Vec<u8>)>,
}

impl Nftables {
    /// Reads those of the namespace of the calling thread.
    pub(super) fn load() -> io::Result<Self> {
        let mut all = Self::default();
        dump_chains(|body| all.add_chain(body))?;
        dump_of(Request::Rules, &[0; HEADER], |body| all.add_rule(body))?;
        if all.chains.iter().all(|chain| chain.rules.is_empty()) {
            return Ok(all);
        }
        let mut sets = Vec::new();
        dump_of(Request::Sets, &[0; HEADER], |body| sets.push(body.to_vec()))?;
        for body in sets {
            if let Some(key) = key_of(&body, SET_TABLE, SET_NAME) {
                match Set::load(&body) {
                    Ok(set) => drop(all.sets.insert(key, set)),
                    // It is gone. Another change is announced.
                    Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        all.mark_dynamic();
        Ok(all)
    }

    fn add_chain(&mut self, body: &[u8]) {
        let Some(key) = key_of(body, CHAIN_TABLE, CHAIN_NAME) else { return };
        let own = body.get(HEADER..).unwrap_or_default();
        let hook = attribute(own, CHAIN_HOOK).and_then(|hook| {
            let number = |kind| attribute(hook, kind).and_then(big_endian);
            Some((number(HOOK_NUMBER)?, number(HOOK_PRIORITY)? as i32))
        });
        // Chains of other types than this see the first packet of a connection, or those of this host.
        let is_filter = attribute(own, CHAIN_TYPE).map(text) == Some(b"filter");
        let base = hook.filter(|(hook, _)| is_filter && is_passed(key.0, *hook));
        self.numbers.insert(key.clone(), self.chains.len());
        let (family, table, name) = key;
        self.chains.push(Chain { family, table, name, base, rules: Vec::new() });
    }

    fn add_rule(&mut self, body: &[u8]) {
        let chain = key_of(body, RULE_TABLE, RULE_CHAIN).and_then(|key| self.numbers.get(&key));
        let Some(chain) = chain else { return };
        let own = body.get(HEADER..).unwrap_or_default();
        let handle = attribute(own, RULE_HANDLE).and_then(|value| bytes_at(value, 0));
        let list = attribute(own, RULE_EXPRESSIONS).unwrap_or_default().to_vec();
        self.chains[*chain].rules.push((handle.map_or(0, u64::from_be_bytes), list));
    }

    /// Packets change the sets that rules add to.
    fn mark_dynamic(&mut self) {
        for chain in &self.chains {
            for (name, data) in chain.rules.iter().flat_map(|(_, list)| expressions(list)) {
                if name == b"dynset"
                    && let Some(set) = attribute(data, DYNAMIC_SET)
                    && let Some(set) = self.sets.get_mut(&chain.sibling(set))
                {
                    set.varies = true;
                }
            }
        }
    }

    /// What rules of any chain write.
    pub(super) fn writes(&self) -> Writes {
        let mut writes = Writes::default();
        for (name, data) in self.expressions() {
            let field = |kind| attribute(data, kind).and_then(big_endian);
            match name {
                b"meta" if field(META_SOURCE).is_some() => {
                    writes.mark |= field(META_KEY) == Some(MARK);
                }
                b"payload" if field(PAYLOAD_SOURCE).is_some() => {
                    writes.dscp |= field(PAYLOAD_BASE) == Some(NETWORK);
                }
                b"target" => {
                    let by = extension::writes(attribute(data, COMPAT_NAME).map_or(b"", text));
                    writes = writes.or(by);
                }
                _ => {}
            }
        }
        writes
    }

    /// Notes what rules of any chain do with the marks of connections.
    pub(super) fn connection_marks(&self, marks: &mut ConnectionMarks) {
        let rules = self.chains.iter().flat_map(|chain| &chain.rules);
        rules.for_each(|(_, list)| connection_marks(list, marks));
    }

    fn expressions(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let rules = self.chains.iter().flat_map(|chain| &chain.rules);
        rules.flat_map(|(_, list)| expressions(list))
    }

    /// The families whose rules look at routes.
    pub(super) fn routes(&self) -> Families {
        let mut found = Families::default();
        for chain in &self.chains {
            let looks = |(name, data): (&[u8], &[u8])| {
                let field = |kind| attribute(data, kind).and_then(big_endian);
                match name {
                    // The type of an address is that of its route; all else looks for an interface.
                    b"fib" => field(FIB_RESULT) != Some(FIB_TYPE),
                    // The maximum segment size counts for SYN packets only, which the kernel gets.
                    b"rt" => field(RT_KEY) != Some(RT_TCPMSS),
                    b"match" => {
                        extension::looks_at_routes(attribute(data, COMPAT_NAME).map_or(b"", text))
                    }
                    _ => false,
                }
            };
            if let Some((families, _)) = families_of(chain.family)
                && chain.rules.iter().flat_map(|(_, list)| expressions(list)).any(looks)
            {
                found.add(families);
            }
        }
        found
    }

    /// Appends the entries of all base chains for one kind of session.
    pub(super) fn evaluate(&self, scope: Scope<'_>, program: &mut Program) {
        for (number, chain) in self.chains.iter().enumerate() {
            let Some((hook, priority)) = chain.base else { continue };
            let Some((families, is_ip)) = families_of(chain.family) else { continue };
            if !(if scope.kind.is_ipv6 { families.ipv6 } else { families.ipv4 }) {
                continue;
            }
            let (scope, seen) =
                if is_ip { scope.at(hook, priority) } else { bridge_scope(scope, hook) };
            let mut known: HashMap<usize, Rc<[evaluate::Rule]>> = HashMap::new();
            let mut rules = |number: usize| {
                let rules = || self.chains[number].evaluated(self, &scope);
                Rc::clone(known.entry(number).or_insert_with(rules))
            };
            let name = format!("{}: too many rules", chain.describe());
            Evaluation::base_chain(program, seen, &name, number, &mut rules);
        }
    }

    /// The verdict in the data of an expression or element.
    pub(super) fn verdict(&self, chain: &Chain, data: &[u8]) -> Option<Verdict> {
        let verdict = attribute(data, DATA_VERDICT)?;
        let to = || {
            let name = attribute(verdict, VERDICT_CHAIN)?;
            self.numbers.get(&chain.sibling(name)).copied()
        };
        match attribute(verdict, VERDICT_CODE).and_then(big_endian)? as i32 {
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

    fn describe(&self) -> String {
        let family = match i32::from(self.family) {
            libc::NFPROTO_INET => "inet",
            libc::NFPROTO_IPV4 => "ip",
            libc::NFPROTO_IPV6 => "ip6",
            _ => "bridge",
        };
        let [table, name] = [&self.table, &self.name].map(|text| String::from_utf8_lossy(text));
        format!("nftables {family} {table} {name}")
    }

    fn evaluated(&self, nftables: &Nftables, scope: &Scope<'_>) -> Rc<[evaluate::Rule]> {
        let one = |(handle, list): &(u64, Vec<u8>)| {
            let name = format!("{} handle {handle}", self.describe());
            Evaluator::rule(nftables, self, name, list, scope)
        };
        self.rules.iter().map(one).collect()
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

/// The scope of a chain of a bridge, before IP sees a packet or after it.
fn bridge_scope(scope: Scope<'_>, hook: u32) -> (Scope<'_>, Seen) {
    let is_out = matches!(hook, BRIDGE_OUT | POST_ROUTING);
    let seen = Seen {
        is_source_out: is_out,
        is_destination_out: is_out,
        is_device: true,
        ..Seen::default()
    };
    // What it sees of interfaces is not what routing does.
    (Scope { is_tracked: false, has_output: true, interfaces: &[], ..scope }, seen)
}

/// Calls `each` with all chains, as the kernel reports them.
pub(super) fn dump_chains(each: impl FnMut(&[u8])) -> io::Result<()> {
    dump_of(Request::Chains, &[0; HEADER], each)
}

/// Calls `each` with all that the kernel reports.
pub(super) fn dump_of(
    what: Request,
    request: &[u8],
    mut each: impl FnMut(&[u8]),
) -> io::Result<()> {
    let kind = (libc::NFNL_SUBSYS_NFTABLES as u16) << 8 | what as u16;
    let socket = Socket::open(Protocol::Netfilter)?;
    match socket.dump(kind, request, |message| each(message.body)) {
        // A kernel without nftables.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            Ok(())
        }
        other => other.map(drop),
    }
}

fn key_of(body: &[u8], table: u16, name: u16) -> Option<Key> {
    let own = body.get(HEADER..)?;
    let [table, name] = [attribute(own, table)?, attribute(own, name)?].map(text);
    Some((*body.first()?, table.to_vec(), name.to_vec()))
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

/// A string without the zero at its end.
pub(super) fn text(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == 0).next().unwrap_or_default()
}

pub(super) fn big_endian(value: &[u8]) -> Option<u32> {
    bytes_at(value, 0).map(u32::from_be_bytes)
}

/// The bytes in data.
pub(super) fn data_value(data: &[u8]) -> Option<&[u8]> {
    attribute(data, DATA_VALUE)
}
