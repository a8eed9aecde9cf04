//! The evaluation of one rule of nftables, expression by expression (`include/uapi/linux/netfilter/nf_tables.h`).
//! An expression that is not known here, or that cannot be read, varies and acts.

use std::collections::HashMap;
use std::rc::Rc;

use super::evaluate::{Evaluation, POST_ROUTING, Program, Rule, Scope, Seen, Tracking, Verdict};
use super::extension;
use super::nft_message::Attributes;
use super::nftables::{
    BRIDGE_OUT, CT_LABELS, CT_MARK, Chain, MARK, NETWORK, Nftables, families_of,
};
use super::register::{
    self, Bit, Registers, Source, between, equal, known, masked, number, shifted, swapped, vary,
};
use super::sessions::{Field, Match};

/// Bytes of all registers.
const REGISTERS: usize = 64;

impl Nftables {
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
            let mut known: HashMap<usize, Rc<[Rule]>> = HashMap::new();
            let mut rules = |number: usize| {
                let rules = || self.evaluated(number, &scope);
                Rc::clone(known.entry(number).or_insert_with(rules))
            };
            let name = format!("{}: too many rules", chain.describe());
            Evaluation::base_chain(program, seen, &name, number, &mut rules);
        }
    }

    fn evaluated(&self, number: usize, scope: &Scope<'_>) -> Rc<[Rule]> {
        let chain = &self.chains[number];
        let one = |(handle, list): &(u64, Vec<u8>)| {
            let name = format!("{} handle {handle}", chain.describe());
            Evaluator::rule(self, chain, name, Attributes::from(&list[..]), scope)
        };
        chain.rules.iter().map(one).collect()
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

/// A rule under evaluation.
struct Evaluator<'a> {
    nftables: &'a Nftables,
    chain: &'a Chain,
    scope: &'a Scope<'a>,
    registers: Registers,
    matched: Match,
    acts: Match,
    verdicts: Vec<(Match, Verdict)>,
}

impl<'a> Evaluator<'a> {
    /// Evaluates the rule with these expressions.
    fn rule(
        nftables: &'a Nftables,
        chain: &'a Chain,
        name: String,
        list: Attributes<'_>,
        scope: &'a Scope<'a>,
    ) -> Rule {
        let mut rule = Self {
            nftables,
            chain,
            scope,
            registers: Registers::new(),
            matched: Match::always(),
            acts: Match::NEVER,
            verdicts: Vec::new(),
        };
        for (name, data) in list.expressions() {
            if rule.matched.is_never() || !rule.verdicts.is_empty() {
                break;
            }
            if rule.expression(name, data).is_none() {
                rule.acts();
                rule.matches(Match::varying());
            }
        }
        Rule { name, matched: rule.matched, acts: rule.acts, verdicts: rule.verdicts }
    }

    fn matches(&mut self, condition: Match) {
        self.matched = self.matched.and(&condition);
    }

    fn acts(&mut self) {
        self.acts = std::mem::replace(&mut self.acts, Match::NEVER).or(self.matched.clone());
    }

    /// Writes what a session stores, and repeats for all its packets: the rule acts if the value varies, or whether it is
    /// written.
    fn writes(&mut self, varies: bool) {
        if varies || self.matched.varies {
            self.acts();
        }
    }

    fn ends(&mut self, verdict: Verdict) {
        self.verdicts.push((Match::always(), verdict));
    }

    fn load(&mut self, register: u32, bits: &[Bit]) -> Option<()> {
        self.registers.set(register, bits)
    }

