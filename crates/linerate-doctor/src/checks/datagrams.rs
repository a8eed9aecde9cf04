//! What hides datagrams from sockets: packet filters, routing rules, addresses, limits; and where the kernel counted some.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use linerate_net::Address;
use linerate_net::link::Link;
use linerate_net::netlink::{Protocol, Socket, attribute, attributes, bytes_at};
use linerate_net::ruleset;
use rustix::net::AddressFamily;

use super::Verdict;
use crate::context::Context;
use crate::finding::Job;
use crate::host::{number, read};
use crate::setting::{Change, quoted};

/// Counters of the kernel (nstat(8)), and why it did not deliver what they count.
const LOSSES: &[(&str, &str, &str)] = &[
    ("Udp", "RcvbufErrors", "the buffer of their socket was full"),
    ("Udp6", "RcvbufErrors", "the buffer of their socket was full (IPv6)"),
    ("Udp", "InCsumErrors", "their checksum was wrong"),
    ("Udp6", "InCsumErrors", "their checksum was wrong (IPv6)"),
    ("TcpExt", "IPReversePathFilter", "the reverse path filter refused their source"),
    ("Ip", "ReasmFails", "fragments of them were missing"),
];

pub(super) fn losses(_: &Context<'_>) -> Vec<Verdict> {
    let folder = "/proc/thread-self/net/";
    let texts = ["snmp", "netstat", "snmp6"].map(|name| read(format!("{folder}{name}")));
    losses_of(&texts.map(Option::unwrap_or_default).join("\n"))
}

/// `text`: lines of names above lines of numbers, as in /proc/net/snmp, and a name and a number each, as in snmp6.
fn losses_of(text: &str) -> Vec<Verdict> {
    let mut counters = BTreeMap::new();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    for pair in lines.windows(2) {
        if pair[0].first() == pair[1].first() {
            let group = pair[0].first().map_or("", |name| name.trim_end_matches(':'));
            let names = pair[0].iter().skip(1).map(|name| format!("{group}{name}"));
            counters.extend(names.zip(pair[1].iter().skip(1).copied()));
        }
    }
    let single = lines.iter().filter(|line| line.len() == 2);
    counters.extend(single.map(|line| (line[0].to_owned(), line[1])));
    let lost = LOSSES.iter().filter_map(|(group, name, why)| {
        let name = format!("{group}{name}");
        let count: u64 = counters.get(&name)?.parse().ok().filter(|count| *count > 0)?;
        let what = format!("datagrams lost since the start, as {why}: {count}");
        Some(Verdict::note(what).by_hand(&format!("nstat -az {name}")))
    });
    let verdicts: Vec<_> = lost.collect();
    match counters.is_empty() {
        true => Verdict::unknown("/proc/net does not show it").alone(),
        false if verdicts.is_empty() => Verdict::ok("the kernel has lost none").alone(),
        false => verdicts,
    }
}

/// Keys of sysctl, the least value that serves, the kernel's own one, and what a smaller one does.
const LIMITS: &[(&str, u64, u64, &str)] = &[
    (
        "net/ipv4/ipfrag_high_thresh",
        64 << 10,
        4 << 20,
        "fragments are dropped: long datagrams are lost",
    ),
    (
        "net/ipv6/ip6frag_high_thresh",
        64 << 10,
        4 << 20,
        "fragments are dropped: long datagrams are lost",
    ),
    ("net/ipv4/ipfrag_time", 1, 30, "fragments are dropped: long datagrams are lost"),
    ("net/ipv4/igmp_max_memberships", 20, 20, "a socket can join no more groups"),
    ("net/core/optmem_max", 4096, 128 << 10, "a socket can have few groups and filters"),
];

pub(super) fn limits(_: &Context<'_>) -> Vec<Verdict> {
    let small = LIMITS.iter().filter_map(|(key, least, usual, cost)| {
        let value = number(format!("/proc/sys/{key}")).filter(|value| value < least)?;
        let what = format!("{} is {value}: {cost}", key.replace('/', "."));
        Some(Verdict::warning(what).change(Change::sysctl(key, usual)))
    });
    let verdicts: Vec<_> = small.collect();
    if verdicts.is_empty() {
        Verdict::ok("fragments and groups have room").alone()
    } else {
        verdicts
    }
}

