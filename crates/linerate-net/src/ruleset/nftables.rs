//! Rules of nftables, by their expressions (`include/uapi/linux/netfilter/nf_tables.h`).

use std::collections::HashSet;
use std::io;

use super::{Families, Ruleset};
use crate::netlink::{Protocol, Socket, attribute, attributes, bytes_at};

/// Bytes of `struct nfgenmsg`.
pub(super) const HEADER: usize = 4;

const GET_CHAIN: u16 = (libc::NFNL_SUBSYS_NFTABLES << 8 | libc::NFT_MSG_GETCHAIN) as u16;
const GET_RULE: u16 = (libc::NFNL_SUBSYS_NFTABLES << 8 | libc::NFT_MSG_GETRULE) as u16;

// Attributes.
pub(super) const CHAIN_TABLE: u16 = 1;
pub(super) const CHAIN_NAME: u16 = 3;
pub(super) const CHAIN_HOOK: u16 = 4;
pub(super) const HOOK_NUMBER: u16 = 1;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_OFFSET: u16 = 3;
const PAYLOAD_LENGTH: u16 = 4;
/// Of `match` and `target`, by which iptables-nft uses the extensions of x_tables.
const COMPAT_NAME: u16 = 1;

const FIB_RESULT: u16 = 2;
const RT_KEY: u16 = 2;

/// `NFT_FIB_RESULT_ADDRTYPE` and `NFT_RT_TCPMSS`.
const FIB_TYPE: u32 = 3;
const RT_TCPMSS: u32 = 3;

/// `NFT_PAYLOAD_LL_HEADER`.
const LINK_LAYER: u32 = 0;
/// Where the source MAC address is in an Ethernet header.
const SOURCE_MAC: std::ops::Range<u32> = 6..12;

/// `NF_INET_LOCAL_IN` and `NF_INET_LOCAL_OUT`.
const LOCAL_HOOKS: [u32; 2] = [1, 3];

/// Family, table and chain.
type Chain = (u8, Vec<u8>, Vec<u8>);

pub(super) fn read(ruleset: &mut Ruleset) -> io::Result<()> {
    let mut local = HashSet::new();
    dump_chains(|body| local.extend(local_chain(body)))?;
    dump(GET_RULE, |body| {
        let chain = chain_of(body, RULE_TABLE, RULE_CHAIN);
        if chain.is_some_and(|chain| !local.contains(&chain)) {
            add(ruleset, body);
        }
    })
}

/// Calls `each` with all chains, as the kernel reports them.
pub(super) fn dump_chains(each: impl FnMut(&[u8])) -> io::Result<()> {
    dump(GET_CHAIN, each)
}

fn dump(what: u16, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let socket = Socket::open(Protocol::Netfilter)?;
    match socket.dump(what, &[0; HEADER], |message| each(message.body)) {
        // A kernel without nftables.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
            Ok(())
        }
        other => other.map(drop),
    }
}

fn chain_of(body: &[u8], table: u16, chain: u16) -> Option<Chain> {
    let own = body.get(HEADER..)?;
    Some((*body.first()?, attribute(own, table)?.to_vec(), attribute(own, chain)?.to_vec()))
}

/// A base chain that sees packets from or to this host only.
fn local_chain(body: &[u8]) -> Option<Chain> {
    let hook = attribute(attribute(body.get(HEADER..)?, CHAIN_HOOK)?, HOOK_NUMBER)?;
    let is_ip = families_of(*body.first()?).is_some_and(|(_, is_ip)| is_ip);
    let is_local = is_ip && LOCAL_HOOKS.contains(&big_endian(hook)?);
    is_local.then(|| chain_of(body, CHAIN_TABLE, CHAIN_NAME)).flatten()
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

/// Adds what a rule does and looks at.
fn add(ruleset: &mut Ruleset, body: &[u8]) {
    let Some((families, _)) = body.first().and_then(|family| families_of(*family)) else { return };
    let own = body.get(HEADER..).unwrap_or_default();
    for (_, expression) in attributes(attribute(own, RULE_EXPRESSIONS).unwrap_or_default()) {
        let data = attribute(expression, EXPRESSION_DATA).unwrap_or_default();
        let is_named =
            |name: &[u8]| attribute(data, COMPAT_NAME).is_some_and(|found| text(found) == name);
        match attribute(expression, EXPRESSION_NAME).map(text) {
            Some(b"queue" | b"dup" | b"fwd") => ruleset.queue.add(families),
            Some(b"target") if (is_named(b"NFQUEUE") || is_named(b"TEE")) => {
                ruleset.queue.add(families);
            }
            Some(b"match") if is_named(b"mac") => ruleset.source_mac.add(families),
            Some(b"match") if is_named(b"rpfilter") || is_named(b"realm") => {
                ruleset.route.add(families);
            }
            // The type of an address is that of its route; all else looks for an interface.
            Some(b"fib") if attribute(data, FIB_RESULT).and_then(big_endian) != Some(FIB_TYPE) => {
                ruleset.route.add(families);
            }
            // The maximum segment size counts for SYN packets only, which the kernel gets.
            Some(b"rt") if attribute(data, RT_KEY).and_then(big_endian) != Some(RT_TCPMSS) => {
                ruleset.route.add(families);
            }
            Some(b"payload") if reads_source_mac(data) => ruleset.source_mac.add(families),
            _ => {}
        }
    }
}

fn reads_source_mac(payload: &[u8]) -> bool {
    let field = |kind| attribute(payload, kind).and_then(big_endian);
    let (Some(offset), Some(length)) = (field(PAYLOAD_OFFSET), field(PAYLOAD_LENGTH)) else {
        return false;
    };
    field(PAYLOAD_BASE) == Some(LINK_LAYER)
        && offset < SOURCE_MAC.end
        && offset.saturating_add(length) > SOURCE_MAC.start
}

/// A string without the zero at its end.
fn text(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == 0).next().unwrap_or_default()
}

