//! [`ChangeDetector`]: which kernel notifications are changes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linerate_net::netlink::{Dump, Message, Protocol, Socket, bytes_at, put_attr};

use super::bridges::Bridges;
use super::causes::Cause;
use super::links::{LINK_HEADER, Links};
use super::neighbours::{self, Neighbours};
use super::routing::{self, Routing};
use crate::runtime::ctnetlink;

// Constants of `linux/rtnetlink.h` that libc lacks.
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const RTM_NEWVLAN: u16 = 112;
const RTM_DELVLAN: u16 = 113;
const RTM_NEWNEXTHOPBUCKET: u16 = 116;
const RTM_DELNEXTHOPBUCKET: u16 = 117;
/// Requests a bridge's VLANs in the compressed form that its notifications have.
const RTEXT_FILTER_BRVLAN_COMPRESSED: u32 = 1 << 2;

// Messages of `linux/xfrm.h` about policies.
const XFRM_MSG_NEWPOLICY: u16 = 19;
const XFRM_MSG_DELPOLICY: u16 = 20;
const XFRM_MSG_UPDPOLICY: u16 = 25;
const XFRM_MSG_POLEXPIRE: u16 = 27;
const XFRM_MSG_FLUSHPOLICY: u16 = 29;
const XFRM_MSG_MIGRATE: u16 = 33;

/// A change of the ruleset has been committed.
pub(super) const NEW_GENERATION: u16 =
    (libc::NFNL_SUBSYS_NFTABLES << 8 | libc::NFT_MSG_NEWGEN) as u16;

/// The part of the kernel's state that is needed to recognise changes.
#[derive(Debug, Default)]
pub(super) struct ChangeDetector {
    /// Interfaces that are ports; if empty, every interface may be.
    ports: Vec<u32>,
    links: Links,
    neighbours: Neighbours,
    bridges: Bridges,
    routing: Routing,
}

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) cause: Cause,
    /// A look at routes and neighbours by `bpf_fib_lookup` shows which sessions it concerns.
    pub(super) is_seen_by_fib: bool,
}

impl From<Cause> for Change {
    fn from(cause: Cause) -> Self {
        Self { cause, is_seen_by_fib: false }
    }
}

impl ChangeDetector {
    pub(super) fn new(ports: &[u32]) -> Self {
        Self { ports: ports.to_owned(), ..Self::default() }
    }