/// `RTM_GETRULE` of `linux/rtnetlink.h`.
const GET_RULE: u16 = 34;
// Of `linux/fib_rules.h`: the size of the header, its action that names a table, the first one that refuses.
const HEADER: usize = 12;
const TO_TABLE: u8 = 1;
const BLACKHOLE: u8 = 6;
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_PAD: u16 = 18;
const FRA_L3MDEV: u16 = 19;
const FRA_PROTOCOL: u16 = 21;
/// The table of this host's addresses.
const LOCAL: u8 = 255;

pub(super) fn routing_rules(_: &Context<'_>) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    // Families whose local table was seen: rules come in the order of their priorities.
    let mut is_local = Vec::new();
    let socket = match Socket::open(Protocol::Route) {
        Ok(socket) => socket,
        Err(error) => return Verdict::unknown(error.to_string()).alone(),
    };
    let dumped = socket.dump(GET_RULE, &[0; HEADER], |message| {
        let Some((head, own)) = message.body.split_at_checked(HEADER) else { return };
        let [family, _, _, tos, table, _, _, action, ..] = *head else { return };
        let version = match AddressFamily::from_raw(family.into()) {
            AddressFamily::INET => "IPv4",
            AddressFamily::INET6 => "IPv6",
            _ => return,
        };
        let priority = attribute(own, FRA_PRIORITY).and_then(|value| bytes_at(value, 0));
        let rule = format!("rule {} of {version}", priority.map_or(0, u32::from_ne_bytes));
        let has = |kind| attribute(own, kind).is_some();
        let is_plain = |(kind, value): (u16, &[u8])| match kind {
            FRA_DST | FRA_SRC | FRA_PRIORITY | FRA_TABLE | FRA_PAD | FRA_PROTOCOL => true,
            FRA_SUPPRESS_IFGROUP | FRA_SUPPRESS_PREFIXLEN => value == [0xff; 4],
            _ => false,
        };
        let by_addresses = tos == 0 && attributes(own).all(is_plain);
        if action == TO_TABLE && table == LOCAL && by_addresses && !has(FRA_DST) && !has(FRA_SRC) {
            is_local.push(family);
        } else if !is_local.contains(&family) && !has(FRA_L3MDEV) {
            let what = format!("{rule} is asked before the table of this host's addresses");
            verdicts.push(Verdict::warning(what).of(&[Job::Receive]));
        }
        if action >= BLACKHOLE {
            verdicts.push(Verdict::note(format!("{rule} refuses packets")));
        } else if !by_addresses {
            let what = "selects by more than addresses: a change of any route ends all sessions";
            verdicts.push(Verdict::note(format!("{rule} {what}")).of(&[Job::Forward]));
        }
    });
    if let Err(error) = dumped {
        verdicts.push(Verdict::unknown(format!("cannot list the routing rules: {error}")));
    }
    if verdicts.is_empty() {
        return Verdict::ok("routing rules select by addresses").alone();
    }
    verdicts.into_iter().map(|one| one.by_hand("ip rule; ip -6 rule")).collect()
}

pub(super) fn filters(_: &Context<'_>, link: &Link) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (v6, version) in [(false, "IPv4"), (true, "IPv6")] {
        verdicts.extend(match ruleset::local_filter(&link.name, v6) {
            Ok(None) => None,
            Ok(Some(chain)) => Some(
                Verdict::note(format!("{chain} may drop {version} to this host"))
                    .by_hand("nft list ruleset; iptables-save: accept the ports of your messages"),
            ),
            Err(error) => Some(Verdict::unknown(format!("the packet filter: {error}"))),
        });
    }
    match verdicts.is_empty() {
        true => Verdict::ok("no packet filter for packets to this host").alone(),
        false => verdicts,
    }
}

/// `IFF_NOARP` and `IFF_MULTICAST` of `linux/if.h`, and the least MTU of IPv6 (RFC 8200, section 5).
const NOARP: u32 = 0x80;
const MULTICAST: u32 = 0x1000;
const IPV6_MTU: u32 = 1280;

