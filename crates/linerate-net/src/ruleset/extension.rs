//! The matches and targets of x_tables, which iptables-legacy and, by `match` and `target`, iptables-nft use
//! (`include/uapi/linux/netfilter/xt_*.h`).

use std::ops::RangeInclusive;

use super::connection_mark::{ConnectionMarks, Written};
use super::evaluate::{Scope, Tracking, Verdict, Writes};
use super::sessions::{Field, Match, Range};
use crate::netlink::bytes_at;

/// What a target does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// It does something to each packet that the fast path would not repeat.
    pub acts: bool,
    pub verdict: Verdict,
}

/// Which sessions a match of this name, revision and `info` matches; and whether it acts on each packet that it sees, as
/// a limit does, which counts it.
pub(super) fn matched(name: &[u8], revision: u32, info: &[u8], scope: &Scope<'_>) -> (Match, bool) {
    let info = Info(info);
    let found = match (name, revision) {
        (b"comment", _) => Some(Match::always()),
        (b"tcp", 0) => tcp(info, scope),
        (b"udp", 0) => udp(info, scope),
        (b"multiport", 0 | 1) => multiport(info, revision, scope),
        (b"conntrack", 1..=3) => conntrack(info, revision, scope),
        (b"state", 0) => info.word(0).map(|mask| state(mask, STATE_UNTRACKED, 0, scope)),
        (b"iprange", 1) => iprange(info, scope),
        (b"mark", 1) => mark(info, scope),
        (b"dscp", 0) => {
            dscp(info.byte(0).map(|dscp| (dscp << 2, 0xfc)), info.byte(1).map(is_set), scope)
        }
        (b"tos", 1) => dscp(info.byte(1).zip(info.byte(0)), info.byte(2).map(is_set), scope),
        (b"pkttype", 0) => pkttype(info),
        (b"connbytes", 0) => connbytes(info, scope),
        (b"statistic", 0) => Some(Match::varying()),
        // They exist in packets of other protocols, or in extension headers.
        (b"icmp" | b"icmp6" | b"sctp" | b"dccp" | b"udplite" | b"esp" | b"ah" | b"ipcomp", _) => {
            Some(Match::NEVER)
        }
        (b"mh" | b"frag" | b"rt" | b"hbh" | b"dst" | b"srh", _) => Some(Match::NEVER),
        // No packet that is forwarded belongs to a socket of this host.
        (b"cgroup", _) => Some(Match::NEVER),
        // What changes them invalidates sessions: the connection's mark and helper, routes and addresses, IPsec policies.
        (b"owner" | b"connmark" | b"helper", _) => Some(Match::unknown()),
        (b"addrtype" | b"rpfilter" | b"realm" | b"policy" | b"ipv6header", _) => {
            Some(Match::unknown())
        }
        _ => None,
    };
    (found.unwrap_or_else(Match::varying), acts(name, info))
}

/// Whether a match acts on each packet that it sees; also one that is unknown.
fn acts(name: &[u8], info: Info<'_>) -> bool {
    /// `XT_STATISTIC_MODE_RANDOM`, `XT_RECENT_CHECK` and `XT_RECENT_TTL`.
    const RANDOM: u16 = 0;
    const CHECK: u8 = 1;
    const TTL: u8 = 1 << 4;
    match name {
        b"statistic" => info.half(0) != Some(RANDOM),
        // Seconds and hits, then what to do; `XT_RECENT_TTL` changes nothing.
        b"recent" => info.byte(8).is_none_or(|flags| flags & !TTL != CHECK),
        b"comment" | b"tcp" | b"udp" | b"multiport" | b"conntrack" | b"state" | b"iprange" => false,
        b"mark" | b"connmark" | b"dscp" | b"tos" | b"ecn" | b"ttl" | b"hl" | b"length" => false,
        b"icmp" | b"icmp6" | b"sctp" | b"dccp" | b"udplite" | b"esp" | b"ah" | b"ipcomp" => false,
        b"mh" | b"frag" | b"rt" | b"hbh" | b"dst" | b"srh" | b"ipv6header" | b"eui64" => false,
        b"owner" | b"cgroup" | b"helper" | b"addrtype" | b"rpfilter" | b"realm" => false,
        b"policy" | b"pkttype" | b"mac" | b"physdev" | b"devgroup" | b"cpu" | b"time" => false,
        b"string" | b"u32" | b"bpf" | b"connbytes" | b"tcpmss" | b"set" | b"cluster" => false,
        b"rateest" | b"l2tp" | b"osf" => false,
        _ => true,
    }
}

