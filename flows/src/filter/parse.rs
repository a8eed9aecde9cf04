//! From words to a [`Filter`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, anyhow, bail};

use super::values::{amount, flags, number, port, ports, reason};
use super::{Direction, Filter, Leaf, Quantity, What};

/// Words of pcap-filter(7) that ask for what no flow record has.
const NOT_IN_RECORDS: &[&str] = &[
    "ether",
    "arp",
    "rarp",
    "broadcast",
    "multicast",
    "less",
    "greater",
    "len",
    "gateway",
    "inbound",
    "outbound",
    "mpls",
    "pppoed",
    "pppoes",
    "geneve",
    "wlan",
    "type",
    "subtype",
    "dir",
    "link",
    "ifname",
    "on",
    "rnr",
    "rulenum",
    "reason",
    "rset",
    "ruleset",
    "srnr",
    "subrulenum",
    "action",
    "iso",
    "stp",
    "ipx",
    "netbeui",
    "decnet",
    "llc",
    "fddi",
    "tr",
    "lat",
    "aarp",
    "atalk",
    "moprc",
    "mopdl",
    "protochain",
    "ifindex",
];

/// Protocols that are a word of their own: the word, the version of IP, the number.
const PROTOCOLS: &[(&str, Option<u8>, Option<u8>)] = &[
    ("ip", Some(4), None),
    ("ip6", Some(6), None),
    ("tcp", None, Some(6)),
    ("udp", None, Some(17)),
    ("sctp", None, Some(132)),
    ("icmp", Some(4), Some(1)),
    ("icmp6", Some(6), Some(58)),
    ("igmp", Some(4), Some(2)),
    ("igrp", Some(4), Some(9)),
    ("pim", None, Some(103)),
    ("vrrp", Some(4), Some(112)),
    ("carp", Some(4), Some(112)),
    ("ah", None, Some(51)),
    ("esp", None, Some(50)),
];

/// Words of flows, which pcap-filter(7) does not have: nfdump's, and their quantities.
const QUANTITIES: &[(&str, Quantity)] = &[
    ("octets", Quantity::Octets),
    ("packets", Quantity::Packets),
    ("duration", Quantity::Duration),
    ("bps", Quantity::BitRate),
    ("pps", Quantity::PacketRate),
];

/// Comparisons.
const OPERATORS: &[&str] = &["<", "<=", ">", ">=", "=", "!="];

/// The qualifiers that a value without its own takes over.
#[derive(Clone, Copy, Default)]
struct Qualifiers {
    version: Option<u8>,
    protocol: Option<u8>,
    direction: Direction,
    kind: Option<Kind>,
}