    /// Whether there were IPv6 routes that expire.
    pub(super) fn has_expiring(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.routing.has_expiring)
    }

    /// Processes a message of one of the protocols. One that cannot be parsed is a change.
    pub(super) fn detect(&mut self, protocol: Protocol, message: Message<'_>) -> Option<Change> {
        let cause = match protocol {
            Protocol::Route => return self.detect_route(message),
            Protocol::Netfilter => match message.kind {
                NEW_GENERATION => Some(Cause::Nftables),
                ctnetlink::NEW | ctnetlink::DELETE => Some(Cause::Conntrack),
                _ => None,
            },
            Protocol::Xfrm => match message.kind {
                XFRM_MSG_NEWPOLICY | XFRM_MSG_DELPOLICY | XFRM_MSG_UPDPOLICY
                | XFRM_MSG_POLEXPIRE | XFRM_MSG_FLUSHPOLICY | XFRM_MSG_MIGRATE => {
                    Some(Cause::Ipsec)
                }
                _ => None,
            },
            _ => None,
        };
        cause.map(Change::from)
    }

    fn detect_route(&mut self, message: Message<'_>) -> Option<Change> {
        let Message { kind, body, .. } = message;
        let mut is_simple = false;
        let (changed, cause) = match kind {
            libc::RTM_NEWLINK | libc::RTM_DELLINK => {
                (self.links.update(kind == libc::RTM_DELLINK, body), Cause::Link)
            }
            libc::RTM_NEWADDR | libc::RTM_DELADDR => {
                (self.links.update_address(kind == libc::RTM_DELADDR, body), Cause::Address)
            }
            libc::RTM_NEWROUTE | libc::RTM_DELROUTE => {
                // A cached clone of a route for one destination: nothing new.
                let flags = bytes_at(body, 8).map_or(0, u32::from_ne_bytes);
                is_simple = self.routing.add_route(body);
                (flags & libc::RTM_F_CLONED == 0, Cause::Route)
            }
            libc::RTM_NEWNEIGH | libc::RTM_DELNEIGH => {
                let deleted = kind == libc::RTM_DELNEIGH;
                if body.first().is_some_and(|family| i32::from(*family) == libc::AF_BRIDGE) {
                    let Self { ports, links, .. } = self;
                    let matters = |bridge| {
                        ports.is_empty()
                            || ports.iter().any(|port| links.master(*port) == Some(bridge))
                    };
                    (self.bridges.update(deleted, body, matters), Cause::Bridge)
                } else {
                    is_simple = true;
                    (self.neighbours.update(deleted, body), Cause::Neighbour)
                }
            }
            libc::RTM_NEWRULE => {
                self.routing.add_rule(body);
                (true, Cause::Rule)
            }
            libc::RTM_DELRULE => (true, Cause::Rule),
            RTM_NEWNEXTHOP | RTM_DELNEXTHOP | RTM_NEWNEXTHOPBUCKET | RTM_DELNEXTHOPBUCKET => {
                (true, Cause::Nexthop)
            }
            libc::RTM_NEWNETCONF | libc::RTM_DELNETCONF => (true, Cause::Forwarding),
            RTM_NEWVLAN | RTM_DELVLAN => (true, Cause::Bridge),
            // This group has only traffic control: qdiscs, classes, filters, chains, actions.
            _ => (true, Cause::TrafficControl),
        };
        let is_seen_by_fib = is_simple && self.routing.is_seen_by_fib();
        changed.then_some(Change { cause, is_seen_by_fib })
    }

    /// Reads the routing rules again, of which some may be gone.
    pub(super) fn load_rules(&mut self) -> io::Result<()> {
        self.routing.has_selective_rules = false;
        let socket = Socket::open(Protocol::Route)?;
        let take = |message: Message<'_>| self.routing.add_rule(message.body);
        socket.dump(libc::RTM_GETRULE, &[0; routing::HEADER], take).map(drop)
    }

    /// Reads the whole state again. Earlier changes are then no longer reported.
    pub(super) fn load(&mut self) -> io::Result<()> {
        let socket = Socket::open(Protocol::Route)?;
        self.load_rules()?;
        // The dump goes on behind the prefix that it has reached, whatever changes meanwhile.
        self.routing.has_route_mtu = false;
        self.routing.has_multipath6 = false;
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut header = [0; routing::HEADER];
            header[0] = family as u8;
            let _ = socket.dump(libc::RTM_GETROUTE, &header, |message| {
                self.routing.add_route(message.body);
            })?;
        }
        // The dump is repeated until nothing changes during it. On a busy machine later notifications supply
        // what is missing, at worst as a change that was none.
        for _ in 0..5 {
            self.links.clear();
            self.neighbours.clear();
            self.bridges.clear();
            let header = |family: i32, length: usize| {
                let mut bytes = vec![0; length];
                bytes[0] = family as u8;
                bytes
            };
            let mut bridged = header(libc::AF_BRIDGE, LINK_HEADER);
            put_attr(
                &mut bridged,
                libc::IFLA_EXT_MASK,
                &RTEXT_FILTER_BRVLAN_COMPRESSED.to_ne_bytes(),
            );
            let mut whole = true;
            for (kind, body) in [
                (libc::RTM_GETLINK, header(libc::AF_UNSPEC, LINK_HEADER)),
                (libc::RTM_GETLINK, bridged),
                (libc::RTM_GETADDR, header(libc::AF_UNSPEC, 8)),
                (libc::RTM_GETNEIGH, header(libc::AF_UNSPEC, neighbours::HEADER)),
                (libc::RTM_GETNEIGH, header(libc::AF_BRIDGE, neighbours::HEADER)),
            ] {
                let took = socket.dump(kind, &body, |message| {
                    self.detect_route(message);
                });
                whole &= match took {
                    // The kernel has no bridges.
                    Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => true,
                    other => other? == Dump::Consistent,
                };
            }
            if whole {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