pub(super) fn addresses(context: &Context<'_>, link: &Link) -> Vec<Verdict> {
    let name = quoted(&link.name);
    let mut verdicts = Vec::new();
    if link.flags & NOARP != 0 {
        let what = "address resolution is off: no other host finds it, and it finds none";
        verdicts.push(Verdict::warning(what).by_hand(&format!("ip link set dev {name} arp on")));
    }
    if link.flags & MULTICAST == 0 {
        let what = "multicast is off: no group can be joined";
        let command = format!("ip link set dev {name} multicast on");
        verdicts.push(Verdict::note(what).by_hand(&command).of(&[Job::Receive]));
    }
    if link.mtu < IPV6_MTU {
        let what = format!("its MTU is {}, and IPv6 takes {IPV6_MTU}: it has no IPv6", link.mtu);
        verdicts.push(Verdict::note(what).by_hand(&format!("ip link set dev {name} mtu 1500")));
    } else if !link.ipv6 {
        verdicts.push(Verdict::note("IPv6 is off").by_hand(
            &Change::sysctl(&format!("net/ipv6/conf/{}/disable_ipv6", link.name), 0).command(),
        ));
    }
    match context.host.connection.addresses() {
        Ok(all) => verdicts.extend(addresses_of(&all, context, link)),
        Err(error) => verdicts.push(Verdict::unknown(error.to_string())),
    }
    if verdicts.is_empty() {
        verdicts.push(Verdict::ok("its addresses are its own"));
    }
    verdicts
}

fn addresses_of(all: &[Address], context: &Context<'_>, link: &Link) -> Vec<Verdict> {
    let links = &context.host.links;
    let named = |index| links.iter().find(|one| one.index == index).map_or("?", |one| &one.name);
    let refused = read("/proc/thread-self/net/if_inet6").unwrap_or_default();
    let mut verdicts = Vec::new();
    for own in all.iter().filter(|one| one.index == link.index && !is_link_local(one.address)) {
        let other = all.iter().find(|one| one.address == own.address && one.index != own.index);
        if let Some(other) = other {
            let what = format!("{} is also an address of {}", own.address, named(other.index));
            // Unnumbered interfaces share one so.
            let is_single = own.prefix_len == if own.address.is_ipv4() { 32 } else { 128 };
            let verdict = if is_single { Verdict::note(what) } else { Verdict::warning(what) };
            verdicts.push(verdict.by_hand(&format!("ip address show to {}", own.address)));
        }
        if let Some(master) = link.master {
            let what = format!("{} is an address of a port of {}", own.address, named(master));
            let verdict = Verdict::warning(format!("{what}, which receives in its place"));
            verdicts.push(verdict.by_hand(&format!("give the address to {}", named(master))));
        }
        if let IpAddr::V6(address) = own.address
            && has_failed(&refused, address, link.index)
        {
            let what = format!("another host has {address}: this one does not use it (DAD)");
            let command = format!("ip -6 address show dev {} dadfailed", quoted(&link.name));
            verdicts.push(Verdict::warning(what).by_hand(&command));
        }
    }
    verdicts
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// `IFA_F_DADFAILED`.
const DAD_FAILED: u32 = 8;

/// Whether duplicate address detection has refused the address. `text`: /proc/net/if_inet6, hexadecimal: the address, its
/// interface, prefix length, scope and flags (`if6_seq_show`).
fn has_failed(text: &str, address: Ipv6Addr, index: u32) -> bool {
    let hex = format!("{:032x}", address.to_bits());
    let number = |word: Option<&&str>| u32::from_str_radix(word?, 16).ok();
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|words| {
        words.first() == Some(&hex.as_str())
            && number(words.get(1)) == Some(index)
            && number(words.get(4)).is_some_and(|flags| flags & DAD_FAILED != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_those_of_the_counters() {
        let text = "Udp: InDatagrams NoPorts InErrors RcvbufErrors InCsumErrors\nUdp: 9 1 5 5 0\nUdp6InCsumErrors 3\n";
        let found: Vec<_> = losses_of(text).into_iter().map(|one| one.what).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].ends_with("was full: 5") && found[1].ends_with("(IPv6): 3"), "{found:?}");
        assert_eq!(losses_of("").len(), 1);
    }

    #[test]
    fn refused_addresses_are_seen() {
        let text = "fe800000000000000000000000000001 02 40 20 88    eth0\n";
        assert!(has_failed(text, "fe80::1".parse().unwrap(), 2));
        assert!(!has_failed(text, "fe80::1".parse().unwrap(), 3));
        assert!(!has_failed(&text.replace("88", "80"), "fe80::1".parse().unwrap(), 2));
    }
}