impl Qualifiers {
    fn is_host(self) -> bool {
        matches!(self.kind, None | Some(Kind::Host)) && self.protocol.is_none()
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
}

/// Headers behind which libpcap looks for the words that follow. Records may have the addresses before them.
const SHIFTING: &[&str] = &["mpls", "pppoes", "geneve", "vxlan"];

/// Reads a filter; `None` if there are no words.
///
/// # Errors
/// What is no filter, or asks for what flow records do not have.
pub(crate) fn parse(text: &str) -> Result<Option<Filter>> {
    read(&words(text, false)?, false)
}

/// Reads a filter of libpcap for a search: what flow records do not have becomes [`Filter::Unknown`].
///
/// # Errors
/// What is no filter of libpcap.
pub(crate) fn parse_for_search(text: &str) -> Result<Option<Filter>> {
    let words = words(text, true)?;
    if words.iter().any(|word| SHIFTING.contains(&word.as_str())) {
        return Ok(Some(Filter::Unknown));
    }
    read(&words, true)
}

fn read(words: &[String], is_search: bool) -> Result<Option<Filter>> {
    if words.is_empty() {
        return Ok(None);
    }
    let mut parser =
        Parser { words, is_search, at: 0, last: None, is_after_unknown: false, vlans: 0 };
    let filter = parser.expression()?;
    match parser.peek() {
        None => Ok(Some(filter)),
        Some(word) => bail!("the filter does not end where it should, at {word:?}"),
    }
}

fn words(text: &str, is_search: bool) -> Result<Vec<String>> {
    if let Some(at) = text.find('[').filter(|_| !is_search) {
        // An IPv6 address has no brackets in a filter.
        let before = text[..at].rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        bail!("{before}[...] asks for bytes of packets, which flow records do not have");
    }
    let mut spaced = String::new();
    for (at, c) in text.char_indices() {
        match c {
            '(' | ')' => spaced.extend([' ', c, ' ']),
            '!' if !text[at + 1..].starts_with('=') => spaced.push_str(" not "),
            // Behind `<`, `>`, `!` or `=`, it is a part of the operator.
            '=' | '<' | '>' | '!' if !is_search => {
                let is_first = !text[..at].ends_with(['=', '<', '>', '!']);
                let is_last = !text[at + 1..].starts_with('=');
                spaced.extend([if is_first { " " } else { "" }, &c.to_string()]);
                spaced.push_str(if is_last { " " } else { "" });
            }
            '+' | '*' if !is_search => {
                bail!("{c:?} compares values of packets, which flow records do not have")
            }
            _ => spaced.push(c),
        }
    }
    let spaced = spaced.replace("&&", " and ").replace("||", " or ");
    Ok(spaced.split_whitespace().map(str::to_owned).collect())
}

struct Parser<'a> {
    words: &'a [String],
    /// What records do not have is allowed.
    is_search: bool,
    at: usize,
    /// The qualifiers of the value before; `None` after a word without a value, and at the beginning.
    last: Option<Qualifiers>,
    /// The primitive before was not known, so a value without qualifiers is not, either.
    is_after_unknown: bool,
    vlans: u32,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&str> {
        self.words.get(self.at).map(String::as_str)
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.at += usize::from(found);
        found
    }

    fn next(&mut self) -> Result<String> {
        let word = self.words.get(self.at).cloned();
        self.at += 1;
        word.ok_or_else(|| self.incomplete())
    }

    fn incomplete(&self) -> anyhow::Error {
        match self.words.last() {
            Some(last) => anyhow!("the filter is incomplete: something must follow `{last}`"),
            None => anyhow!("the filter is incomplete"),
        }
    }

    fn expression(&mut self) -> Result<Filter> {
        let mut left = self.term()?;
        loop {
            if self.take("and") {
                left = Filter::And(Box::new(left), Box::new(self.term()?));
            } else if self.take("or") {
                left = Filter::Or(Box::new(left), Box::new(self.term()?));
            } else {
                return Ok(left);
            }
        }
    }

    fn term(&mut self) -> Result<Filter> {
        let start = self.at;
        if self.take("not") {
            return Ok(Filter::Not(Box::new(self.term()?)));
        }
        let before = (self.last, self.is_after_unknown);
        if self.take("(") {
            let inner = self.expression()?;
            if !self.take(")") {
                bail!("a parenthesis is not closed");
            }
            // A value after it takes over what is before it, as with libpcap.
            (self.last, self.is_after_unknown) = before;
            // Arithmetic may begin with a parenthesis.
            if !self.is_search || self.is_at_end() {
                return Ok(inner);
            }
            return self.unknown(start);
        }
        if !self.is_search {
            return self.primitive();
        }
        match self.primitive() {
            Ok(known) if self.is_at_end() => {
                self.is_after_unknown = false;
                Ok(known)
            }
            _ => self.unknown(start),
        }
    }

    /// Whether a primitive can end here.
    fn is_at_end(&self) -> bool {
        matches!(self.peek(), None | Some("and" | "or" | ")"))
    }