    /// None: unknown.
    fn expression(&mut self, name: &[u8], data: Attributes<'_>) -> Option<()> {
        match name {
            b"immediate" => match data.number(1)? {
                0 => self.ends(self.nftables.verdict(self.chain, data.get(2)?)?),
                register => self.load(register, &known(data.value(2)?))?,
            },
            b"cmp" => self.compare(data)?,
            b"range" => {
                let (from, to) = (data.value(3)?, data.value(4)?);
                let found =
                    between(self.registers.get(data.number(1)?, from.len())?, from, to, self.scope);
                self.matches(if data.number(2)? == 0 { found } else { found.not() });
            }
            b"bitwise" => self.bitwise(data)?,
            b"byteorder" => {
                let (from, to, bytes, size) =
                    (data.number(1)?, data.number(2)?, data.number(4)?, data.number(5)?);
                let bits = self.registers.get(from, bytes as usize).filter(|_| size > 0)?;
                let bits: Vec<_> = bits.chunks(8 * size as usize).flat_map(swapped).collect();
                self.load(to, &bits)?;
            }
            b"lookup" => self.lookup(data)?,
            b"payload" => self.payload(data)?,
            b"meta" => self.meta(data)?,
            b"ct" => self.connection(data)?,
            b"exthdr" => self.extension_header(data)?,
            // Of the route of the packet, which user space watches; and of IPsec, which such packets do not have.
            b"fib" => {
                let bits = if data.number(2)? == FIB_NAME { 128 } else { 32 };
                self.load(data.number(1)?, &vec![Bit::Unknown; bits])?;
            }
            b"rt" => {
                let bits = if data.number(2)? == RT_NEXT_HOP6 { 128 } else { 32 };
                self.load(data.number(1)?, &vec![Bit::Unknown; bits])?;
            }
            b"xfrm" => self.load(data.number(1)?, &[Bit::Unknown; 128])?,
            b"numgen" => self.load(data.number(1)?, &[Bit::Varies; 32])?,
            b"hash" => {
                let bits = data
                    .number(1)
                    .and_then(|from| self.registers.get(from, data.number(3)? as usize));
                let varies = data.number(7) != Some(0) || bits.is_none_or(is_unsteady);
                let bit = if varies { Bit::Varies } else { Bit::Unknown };
                self.load(data.number(2)?, &[bit; 32])?;
            }
            b"counter" if !self.scope.options.strict => {}
            // They are of the connection.
            b"notrack" | b"flow_offload" => self.writes(false),
            b"objref" => self.object(data)?,
            b"reject" => self.ends(Verdict::Drop),
            b"log" => self.acts(),
            b"match" => {
                let (name, info) = (data.text(1)?, data.get(3)?);
                let (condition, acts) = extension::matched(name, data.number(2)?, info, self.scope);
                if acts {
                    self.acts();
                }
                self.matches(condition);
            }
            b"target" => {
                let (name, info) = (data.text(1)?, data.get(3)?);
                let target = extension::target(name, data.number(2)?, info, self.scope);
                if target.acts {
                    self.acts();
                }
                self.ends(target.verdict);
            }
            _ => return None,
        }
        Some(())
    }

    fn compare(&mut self, data: Attributes<'_>) -> Option<()> {
        let value = data.value(3)?;
        let bits = self.registers.get(data.number(1)?, value.len())?;
        let (lowest, highest) = (vec![0; value.len()], vec![0xff; value.len()]);
        let is_equal = || equal(bits, value, self.scope);
        let at_most = || between(bits, &lowest, value, self.scope);
        let at_least = || between(bits, value, &highest, self.scope);
        let found = match data.number(2)? {
            0 => is_equal(),
            1 => is_equal().not(),
            2 => at_least().not(),
            3 => at_most(),
            4 => at_most().not(),
            5 => at_least(),
            _ => return None,
        };
        self.matches(found);
        Some(())
    }

    fn bitwise(&mut self, data: Attributes<'_>) -> Option<()> {
        let bits = self.registers.get(data.number(1)?, data.number(3)? as usize)?;
        let by = || Some(u32::from_ne_bytes(data.value(7)?.try_into().ok()?));
        let bits = match data.number(6).unwrap_or(0) {
            0 => masked(bits, data.value(4)?, data.value(5)?),
            1 => shifted(bits, by()? as usize, true),
            2 => shifted(bits, by()? as usize, false),
            _ => vec![Bit::Varies; bits.len()],
        };
        self.load(data.number(2)?, &bits)
    }

    fn lookup(&mut self, data: Attributes<'_>) -> Option<()> {
        let set = self.nftables.set(self.chain, data.get(1)?)?;
        let key = &self.registers.get(data.number(2)?, set.key_bytes)?.to_vec();
        if set.acts(self.scope.options.strict) {
            self.acts();
        }
        let found = set.contains(key, self.scope);
        match data.number(3) {
            // A verdict map.
            Some(0) => {
                for (condition, value) in set.values(key, self.scope) {
                    let verdict = value.and_then(|value| self.nftables.verdict(self.chain, value));
                    match verdict {
                        Some(verdict) => self.verdicts.push((condition, verdict)),
                        None => return None,
                    }
                }
            }
            Some(register) => {
                let bit = if found.varies || is_unsteady(key) { Bit::Varies } else { Bit::Unknown };
                self.load(register, &vec![bit; 8 * set.data_bytes.min(REGISTERS)])?;
            }
            None => {}
        }
        let is_inverted = data.number(5).unwrap_or(0) & 1 != 0;
        self.matches(if is_inverted { found.not() } else { found });
        Some(())
    }

