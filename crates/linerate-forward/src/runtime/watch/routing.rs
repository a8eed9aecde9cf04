//! [`Routing`]: whether `bpf_fib_lookup` sees what routes and routing rules do with forwarded packets.
//!
//! It is asked without the packet: it does not know the mark, nor the device above a port that the packet came by, nor
//! on the way back what a rule asks of the input. It does not look at the MTU that an IPv4 route sets for forwarded
//! packets. Which path of a multipath route a packet takes may depend on more than it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linerate_net::RoutingRule;
use linerate_net::netlink::{attribute, bytes_at};

/// Bytes of `struct rtmsg` and of `struct fib_rule_hdr`.
pub(super) const HEADER: usize = 12;

// Of `linux/rtnetlink.h`, what libc lacks.
const RTA_NH_ID: u16 = 30;
const RTPROT_RA: u8 = 9;
const RTAX_MTU: u16 = 2;

/// The offset of the expiry in `struct rta_cacheinfo`.
const EXPIRES: usize = 8;

/// When a route with these attributes expires, in clock ticks from now; 0: never.
pub(super) fn expires(attributes: &[u8]) -> i32 {
    let times = attribute(attributes, libc::RTA_CACHEINFO).unwrap_or_default();
    bytes_at(times, EXPIRES).map_or(0, i32::from_ne_bytes)
}

/// What is known of routes and rules.
#[derive(Debug, Default)]
pub(super) struct Routing {
    /// A rule selects by more than addresses, or does more than to name a table.
    pub(super) has_selective_rules: bool,
    /// An IPv4 route sets an MTU.
    pub(super) has_route_mtu: bool,
    /// An IPv6 route has several next hops, or a nexthop object. The kernel chooses by the flow label, which the
    /// look-up does not know, and by the state of the neighbours; and it reports the end of one path as that of a
    /// route with one next hop.
    pub(super) has_multipath6: bool,
    /// There were IPv6 routes that expire. Those of router advertisements are reported before they have a time.
    pub(super) has_expiring: Arc<AtomicBool>,
}

impl Routing {
    pub(super) fn is_seen_by_fib(&self) -> bool {
        !self.has_selective_rules && !self.has_route_mtu && !self.has_multipath6
    }

    /// Adds a route. Returns whether it has one next hop, which belongs to it alone.
    pub(super) fn add_route(&mut self, body: &[u8]) -> bool {
        let Some(own) = body.get(HEADER..) else { return false };
        let metrics = attribute(own, libc::RTA_METRICS).unwrap_or_default();
        self.has_route_mtu |=
            i32::from(body[0]) == libc::AF_INET && attribute(metrics, RTAX_MTU).is_some();
        let is_ipv6 = i32::from(body[0]) == libc::AF_INET6;
        if is_ipv6 && (body[5] == RTPROT_RA || expires(own) != 0) {
            self.has_expiring.store(true, Ordering::Relaxed);
        }
        let is_simple =
            attribute(own, libc::RTA_MULTIPATH).is_none() && attribute(own, RTA_NH_ID).is_none();
        self.has_multipath6 |= is_ipv6 && !is_simple;
        is_simple
    }

    /// Adds a routing rule.
    pub(super) fn add_rule(&mut self, body: &[u8]) {
        let is_plain = |rule: RoutingRule| rule.selects_by_addresses && rule.table.is_some();
        self.has_selective_rules |= !RoutingRule::parse(body).is_some_and(is_plain);
    }
}

#[cfg(test)]
mod tests;