/// What the target of this name, revision and `info` does.
pub(super) fn target(name: &[u8], revision: u32, info: &[u8], scope: &Scope<'_>) -> Target {
    let info = Info(info);
    let acts = match (name, revision) {
        (b"REJECT", _) => return Target { acts: false, verdict: Verdict::Drop },
        // Sessions store the mark and the priority with which packets leave, and their connection.
        (b"MARK", 2) | (b"CLASSIFY" | b"HMARK", 0) | (b"CT" | b"NOTRACK", _) => false,
        (b"CONNMARK", 1 | 2) => connmark_changes(info, revision, scope),
        (b"DSCP", 0) => false,
        // Sessions do not store ECN.
        (b"TOS", 1) => {
            info.half(0).is_none_or(|both| both.to_ne_bytes().iter().any(|byte| byte & 3 != 0))
        }
        _ => true,
    };
    Target { acts, verdict: Verdict::Continue }
}

/// What the target of this name writes.
pub(super) fn writes(name: &[u8]) -> Writes {
    match name {
        b"MARK" | b"CONNMARK" | b"HMARK" | b"TPROXY" => Writes { mark: true, ..Writes::default() },
        b"DSCP" | b"TOS" => Writes { dscp: true, ..Writes::default() },
        b"REJECT" | b"LOG" | b"NFLOG" | b"NFQUEUE" | b"TEE" | b"CLASSIFY" | b"CT" | b"NOTRACK" => {
            Writes::default()
        }
        b"TCPMSS" | b"TCPOPTSTRIP" | b"TTL" | b"HL" | b"ECN" | b"CHECKSUM" | b"AUDIT"
        | b"TRACE" => Writes::default(),
        b"IDLETIMER" | b"RATEEST" | b"SECMARK" | b"CONNSECMARK" | b"SET" | b"SYNPROXY" => {
            Writes::default()
        }
        b"MASQUERADE" | b"SNAT" | b"DNAT" | b"REDIRECT" | b"NETMAP" => Writes::default(),
        _ => Writes { mark: true, dscp: true, ..Writes::default() },
    }
}

/// The structure of a match or target, as the kernel has it.
#[derive(Clone, Copy)]
struct Info<'a>(&'a [u8]);

impl Info<'_> {
    fn byte(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    fn half(self, at: usize) -> Option<u16> {
        bytes_at(self.0, at).map(u16::from_ne_bytes)
    }

    fn word(self, at: usize) -> Option<u32> {
        bytes_at(self.0, at).map(u32::from_ne_bytes)
    }

    fn long(self, at: usize) -> Option<u64> {
        bytes_at(self.0, at).map(u64::from_ne_bytes)
    }

    /// An address of the kind of session in a `union nf_inet_addr`, as a number.
    fn address(self, at: usize, is_ipv6: bool) -> Option<u128> {
        if is_ipv6 {
            bytes_at(self.0, at).map(u128::from_be_bytes)
        } else {
            bytes_at(self.0, at).map(|bytes| u32::from_be_bytes(bytes).into())
        }
    }

    /// A range of ports from two numbers in host order.
    fn ports(self, at: usize) -> Option<RangeInclusive<u16>> {
        Some(self.half(at)?..=self.half(at + 2)?)
    }
}

fn is_set(byte: u8) -> bool {
    byte != 0
}

fn inverted(found: Match, is_inverted: bool) -> Match {
    if is_inverted { found.not() } else { found }
}

/// A field of the headers is in one of the ranges.
pub(super) fn one_of(
    field: Field,
    ranges: impl IntoIterator<Item = Range>,
    scope: &Scope<'_>,
) -> Match {
    let is_known = match field {
        Field::Source | Field::SourcePort => scope.knows_source,
        Field::Destination | Field::DestinationPort => scope.knows_destination,
        Field::Mark => scope.knows_mark,
        Field::Dscp => scope.knows_dscp,
        Field::Input | Field::Output => true,
    };
    if is_known { Match::one_of(field, ranges) } else { Match::unknown() }
}