    /// A primitive that records cannot answer, which begins here. It has the words up to the next operator.
    fn unknown(&mut self, start: usize) -> Result<Filter> {
        let (mut depth, mut end) = (0, start);
        while let Some(word) = self.words.get(end).map(String::as_str) {
            match word {
                "and" | "or" | ")" if depth == 0 => break,
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            end += 1;
        }
        if end == start || depth > 0 {
            return Err(self.incomplete());
        }
        (self.at, self.last, self.is_after_unknown) = (end, None, true);
        Ok(Filter::Unknown)
    }

    fn primitive(&mut self) -> Result<Filter> {
        let start = self.at;
        let mut own = Qualifiers::default();
        if self.take("vlan") {
            self.last = None;
            return self.vlan().map(Filter::Leaf);
        }
        if let Some(leaf) = self.of_flow()? {
            self.last = None;
            return Ok(Filter::Leaf(leaf));
        }
        let first = self.peek().unwrap_or_default().to_owned();
        refuse(&first)?;
        let protocol = PROTOCOLS.iter().find(|(name, ..)| *name == first);
        if let Some((_, version, number)) = protocol {
            (own.version, own.protocol) = (*version, *number);
            self.at += 1;
        }
        let directed = self.direction()?;
        own.direction = directed.unwrap_or_default();
        own.kind = match self.peek() {
            Some("host") => Some(Kind::Host),
            Some("net") => Some(Kind::Net),
            Some("port") => Some(Kind::Port),
            Some("portrange") => Some(Kind::PortRange),
            Some("proto") => Some(Kind::Protocol),
            _ => None,
        };
        self.at += usize::from(own.kind.is_some());
        let alone = matches!(self.peek(), None | Some("and" | "or" | ")"));
        if protocol.is_some() && directed.is_none() && own.kind.is_none() && alone {
            self.last = None;
            return Ok(Filter::Leaf(leaf(own, What::Any)));
        }
        let has_qualifiers = self.at > start || self.last.is_some();
        if self.at == start {
            if self.is_after_unknown {
                bail!("what this value is of is not known");
            }
            own = self.last.unwrap_or_default();
        } else if self.peek() == Some("(") {
            if directed.is_none() && own.kind.is_none() {
                bail!(
                    "`{first}` does not go with a parenthesis: use `and`, or a word such as `port` before it"
                );
            }
            self.last = Some(own);
            return self.values(own);
        }
        let value = self.next()?;
        refuse(&value)?;
        self.last = Some(own);
        // After a host, a number is one, too: as libpcap reads it, 53 is 0.0.0.53.
        let number = number(&value).filter(|_| has_qualifiers && own.is_host());
        let value = number.map_or(value, |number| Ipv4Addr::from(number).to_string());
        self.value(own, &value).map(Filter::Leaf)
    }

    /// `flags S`, `reason idle`, `octets > 1M`, with a direction before it; `None` if this is another primitive.
    fn of_flow(&mut self) -> Result<Option<Leaf>> {
        let start = self.at;
        let direction = self.direction()?;
        let word = self.peek().unwrap_or_default().to_owned();
        self.at += 1;
        let quantity = QUANTITIES.iter().find(|(name, _)| *name == word);
        let what = match (word.as_str(), quantity) {
            ("flags", _) => What::Flags(flags(&self.next()?)?),
            ("reason", _) if direction.is_none() => What::Reason(reason(&self.next()?)?),
            (_, Some((name, quantity))) => {
                let found = self.next()?;
                let operator = OPERATORS.iter().find(|one| **one == found);
                let operator = operator
                    .with_context(|| format!("after `{name}` follows <, >, = and a value"))?;
                What::Amount(*quantity, operator, amount(*quantity, &self.next()?)?)
            }
            _ => {
                self.at = start;
                return Ok(None);
            }
        };
        if direction.is_some() && matches!(what, What::Amount(Quantity::Duration, ..)) {
            bail!("a duration is that of both directions");
        }
        let direction = direction.unwrap_or_default();
        Ok(Some(leaf(Qualifiers { direction, ..Qualifiers::default() }, what)))
    }

    /// `(53 or 80)` after qualifiers: each value has them all.
    fn values(&mut self, own: Qualifiers) -> Result<Filter> {
        if self.take("not") {
            return Ok(Filter::Not(Box::new(self.values(own)?)));
        }
        if !self.take("(") {
            let value = self.next()?;
            refuse(&value)?;
            return self.value(own, &value).map(Filter::Leaf);
        }
        let mut left = self.values(own)?;
        while !self.take(")") {
            let is_and = self.take("and");
            if !is_and && !self.take("or") {
                match self.peek() {
                    None => bail!("a parenthesis is not closed"),
                    Some(word) => bail!("{word:?} stands where `and`, `or` or `)` should follow"),
                }
            }
            let (one, other) = (Box::new(left), Box::new(self.values(own)?));
            left = if is_and { Filter::And(one, other) } else { Filter::Or(one, other) };
        }
        Ok(left)
    }

    fn direction(&mut self) -> Result<Option<Direction>> {
        let direction = match self.peek() {
            Some("src") => Direction::Source,
            Some("dst") => Direction::Destination,
            _ => return Ok(None),
        };
        self.at += 1;
        let other = if direction == Direction::Source { "dst" } else { "src" };
        for (word, both) in [("or", Direction::Either), ("and", Direction::Both)] {
            if self.peek() == Some(word)
                && self.words.get(self.at + 1).is_some_and(|next| next == other)
            {
                self.at += 2;
                return Ok(Some(both));
            }
        }
        Ok(Some(direction))
    }

    fn vlan(&mut self) -> Result<Leaf> {
        self.vlans += 1;
        if self.vlans > 1 {
            bail!(
                "a second `vlan` asks for an inner tag, which a filter of flow records cannot: use SQL (dot1qCustomerVlanId)"
            );
        }
        let id = match self.peek().and_then(number) {
            Some(id) if id < 4096 => Some(id as u16),
            Some(id) => bail!("a VLAN has a number up to 4095, not {id}"),
            None => None,
        };
        self.at += usize::from(id.is_some());
        Ok(leaf(Qualifiers::default(), What::Vlan(id)))
    }

    fn value(&mut self, own: Qualifiers, value: &str) -> Result<Leaf> {
        Ok(match own.kind {
            Some(Kind::Port | Kind::PortRange) => {
                if !matches!(own.protocol, None | Some(6 | 17 | 132)) || own.version.is_some() {
                    bail!("ports are those of tcp, udp and sctp");
                }
                let (first, last) = match own.kind {
                    Some(Kind::PortRange) => ports(value, own.protocol)?,
                    _ => (port(value, own.protocol)?, port(value, own.protocol)?),
                };
                leaf(own, What::Ports(first.min(last), first.max(last)))
            }
            Some(Kind::Protocol) => {
                let name = value.trim_start_matches('\\');
                let known =
                    PROTOCOLS.iter().find(|(known, _, number)| *known == name && number.is_some());
                let (version, number) = match known {
                    Some((_, version, number)) => (*version, *number),
                    None => (
                        None,
                        Some(
                            number(name)
                                .and_then(|number| number.try_into().ok())
                                .with_context(|| format!("{name:?} is not a protocol of IP"))?,
                        ),
                    ),
                };
                leaf(
                    Qualifiers {
                        protocol: number,
                        version: own.version.or(version),
                        ..Qualifiers::default()
                    },
                    What::Any,
                )
            }
            None if !is_known(value) && !value.contains('/') && host(value).is_err() => {
                bail!(
                    "`{value}` is not a known word of a filter, nor an address; flow records have no names of hosts"
                )
            }
            _ if own.protocol.is_some() => {
                bail!("tcp, udp and the like do not go with a host or net: use `and`")
            }
            _ => {
                let (first, last) = match own.kind {
                    Some(Kind::Net) => self.net(value)?,
                    _ if value.contains('/') => bail!("{value}: a prefix goes with `net`"),
                    _ => host(value)?,
                };
                let version = if first.is_ipv4() { 4 } else { 6 };
                if own.version.is_some_and(|wanted| wanted != version) {
                    bail!("{value} is not an address of that version of IP");
                }
                leaf(own, What::Net(first, last))
            }
        })
    }

    /// `10.0.0.0/8`, `10.0.0.0 mask 255.0.0.0`, `10`, `192.168`.
    fn net(&mut self, value: &str) -> Result<(IpAddr, IpAddr)> {
        let bad = || anyhow!("{value:?} is not a network");
        let (address, length) = value.split_once('/').map_or((value, None), |(a, l)| (a, Some(l)));
        if let Ok(address) = address.parse::<Ipv6Addr>() {
            let length: u32 = length.unwrap_or("128").parse().map_err(|_| bad())?;
            let hosts = u128::MAX.checked_shr(length).unwrap_or(0);
            if length > 128 || u128::from(address) & hosts != 0 {
                bail!("{value} has host bits set");
            }
            return Ok((address.into(), Ipv6Addr::from(u128::from(address) | hosts).into()));
        }
        if let Some(number) = number(address)
            && length.is_none()
            && self.peek() != Some("mask")
        {
            // As libpcap reads it, 10 is 10.0.0.0/8, and 2561 is 10.1.0.0/16.
            let shift = number.leading_zeros() / 8 * 8 % 32;
            let (first, hosts) = (number << shift, (1 << shift) - 1);
            return Ok((Ipv4Addr::from(first).into(), Ipv4Addr::from(first | hosts).into()));
        }
        let parts: Vec<u8> =
            address.split('.').map(str::parse).collect::<Result<_, _>>().map_err(|_| bad())?;
        if parts.len() > 4 {
            return Err(bad());
        }
        let mut octets = [0; 4];
        octets[..parts.len()].copy_from_slice(&parts);
        let address = u32::from(Ipv4Addr::from(octets));
        let hosts = if self.take("mask") {
            !u32::from(self.next()?.parse::<Ipv4Addr>().map_err(|_| bad())?)
        } else {
            let length =
                length.map_or(Ok(8 * parts.len() as u32), str::parse).map_err(|_| bad())?;
            if length > 32 {
                return Err(bad());
            }
            u32::MAX.checked_shr(length).unwrap_or(0)
        };
        if hosts & hosts.wrapping_add(1) != 0 {
            bail!("{value}: non-contiguous netmask");
        }
        if address & hosts != 0 {
            bail!("{value} has host bits set");
        }
        Ok((Ipv4Addr::from(address).into(), Ipv4Addr::from(address | hosts).into()))
    }
}

fn leaf(own: Qualifiers, what: What) -> Leaf {
    let Qualifiers { version, protocol, direction, .. } = own;
    Leaf { version, protocol, direction, what }
}

fn refuse(word: &str) -> Result<()> {
    if NOT_IN_RECORDS.contains(&word) {
        bail!("`{word}` asks for what flow records do not have");
    }
    Ok(())
}

fn host(value: &str) -> Result<(IpAddr, IpAddr)> {
    let address = value
        .parse::<IpAddr>()
        .map_err(|_| anyhow!("{value:?} is not an address; flow records have no names"))?;
    Ok((address, address))
}

/// Whether a word has a meaning in a filter.
fn is_known(word: &str) -> bool {
    const WORDS: &[&str] = &[
        "host",
        "net",
        "mask",
        "port",
        "portrange",
        "proto",
        "src",
        "dst",
        "vlan",
        "and",
        "or",
        "not",
        "(",
        ")",
    ];
    WORDS.contains(&word) || PROTOCOLS.iter().any(|(name, ..)| *name == word)
}