pub(super) fn big_endian(value: &[u8]) -> Option<u32> {
    bytes_at(value, 0).map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{put_attr, put_nested};

    /// A rule with one expression, as the kernel reports it.
    fn rule(family: i32, name: &[u8], fill: impl FnOnce(&mut Vec<u8>)) -> Ruleset {
        let mut body = vec![family as u8, 0, 0, 0];
        put_nested(&mut body, RULE_EXPRESSIONS, |list| {
            put_nested(list, 1, |expression| {
                put_attr(expression, EXPRESSION_NAME, name);
                put_nested(expression, EXPRESSION_DATA, fill);
            });
        });
        let mut ruleset = Ruleset::default();
        add(&mut ruleset, &body);
        ruleset
    }

    #[test]
    fn queues_and_source_addresses_are_found_and_nothing_else() {
        let found = rule(libc::NFPROTO_INET, b"queue\0", |_| ());
        assert_eq!(found, Ruleset { queue: Families::BOTH, ..Ruleset::default() });
        let found =
            rule(libc::NFPROTO_IPV6, b"target\0", |data| put_attr(data, COMPAT_NAME, b"NFQUEUE\0"));
        assert_eq!(found, Ruleset { queue: Families::IPV6, ..Ruleset::default() });
        let found =
            rule(libc::NFPROTO_IPV4, b"target\0", |data| put_attr(data, COMPAT_NAME, b"LOG\0"));
        assert_eq!(found, Ruleset::default());
        let found =
            rule(libc::NFPROTO_IPV4, b"match\0", |data| put_attr(data, COMPAT_NAME, b"mac\0"));
        assert_eq!(found, Ruleset { source_mac: Families::IPV4, ..Ruleset::default() });
        let payload = |base: u32, offset: u32, length: u32| {
            rule(libc::NFPROTO_BRIDGE, b"payload\0", |data| {
                for (kind, value) in
                    [(PAYLOAD_BASE, base), (PAYLOAD_OFFSET, offset), (PAYLOAD_LENGTH, length)]
                {
                    put_attr(data, kind, &value.to_be_bytes());
                }
            })
        };
        let seen = Ruleset { source_mac: Families::BOTH, ..Ruleset::default() };
        assert_eq!([payload(0, 6, 6), payload(0, 0, 12), payload(0, 11, 1)], [seen; 3]);
        let others = [payload(0, 0, 6), payload(0, 12, 2), payload(1, 6, 6)];
        assert_eq!(others, [Ruleset::default(); 3]);
        assert_eq!(rule(libc::NFPROTO_ARP, b"queue\0", |_| ()), Ruleset::default());
    }

    #[test]
    fn what_looks_at_routes_is_found() {
        let seen = Ruleset { route: Families::IPV6, ..Ruleset::default() };
        let of = |name: &[u8], kind: u16, value: u32| {
            rule(libc::NFPROTO_IPV6, name, |data| put_attr(data, kind, &value.to_be_bytes()))
        };
        // The interface of a look-up, a realm and a next hop; not the type of an address, nor the segment size.
        assert_eq!([of(b"fib\0", FIB_RESULT, 1), of(b"fib\0", FIB_RESULT, 2)], [seen; 2]);
        assert_eq!([of(b"rt\0", RT_KEY, 0), of(b"rt\0", RT_KEY, 2)], [seen; 2]);
        let others = [of(b"fib\0", FIB_RESULT, FIB_TYPE), of(b"rt\0", RT_KEY, RT_TCPMSS)];
        assert_eq!(others, [Ruleset::default(); 2]);
        let found =
            rule(libc::NFPROTO_IPV6, b"match\0", |data| put_attr(data, COMPAT_NAME, b"rpfilter\0"));
        assert_eq!(found, seen);
    }
}