/// A field equals a value in the bits of a mask.
pub(super) fn masked(field: Field, value: u128, mask: u128, bits: u32, scope: &Scope<'_>) -> Match {
    let free = !mask & u128::MAX >> (128 - bits);
    if value & free != 0 {
        return Match::NEVER;
    }
    // The free bits have to be the lowest.
    match free & free.wrapping_add(1) {
        0 => one_of(field, [value..=value | free], scope),
        _ => Match::unknown(),
    }
}

fn ports(field: Field, range: RangeInclusive<u16>, is_inverted: bool, scope: &Scope<'_>) -> Match {
    if range == (0..=u16::MAX) {
        return Match::certain(!is_inverted);
    }
    let range = u128::from(*range.start())..=u128::from(*range.end());
    inverted(
        if range.is_empty() { Match::NEVER } else { one_of(field, [range], scope) },
        is_inverted,
    )
}

/// The two ranges of `struct xt_tcp` and `struct xt_udp`.
fn both_ports(info: Info<'_>, inversion: u8, scope: &Scope<'_>) -> Option<Match> {
    let source = ports(Field::SourcePort, info.ports(0)?, inversion & 1 != 0, scope);
    let destination = ports(Field::DestinationPort, info.ports(4)?, inversion & 2 != 0, scope);
    Some(source.and(&destination))
}

/// `struct xt_tcp`.
fn tcp(info: Info<'_>, scope: &Scope<'_>) -> Option<Match> {
    /// FIN, SYN, RST and ACK are known, and only ACK is set.
    const KNOWN: u8 = 0x17;
    const ACK: u8 = 0x10;
    let (option, mask, wanted, inversion) =
        (info.byte(8)?, info.byte(9)?, info.byte(10)?, info.byte(11)?);
    if !scope.kind.is_tcp {
        return Some(Match::NEVER);
    }
    let flags = if ACK & mask != wanted & KNOWN || wanted & !mask != 0 {
        Match::NEVER
    } else if mask & !KNOWN != 0 {
        Match::varying()
    } else {
        Match::always()
    };
    let flags = inverted(flags, inversion & 4 != 0);
    let options = if option == 0 { Match::always() } else { Match::varying() };
    Some(both_ports(info, inversion, scope)?.and(&flags).and(&options))
}

/// `struct xt_udp`.
fn udp(info: Info<'_>, scope: &Scope<'_>) -> Option<Match> {
    let inversion = info.byte(8)?;
    if scope.kind.is_tcp { Some(Match::NEVER) } else { both_ports(info, inversion, scope) }
}

/// `struct xt_multiport` and `struct xt_multiport_v1`.
fn multiport(info: Info<'_>, revision: u32, scope: &Scope<'_>) -> Option<Match> {
    const PORTS: usize = 15;
    /// `XT_MULTIPORT_SOURCE` and `XT_MULTIPORT_DESTINATION`; else either.
    const SOURCE: u8 = 0;
    const DESTINATION: u8 = 1;
    let (which, count) = (info.byte(0)?, usize::from(info.byte(1)?));
    let has_next = |at: usize| revision > 0 && info.byte(2 + 2 * PORTS + at).is_some_and(is_set);
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < count {
        let last = at + usize::from(has_next(at));
        ranges.push(info.half(2 + 2 * at)?.into()..=info.half(2 + 2 * last)?.into());
        at = last + 1;
    }
    let of = |field| one_of(field, ranges.iter().filter(|range| !range.is_empty()).cloned(), scope);
    let is_inverted = revision > 0 && is_set(info.byte(2 + 3 * PORTS)?);
    let of = |field| inverted(of(field), is_inverted);
    Some(match which {
        SOURCE => of(Field::SourcePort),
        DESTINATION => of(Field::DestinationPort),
        _ if is_inverted => of(Field::SourcePort).and(&of(Field::DestinationPort)),
        _ => of(Field::SourcePort).or(of(Field::DestinationPort)),
    })
}

/// `XT_CONNTRACK_STATE_INVALID`, `XT_CONNTRACK_STATE_BIT(IP_CT_ESTABLISHED)` and, of either match,
/// `XT_CONNTRACK_STATE_UNTRACKED` and `XT_STATE_UNTRACKED`.
const INVALID: u32 = 1;
const ESTABLISHED: u32 = 1 << 1;
const CONNTRACK_UNTRACKED: u32 = 1 << 8;
const STATE_UNTRACKED: u32 = 1 << 6;
/// `XT_CONNTRACK_STATE_SNAT` and `XT_CONNTRACK_STATE_DNAT`.
const TRANSLATED: u32 = 3 << 6;