    fn payload(&mut self, data: Attributes<'_>) -> Option<()> {
        let (base, offset, bytes) =
            (data.number(2)?, data.number(3)? as usize, data.number(4)? as usize);
        if bytes > REGISTERS {
            return None;
        }
        if let Some(register) = data.number(5) {
            // Nothing but the DSCP is part of the session.
            let written = self.registers.get(register, bytes)?;
            let is_dscp = base == NETWORK && writes_dscp(written, 8 * offset, self.scope);
            self.writes(!is_dscp);
            return Some(());
        }
        let header = match base {
            LINK => link(),
            NETWORK => register::header(self.scope),
            TRANSPORT => register::transport(self.scope),
            _ => Vec::new(),
        };
        let bit = |at| header.get(at).copied().unwrap_or(Bit::Varies);
        let bits: Vec<_> = (8 * offset..8 * (offset + bytes)).map(bit).collect();
        self.load(data.number(1)?, &bits)
    }

    fn meta(&mut self, data: Attributes<'_>) -> Option<()> {
        let key = data.number(2)?;
        if let Some(register) = data.number(3) {
            // Mark and priority of the output are part of the session.
            self.writes(!matches!(key, MARK | PRIORITY) || vary(self.registers.get(register, 4)?));
            return Some(());
        }
        let scope = self.scope;
        let is_bridge = i32::from(self.chain.family) == libc::NFPROTO_BRIDGE;
        let family = if scope.kind.is_ipv6 { libc::NFPROTO_IPV6 } else { libc::NFPROTO_IPV4 };
        let bits = match key {
            // Length, CPU, a random number, the time.
            30 => vec![Bit::Varies; 64],
            0 | 20 | 24 | 31 | 32 => vec![Bit::Varies; 32],
            1 if scope.kind.is_ipv6 => known(&0x86ddu16.to_be_bytes()),
            1 => known(&0x0800u16.to_be_bytes()),
            MARK if scope.knows_mark => swapped(&number(Source::Field(Field::Mark), 4)),
            4 | 6 => register::interface(Field::Input, key == 6, scope),
            5 | 7 => register::interface(Field::Output, key == 7, scope),
            // Of a socket of this host.
            10 | 11 => {
                self.matches(Match::NEVER);
                return Some(());
            }
            15 if is_bridge => known(&[libc::NFPROTO_BRIDGE as u8]),
            15 => known(&[family as u8]),
            16 => known(&[scope.kind.protocol()]),
            // Priority, mark, realm, security mark, type of packet; type, group and kind of the interfaces; bridge;
            // IPsec.
            2 | 3 | 8 | 9 | 13 | 14 | 19 | 21 | 22 | 25 | 28 | 29 | 33 | 35 => {
                vec![Bit::Unknown; 32]
            }
            17 | 18 | 26 | 27 | 34 => vec![Bit::Unknown; 128],
            _ => return None,
        };
        self.load(data.number(1)?, &bits)
    }

