//! [`RoutingRule`]: which routing table a packet is looked up in (`ip rule`).

use rustix::net::AddressFamily;

use crate::Result;
use crate::connection::Connection;
use crate::error::Context;
use crate::netlink::{attribute, attributes, bytes_at};

/// Bytes of `struct fib_rule_hdr`.
const HEADER: usize = 12;

// Attributes, actions and flags of `linux/fib_rules.h` that libc lacks.
const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_SUPPRESS_IFGROUP: u16 = 13;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_PAD: u16 = 18;
const FRA_L3MDEV: u16 = 19;
const FRA_PROTOCOL: u16 = 21;
const FR_ACT_TO_TBL: u8 = 1;
const FR_ACT_BLACKHOLE: u8 = 6;
/// Nobody can delete it.
const FIB_RULE_PERMANENT: u32 = 1;
/// Nothing is suppressed.
const NONE: [u8; 4] = [0xff; 4];

/// A routing rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutingRule {
    /// The family of its packets.
    pub family: AddressFamily,
    /// Rules with lower ones are asked first.
    pub priority: u32,
    /// The table that it names, if this is its action. Tables from 256 on are 252 here.
    pub table: Option<u8>,
    /// It refuses packets: blackhole, unreachable or prohibit.
    pub refuses: bool,
    /// It selects all packets, or by their addresses alone.
    pub selects_by_addresses: bool,
    /// It has an address that packets must have.
    pub has_addresses: bool,
    /// The VRF of a packet has the table.
    pub is_l3mdev: bool,
}

impl RoutingRule {
    /// The rule in the body of `RTM_NEWRULE`; `None` if it cannot be read.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let (head, own) = body.split_at_checked(HEADER)?;
        let [family, _, _, tos, table, _, _, action, ..] = *head else { return None };
        let flags = bytes_at(head, 8).map(u32::from_ne_bytes)?;
        let has = |kind| attribute(own, kind).is_some();
        let is_plain = |(kind, value): (u16, &[u8])| match kind {
            FRA_DST | FRA_SRC | FRA_PRIORITY | FRA_TABLE | FRA_PAD | FRA_PROTOCOL => true,
            FRA_SUPPRESS_IFGROUP | FRA_SUPPRESS_PREFIXLEN => value == NONE,
            _ => false,
        };
        let has_usual_header = tos == 0 && flags & !FIB_RULE_PERMANENT == 0;
        let priority = attribute(own, FRA_PRIORITY).and_then(|value| bytes_at(value, 0));
        Some(Self {
            family: AddressFamily::from_raw(family.into()),
            priority: priority.map_or(0, u32::from_ne_bytes),
            table: (action == FR_ACT_TO_TBL).then_some(table),
            refuses: action >= FR_ACT_BLACKHOLE,
            selects_by_addresses: has_usual_header && attributes(own).all(is_plain),
            has_addresses: has(FRA_DST) || has(FRA_SRC),
            is_l3mdev: has(FRA_L3MDEV),
        })
    }
}

impl Connection {
    /// The routing rules of all families, in the order in which they are asked.
    pub fn routing_rules(&self) -> Result<Vec<RoutingRule>> {
        self.list(libc::RTM_GETRULE, &[0; HEADER], RoutingRule::parse)
            .context(|| "list the routing rules".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_attr;

    fn rule(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = vec![libc::AF_INET as u8, 0, 0, 0, 254, 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0];
        attributes.iter().for_each(|(kind, value)| put_attr(&mut body, *kind, value));
        body
    }

    #[test]
    fn rules_that_select_by_more_than_addresses_are_found() {
        let by_addresses = |body: &[u8]| RoutingRule::parse(body).unwrap().selects_by_addresses;
        let table: (u16, &[u8]) = (FRA_TABLE, &[254, 0, 0, 0]);
        let plain = rule(&[table, (FRA_SUPPRESS_PREFIXLEN, &NONE), (FRA_DST, &[10, 0, 0, 1])]);
        assert!(by_addresses(&plain));
        // iif, fwmark, l3mdev, a suppressed default route.
        for other in [3, 10, 19] {
            assert!(!by_addresses(&rule(&[table, (other, &[1, 0, 0, 0])])), "{other}");
        }
        assert!(!by_addresses(&rule(&[table, (FRA_SUPPRESS_PREFIXLEN, &[0; 4])])));
        let (mut tos, mut inverted, mut blackhole) =
            (rule(&[table]), rule(&[table]), rule(&[table]));
        (tos[3], inverted[8], blackhole[7]) = (0x10, 2, 6);
        assert!(!by_addresses(&tos) && !by_addresses(&inverted));
        let blackhole = RoutingRule::parse(&blackhole).unwrap();
        assert!(blackhole.refuses && blackhole.table.is_none());
        assert_eq!(RoutingRule::parse(&[2, 0]), None);
    }
}
