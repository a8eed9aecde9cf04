//! [`Causes`]: what kinds of change a bump answers.

use std::fmt;

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// The watch has begun: what was before is unknown.
    Start,
    /// Messages were lost because too many came at once; everything has been read anew.
    Overrun,
    /// A route.
    Route,
    /// A rule of routing.
    Rule,
    /// A nexthop object, or a bucket of a group of them.
    Nexthop,
    /// Where a neighbour is, or that it is there.
    Neighbour,
    /// A link: up or down, carrier, MTU, hardware address, master, name, there or gone.
    Link,
    /// An address of this host.
    Address,
    /// Whether an interface forwards, or checks where packets come from.
    Forwarding,
    /// The forwarding database or the VLANs of a bridge.
    Bridge,
    /// Queueing disciplines, filters and actions.
    TrafficControl,
    /// The ruleset of nftables; iptables-nft makes such.
    Nftables,
    /// iptables in its old form has run.
    Xtables,
    /// A policy of IPsec.
    Ipsec,
    /// Somebody deleted tracked connections.
    Conntrack,
}

impl Cause {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::Start,
        Self::Overrun,
        Self::Route,
        Self::Rule,
        Self::Nexthop,
        Self::Neighbour,
        Self::Link,
        Self::Address,
        Self::Forwarding,
        Self::Bridge,
        Self::TrafficControl,
        Self::Nftables,
        Self::Xtables,
        Self::Ipsec,
        Self::Conntrack,
    ];

    /// Its name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Overrun => "overrun",
            Self::Route => "route",
            Self::Rule => "rule",
            Self::Nexthop => "nexthop",
            Self::Neighbour => "neighbour",
            Self::Link => "link",
            Self::Address => "address",
            Self::Forwarding => "forwarding",
            Self::Bridge => "bridge",
            Self::TrafficControl => "traffic-control",
            Self::Nftables => "nftables",
            Self::Xtables => "xtables",
            Self::Ipsec => "ipsec",
            Self::Conntrack => "conntrack",
        }
    }
}

/// A set of kinds of change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Causes(u16);

impl Causes {
    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `cause` is one of them.
    pub fn contains(self, cause: Cause) -> bool {
        self.0 & 1 << cause as u8 != 0
    }

    /// Adds one.
    pub fn insert(&mut self, cause: Cause) {
        self.0 |= 1 << cause as u8;
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Cause> {
        Cause::ALL.into_iter().filter(move |cause| self.contains(*cause))
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
        for (at, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, at);
            let set = Causes::from_iter([cause]);
            assert_eq!(set.iter().collect::<Vec<_>>(), [cause]);
        }
        let set = Causes::from_iter([Cause::Ipsec, Cause::Route]);
        assert_eq!(set.to_string(), "route, ipsec");
        assert!(Causes::default().is_empty() && !set.is_empty());
    }
}
