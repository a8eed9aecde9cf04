//! [`Causes`]: the kinds of change that cause a bump.

use std::fmt;

use crate::table::control::Control;
use crate::table::layout::rules;

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cause {
    /// The watch started: earlier changes are unknown.
    Start,
    /// Messages were lost because too many came at once; everything was read again.
    Overrun,
    /// A route.
    Route,
    /// A routing rule.
    Rule,
    /// A nexthop object, or a bucket of a nexthop group.
    Nexthop,
    /// The address or the presence of a neighbour.
    Neighbour,
    /// A link: up or down, carrier, MTU, hardware address, master, name, added or removed.
    Link,
    /// An address of this host.
    Address,
    /// Forwarding or reverse-path filtering of an interface.
    Forwarding,
    /// The forwarding database or the VLANs of a bridge.
    Bridge,
    /// Queueing disciplines, filters and actions.
    TrafficControl,
    /// The nftables ruleset, which iptables-nft changes too.
    Nftables,
    /// Legacy iptables has run, or its rules have changed.
    Xtables,
    /// An IPsec policy.
    Ipsec,
    /// Somebody deleted or changed tracked connections.
    Conntrack,
    /// A setting of the network stack (`/proc/sys/net`), also one that a router advertisement has changed.
    Setting,
    /// A BPF program at a hook of netfilter.
    NetfilterLink,
}

linerate_net::named!(
    Cause, "kind of change": Start = "start", Overrun = "overrun", Route = "route", Rule = "rule",
    Nexthop = "nexthop", Neighbour = "neighbour", Link = "link", Address = "address",
    Forwarding = "forwarding", Bridge = "bridge", TrafficControl = "traffic-control",
    Nftables = "nftables", Xtables = "xtables", Ipsec = "ipsec", Conntrack = "conntrack",
    Setting = "setting", NetfilterLink = "netfilter-link",
);

/// A set of kinds of change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Causes {
    set: u32,
    /// One of the changes needs more than a look at routes and neighbours.
    relearn: bool,
}

impl Causes {
    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.set == 0
    }

    /// Whether `cause` is in the set.
    pub fn contains(self, cause: Cause) -> bool {
        self.set & 1 << cause as u8 != 0
    }

    /// Adds a cause, after which sessions have to be learned again.
    pub fn insert(&mut self, cause: Cause) {
        self.set |= 1 << cause as u8;
        self.relearn = true;
    }

    /// Adds a change of routes or neighbours that `bpf_fib_lookup` sees.
    pub fn insert_seen_by_fib(&mut self, cause: Cause) {
        self.set |= 1 << cause as u8;
    }

    /// Invalidates the sessions that the changes may concern. Returns whether that is all of them.
    pub fn invalidate(self, control: &Control) -> bool {
        let rules_look = control.rules() & (rules::ROUTE | rules::ROUTE << 1) != 0;
        let all = self.relearn || rules_look;
        if all {
            control.bump_generation();
        } else {
            control.reroute();
        }
        all
    }

    /// The causes in the set.
    pub fn iter(self) -> impl Iterator<Item = Cause> {
        Cause::ALL.iter().copied().filter(move |cause| self.contains(*cause))
    }
}

impl FromIterator<Cause> for Causes {
    fn from_iter<I: IntoIterator<Item = Cause>>(causes: I) -> Self {
        let mut set = Self::default();
        causes.into_iter().for_each(|cause| set.insert(cause));
        set
    }
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, cause) in self.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(f, "{comma}{}", cause.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        for (at, cause) in Cause::ALL.iter().copied().enumerate() {
            assert_eq!(cause as usize, at);
            let set = Causes::from_iter([cause]);
            assert_eq!(set.iter().collect::<Vec<_>>(), [cause]);
        }
        let set = Causes::from_iter([Cause::Ipsec, Cause::Route]);
        assert_eq!(set.to_string(), "route, ipsec");
        assert!(Causes::default().is_empty() && !set.is_empty());
    }
}