/// Whether the state of the connection is in the mask.
fn state(mask: u32, untracked: u32, translated: u32, scope: &Scope<'_>) -> Match {
    if !scope.is_tracked {
        return Match::unknown();
    }
    if scope.kind.tracking == Tracking::Untracked {
        // Which of both is not known.
        return match mask & (INVALID | untracked) {
            0 => Match::NEVER,
            both if both == INVALID | untracked => Match::always(),
            _ => Match::unknown(),
        };
    }
    match (mask & ESTABLISHED != 0, mask & translated != 0) {
        (true, _) => Match::always(),
        (_, true) => Match::unknown(),
        _ => Match::NEVER,
    }
}

/// `struct xt_conntrack_mtinfo1` to `xt_conntrack_mtinfo3`.
fn conntrack(info: Info<'_>, revision: u32, scope: &Scope<'_>) -> Option<Match> {
    const STATE: u16 = 1;
    const PROTOCOL: u16 = 1 << 1;
    const STATUS: u16 = 1 << 6;
    const EXPIRES: u16 = 1 << 7;
    const DIRECTION: u16 = 1 << 12;
    /// Says what the user wrote.
    const STATE_ALIAS: u16 = 1 << 13;
    let (flags, inversion) = (info.half(146)?, info.half(148)?);
    let (states, statuses) = if revision == 1 {
        (info.byte(150)?.into(), info.byte(151)?.into())
    } else {
        (info.half(150)?, info.half(152)?)
    };
    let mut found = Match::always();
    let mut add = |flag: u16, one: &dyn Fn() -> Match| {
        if flags & flag != 0 {
            found = found.and(&inverted(one(), inversion & flag != 0));
        }
    };
    add(STATE, &|| state(states.into(), CONNTRACK_UNTRACKED, TRANSLATED, scope));
    if !scope.is_tracked {
        return Some(Match::unknown());
    }
    if scope.kind.tracking == Tracking::Untracked {
        return Some(if flags & STATE == 0 { Match::NEVER } else { found });
    }
    let protocol = info.half(136)?;
    add(PROTOCOL, &|| Match::certain(protocol == u16::from(scope.kind.protocol())));
    add(DIRECTION, &|| Match::certain(scope.kind.tracking == Tracking::Original));
    add(STATUS, &|| status(statuses));
    // What the tuples of the connection are compared with.
    let others = flags & !(STATE | PROTOCOL | STATUS | EXPIRES | DIRECTION | STATE_ALIAS);
    if others != 0 {
        found = found.and(&Match::unknown());
    }
    if flags & EXPIRES != 0 {
        found = found.and(&Match::varying());
    }
    Some(found)
}

/// Whether one of these bits of the status of a connection is set (`enum ip_conntrack_status`).
fn status(mask: u16) -> Match {
    /// `IPS_SEEN_REPLY` and `IPS_CONFIRMED`: established connections have them.
    const SET: u16 = 1 << 1 | 1 << 3;
    /// `IPS_EXPECTED`, `IPS_SRC_NAT` and `IPS_DST_NAT`: they never change.
    const FIXED: u16 = 1 | 1 << 4 | 1 << 5;
    match mask {
        0 => Match::NEVER,
        _ if mask & SET != 0 => Match::always(),
        _ if mask & !FIXED == 0 => Match::unknown(),
        _ => Match::varying(),
    }
}

/// `struct xt_iprange_mtinfo`.
fn iprange(info: Info<'_>, scope: &Scope<'_>) -> Option<Match> {
    let flags = info.byte(64)?;
    let mut found = Match::always();
    for (field, flag, at) in [(Field::Source, 1, 0), (Field::Destination, 2, 32)] {
        if flags & flag != 0 {
            let address = |at| info.address(at, scope.kind.is_ipv6);
            let range = address(at)?..=address(at + 16)?;
            let one = if range.is_empty() { Match::NEVER } else { one_of(field, [range], scope) };
            found = found.and(&inverted(one, flags & flag << 4 != 0));
        }
    }
    Some(found)
}

