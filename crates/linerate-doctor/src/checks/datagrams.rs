//! What hides datagrams from sockets: packet filters, routing rules, addresses, limits; and where the kernel counted some.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use linerate_net::Address;
use linerate_net::link::Link;
use linerate_net::ruleset;
use rustix::net::AddressFamily;

use super::Answer;
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

pub(super) fn losses(_: &Context<'_>) -> Vec<Answer> {
    let folder = "/proc/thread-self/net/";
    let texts = ["snmp", "netstat", "snmp6"].map(|name| read(format!("{folder}{name}")));
    losses_of(&texts.map(Option::unwrap_or_default).join("\n"))
}

/// `text`: lines of names above lines of numbers, as in /proc/net/snmp, and a name and a number each, as in snmp6.
fn losses_of(text: &str) -> Vec<Answer> {
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
        Some(Answer::note(what).by_hand(&format!("nstat -az {name}")))
    });
    let answers: Vec<_> = lost.collect();
    match counters.is_empty() {
        true => Answer::unknown("/proc/net does not show it").alone(),
        false if answers.is_empty() => Answer::ok("the kernel has lost none").alone(),
        false => answers,
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

pub(super) fn limits(_: &Context<'_>) -> Vec<Answer> {
    let small = LIMITS.iter().filter_map(|(key, least, usual, cost)| {
        let value = number(format!("/proc/sys/{key}")).filter(|value| value < least)?;
        let what = format!("{} is {value}: {cost}", key.replace('/', "."));
        Some(Answer::warning(what).change(Change::sysctl(key, usual)))
    });
    let answers: Vec<_> = small.collect();
    if answers.is_empty() { Answer::ok("fragments and groups have room").alone() } else { answers }
}

/// The table of this host's addresses (`RT_TABLE_LOCAL`).
const LOCAL: Option<u8> = Some(255);

pub(super) fn routing_rules(context: &Context<'_>) -> Vec<Answer> {
    let rules = match context.host.connection.routing_rules() {
        Ok(rules) => rules,
        Err(error) => return Answer::unknown(error.to_string()).alone(),
    };
    let mut answers = Vec::new();
    // Families whose local table was seen.
    let mut is_local = Vec::new();
    for rule in rules {
        let version = match rule.family {
            AddressFamily::INET => "IPv4",
            AddressFamily::INET6 => "IPv6",
            _ => continue,
        };
        let name = format!("rule {} of {version}", rule.priority);
        if rule.table == LOCAL && rule.selects_by_addresses && !rule.has_addresses {
            is_local.push(rule.family);
        } else if !is_local.contains(&rule.family) && !rule.is_l3mdev {
            let what = format!("{name} is asked before the table of this host's addresses");
            answers.push(Answer::warning(what).of(&[Job::Receive]));
        }
        if rule.refuses {
            answers.push(Answer::note(format!("{name} refuses packets")));
        } else if !rule.selects_by_addresses {
            let what = "selects by more than addresses: a change of any route ends all sessions";
            answers.push(Answer::note(format!("{name} {what}")).of(&[Job::Forward]));
        }
    }
    if answers.is_empty() {
        return Answer::ok("routing rules select by addresses").alone();
    }
    answers.into_iter().map(|one| one.by_hand("ip rule; ip -6 rule")).collect()
}

pub(super) fn filters(_: &Context<'_>, link: &Link) -> Vec<Answer> {
    let mut answers = Vec::new();
    for (v6, version) in [(false, "IPv4"), (true, "IPv6")] {
        answers.extend(match ruleset::local_filter(&link.name, v6) {
            Ok(None) => None,
            Ok(Some(chain)) => Some(
                Answer::note(format!("{chain} may drop {version} to this host"))
                    .by_hand("nft list ruleset; iptables-save: accept the ports of your messages"),
            ),
            Err(error) => Some(Answer::unknown(format!("the packet filter: {error}"))),
        });
    }
    match answers.is_empty() {
        true => Answer::ok("no packet filter for packets to this host").alone(),
        false => answers,
    }
}

/// `IFF_NOARP` and `IFF_MULTICAST` of `linux/if.h`, and the least MTU of IPv6 (RFC 8200, section 5).
const NOARP: u32 = 0x80;
const MULTICAST: u32 = 0x1000;
const IPV6_MTU: u32 = 1280;

pub(super) fn addresses(context: &Context<'_>, link: &Link) -> Vec<Answer> {
    let name = quoted(&link.name);
    let mut answers = Vec::new();
    if link.flags & NOARP != 0 {
        let what = "address resolution is off: no other host finds it, and it finds none";
        answers.push(Answer::warning(what).by_hand(&format!("ip link set dev {name} arp on")));
    }
    if link.flags & MULTICAST == 0 {
        let what = "multicast is off: no group can be joined";
        let command = format!("ip link set dev {name} multicast on");
        answers.push(Answer::note(what).by_hand(&command).of(&[Job::Receive]));
    }
    if link.mtu < IPV6_MTU {
        let what = format!("its MTU is {}, and IPv6 takes {IPV6_MTU}: it has no IPv6", link.mtu);
        answers.push(Answer::note(what).by_hand(&format!("ip link set dev {name} mtu 1500")));
    } else if !link.ipv6 {
        answers.push(Answer::note("IPv6 is off").by_hand(
            &Change::sysctl(&format!("net/ipv6/conf/{}/disable_ipv6", link.name), 0).command(),
        ));
    }
    match context.host.connection.addresses() {
        Ok(all) => answers.extend(addresses_of(&all, context, link)),
        Err(error) => answers.push(Answer::unknown(error.to_string())),
    }
    if answers.is_empty() {
        answers.push(Answer::ok("its addresses are its own"));
    }
    answers
}

fn addresses_of(all: &[Address], context: &Context<'_>, link: &Link) -> Vec<Answer> {
    let links = &context.host.links;
    let named = |index| links.iter().find(|one| one.index == index).map_or("?", |one| &one.name);
    let refused = read("/proc/thread-self/net/if_inet6").unwrap_or_default();
    let mut answers = Vec::new();
    for own in all.iter().filter(|one| one.index == link.index && !is_link_local(one.address)) {
        let other = all.iter().find(|one| one.address == own.address && one.index != own.index);
        if let Some(other) = other {
            let what = format!("{} is also an address of {}", own.address, named(other.index));
            // Unnumbered interfaces share one so.
            let is_single = own.prefix_len == if own.address.is_ipv4() { 32 } else { 128 };
            let answer = if is_single { Answer::note(what) } else { Answer::warning(what) };
            answers.push(answer.by_hand(&format!("ip address show to {}", own.address)));
        }
        if let Some(master) = link.master {
            let what = format!("{} is an address of a port of {}", own.address, named(master));
            let answer = Answer::warning(format!("{what}, which receives in its place"));
            answers.push(answer.by_hand(&format!("give the address to {}", named(master))));
        }
        if let IpAddr::V6(address) = own.address
            && has_failed(&refused, address, link.index)
        {
            let what = format!("another host has {address}: this one does not use it (DAD)");
            let command = format!("ip -6 address show dev {} dadfailed", quoted(&link.name));
            answers.push(Answer::warning(what).by_hand(&command));
        }
    }
    answers
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