    fn connection(&mut self, data: Attributes<'_>) -> Option<()> {
        let key = data.number(2)?;
        if let Some(register) = data.number(4) {
            // Mark, security mark, labels, zone, mask of events: the next packet would write the same.
            let is_same = !matches!(key, CT_MARK | CT_LABELS) || !self.scope.connection_steps;
            let is_stored = is_same && matches!(key, CT_MARK | 4 | CT_LABELS | 17 | 18);
            self.writes(!is_stored || vary(self.registers.get(register, 4)?));
            return Some(());
        }
        let (scope, register) = (self.scope, data.number(1)?);
        let tracking = scope.kind.tracking;
        if !scope.is_tracked {
            // Nothing yet, unless notrack was there, or a chain before has tracked the packet.
            self.matches(Match::unknown());
            return match key {
                5 => self.load(register, &[Bit::Varies; 32]),
                14..=16 => self.load(register, &[Bit::Varies; 64]),
                _ => self.load(register, &[Bit::Unknown; 32]),
            };
        }
        if key == 0 {
            // `NF_CT_STATE_UNTRACKED_BIT`, or that of an established connection.
            let state: u32 = if tracking == Tracking::Untracked { 1 << 6 } else { 1 << 1 };
            return self.load(register, &known(&state.to_ne_bytes()));
        }
        if tracking == Tracking::Untracked {
            self.matches(Match::NEVER);
            return Some(());
        }
        let is_reply = tracking == Tracking::Reply;
        let is_own = data.get(3).is_none_or(|direction| direction == [u8::from(is_reply)]);
        let bits = match key {
            1 => known(&[is_reply.into()]),
            2 => {
                // `IPS_SEEN_REPLY`, `IPS_CONFIRMED`, and `IPS_ASSURED`.
                let mut bits = vec![Bit::Unknown; 32];
                bits[8 - 1 - 1] = Bit::Is(true);
                bits[8 - 1 - 3] = Bit::Is(true);
                // Later packets of UDP give it.
                bits[8 - 1 - 2] = if scope.kind.is_tcp { Bit::Is(true) } else { Bit::Varies };
                if cfg!(target_endian = "big") { swapped(&bits) } else { bits }
            }
            14 if is_own => swapped(&number(Source::Packets, 8)),
            // The rest of the time-out; packets and bytes so far.
            5 => vec![Bit::Varies; 32],
            14..=16 => vec![Bit::Varies; 64],
            7 if scope.kind.is_ipv6 => known(&[libc::NFPROTO_IPV6 as u8]),
            7 => known(&[libc::NFPROTO_IPV4 as u8]),
            10 => known(&[scope.kind.protocol()]),
            // Marks, helper, addresses and ports of the connection, labels, zone, number.
            11 | 12 | 17 => vec![Bit::Unknown; 16],
            3 | 4 | 19 | 20 | 23 => vec![Bit::Unknown; 32],
            8 | 9 if !scope.kind.is_ipv6 => vec![Bit::Unknown; 32],
            6 | 8 | 9 | 13 | 21 | 22 => vec![Bit::Unknown; 128],
            _ => return None,
        };
        self.load(register, &bits)
    }

    fn extension_header(&mut self, data: Attributes<'_>) -> Option<()> {
        let is_presence = data.number(5).unwrap_or(0) & 1 != 0;
        match data.number(6).unwrap_or(0) {
            // Written: it acts where the option is.
            _ if data.number(7).is_some() => self.acts(),
            // Options of TCP.
            1 if self.scope.kind.is_tcp => self.load(data.number(1)?, &[Bit::Varies; 128])?,
            // There are none of IP, nor other protocols.
            0..=4 if is_presence => self.load(data.number(1)?, &known(&[0]))?,
            0..=4 => self.matches(Match::NEVER),
            _ => return None,
        }
        Some(())
    }

    /// `NFT_OBJECT_*`.
    fn object(&mut self, data: Attributes<'_>) -> Option<()> {
        let kind = match data.get(4) {
            Some(name) => {
                let set = self.nftables.set(self.chain, name)?;
                let key = self.registers.get(data.number(3)?, set.key_bytes)?;
                self.matches(set.contains(key, self.scope));
                set.object
            }
            None => data.number(1),
        };
        match kind? {
            1 if !self.scope.options.strict => {}
            // Helper and time-outs are given to new connections only; the security mark is the same each time.
            3 | 7 | 8 => self.writes(false),
            _ => return None,
        }
        Some(())
    }
}

/// `NFT_PAYLOAD_LL_HEADER`, `NFT_PAYLOAD_TRANSPORT_HEADER`, and `NFT_META_PRIORITY`.
const LINK: u32 = 0;
const TRANSPORT: u32 = 2;
const PRIORITY: u32 = 2;

/// `NFT_FIB_RESULT_OIFNAME` and `NFT_RT_NEXTHOP6`.
const FIB_NAME: u32 = 2;
const RT_NEXT_HOP6: u32 = 2;

/// Bits that may differ, or that a rule may have written, so that it sees another value each time.
fn is_unsteady(bits: &[Bit]) -> bool {
    vary(bits) || bits.contains(&Bit::Unknown)
}

/// The bits of an Ethernet header, and of tags behind it.
fn link() -> Vec<Bit> {
    let mut bits = vec![Bit::Unknown; 8 * 22];
    // The source address is not part of a session.
    bits[8 * 6..8 * 12].fill(Bit::Varies);
    bits
}

/// Whether bits written at this bit of the network header change nothing but the DSCP, and that always alike.
fn writes_dscp(written: &[Bit], start: usize, scope: &Scope<'_>) -> bool {
    let header = register::header(scope);
    let dscp = if scope.kind.is_ipv6 { 4..10 } else { 8..14 };
    written.iter().enumerate().all(|(at, bit)| {
        let at = start + at;
        if dscp.contains(&at) {
            return !vary(&[*bit]);
        }
        let is_itself = matches!(bit, Bit::Is(_)) || *bit == Bit::Packet(at as u8);
        is_itself && header.get(at) == Some(bit)
    })
}