/// `struct xt_mark_mtinfo1`.
fn mark(info: Info<'_>, scope: &Scope<'_>) -> Option<Match> {
    let (value, mask) = (info.word(0)?, info.word(4)?);
    let found = masked(Field::Mark, value.into(), mask.into(), u32::BITS, scope);
    Some(inverted(found, is_set(info.byte(8)?)))
}

/// TOS or traffic class equals a value in the bits of a mask.
fn dscp(value: Option<(u8, u8)>, is_inverted: Option<bool>, scope: &Scope<'_>) -> Option<Match> {
    let (value, mask) = value?;
    let found = if value & !mask != 0 {
        Match::NEVER
    } else if mask & 3 != 0 {
        // ECN differs from packet to packet.
        Match::varying()
    } else {
        masked(Field::Dscp, (value >> 2).into(), (mask >> 2).into(), 6, scope)
    };
    Some(inverted(found, is_inverted?))
}

/// `struct xt_pkttype_info`: what is forwarded is to this host (`PACKET_HOST`).
fn pkttype(info: Info<'_>) -> Option<Match> {
    Some(Match::certain((info.word(0)? == 0) != (info.word(4)? != 0)))
}

/// `struct xt_connbytes_info`.
fn connbytes(info: Info<'_>, scope: &Scope<'_>) -> Option<Match> {
    /// `XT_CONNBYTES_PKTS` and `XT_CONNBYTES_DIR_BOTH`.
    const PACKETS: u8 = 0;
    const BOTH: u8 = 2;
    let (from, to) = (info.long(0)?, info.long(8)?);
    if (info.byte(16)?, info.byte(17)?) != (PACKETS, BOTH) || from > to {
        return None;
    }
    let least = u64::from(scope.options.after_packets);
    Some(match (to < least, from <= least && to == u64::MAX) {
        (true, _) => Match::NEVER,
        (_, true) => Match::always(),
        _ => Match::varying(),
    })
}

/// Whether `CONNMARK` may give the connection another mark at each packet.
fn connmark_changes(info: Info<'_>, revision: u32, scope: &Scope<'_>) -> bool {
    const SET: u8 = 0;
    const SAVE: u8 = 1;
    const RESTORE: u8 = 2;
    let (mark, mask) = (info.word(0).unwrap_or(0), info.word(4).unwrap_or(0));
    let is_shifted = revision > 1 && info.byte(13) != Some(0);
    match info.byte(if revision == 1 { 12 } else { 14 }) {
        // It flips the bits that it does not clear.
        Some(SET) => scope.connection_steps || is_shifted || mark & !mask != 0,
        // The packet's mark may come from the connection's.
        Some(SAVE) => {
            let packet = info.word(8).unwrap_or(u32::MAX);
            scope.connection_steps || !scope.knows_mark || is_shifted || packet & !mask != 0
        }
        Some(RESTORE) => false,
        _ => true,
    }
}

/// Notes what a match does with the mark of connections; the only mark that it matches.
pub(super) fn reads_connection_mark(
    name: &[u8],
    info: &[u8],
    marks: &mut ConnectionMarks,
) -> Option<u32> {
    marks.is_read |= name == b"connmark";
    marks.reads_labels |= name == b"connlabel";
    // It can set the label, too.
    marks.writes_labels |= name == b"connlabel";
    let info = Info(info);
    let is_whole = info.word(4) == Some(u32::MAX) && info.byte(8) == Some(0);
    info.word(0).filter(|_| name == b"connmark" && is_whole)
}

/// Notes what a target does with the mark of connections that have a mark.
pub(super) fn writes_connection_mark(
    name: &[u8],
    info: &[u8],
    guard: Option<u32>,
    marks: &mut ConnectionMarks,
) {
    const SET: u8 = 0;
    if name != b"CONNMARK" {
        return;
    }
    // Another mode restores the packet's mark.
    marks.is_read = true;
    let info = Info(info);
    // Both revisions have the mode, or the direction of a shift and no shift, here.
    let is_set = info.byte(12) == Some(SET) && info.byte(13) == Some(0);
    let value = info.word(0).filter(|_| is_set && info.word(4) == Some(u32::MAX));
    marks.written.push(Written { guard, value });
}

/// Whether a match of this name looks at routes.
pub(super) fn looks_at_routes(name: &[u8]) -> bool {
    matches!(name, b"rpfilter" | b"realm")
}
