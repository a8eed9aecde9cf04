//! [`Changes`]: kernel notifications about links, addresses, routes and neighbours (`ip monitor`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::Result;
use crate::error::Context;
use crate::neighbour::Neighbour;
use crate::netlink::{Message, Notifications, Protocol, Received, bytes_at};

/// What to subscribe to: groups of `linux/rtnetlink.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum RtnlGroup {
    /// Links.
    Link = libc::RTNLGRP_LINK,
    /// Neighbours, IPv4 and IPv6.
    Neighbour = libc::RTNLGRP_NEIGH,
    /// IPv4 addresses of this host.
    Ipv4Address = libc::RTNLGRP_IPV4_IFADDR,
    /// IPv4 routes.
    Ipv4Route = libc::RTNLGRP_IPV4_ROUTE,
    /// Rules of IPv4 policy routing.
    Ipv4Rule = libc::RTNLGRP_IPV4_RULE,
    /// IPv6 addresses of this host.
    Ipv6Address = libc::RTNLGRP_IPV6_IFADDR,
    /// IPv6 routes.
    Ipv6Route = libc::RTNLGRP_IPV6_ROUTE,
    /// Rules of IPv6 policy routing.
    Ipv6Rule = libc::RTNLGRP_IPV6_RULE,
    /// Nexthop objects.
    Nexthop = libc::RTNLGRP_NEXTHOP,
}

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Something about a link.
    Link {
        /// Its index.
        index: u32,
        /// Whether an administrator had set it up when the kernel said so. It may not be up any more.
        up: bool,
    },
    /// A neighbour is new, or its state or address has changed.
    Neighbour(Neighbour),
    /// The kernel has deleted a neighbour.
    NeighbourDeleted(Neighbour),
    /// Anything else that was subscribed to.
    Other,
    /// Changes were lost, because too many came at once.
    Lost,
}

impl Change {
    fn parse(message: Message<'_>) -> Self {
        let read = match message.kind {
            // `ifi_index` and `ifi_flags` of `struct ifinfomsg`.
            libc::RTM_NEWLINK | libc::RTM_DELLINK => {
                bytes_at(message.body, 4).zip(bytes_at(message.body, 8)).map(|(index, flags)| {
                    let up = u32::from_ne_bytes(flags) & libc::IFF_UP as u32 != 0;
                    Self::Link { index: u32::from_ne_bytes(index), up }
                })
            }
            libc::RTM_NEWNEIGH => Neighbour::parse(message.body).map(Self::Neighbour),
            libc::RTM_DELNEIGH => Neighbour::parse(message.body).map(Self::NeighbourDeleted),
            _ => None,
        };
        read.unwrap_or(Self::Other)
    }
}

/// A subscription. It stays in the network namespace of the thread that made it, and does not block: poll it.
#[derive(Debug)]
pub struct Changes {
    notifications: Notifications,
    only_local_routes: bool,
}

impl Changes {
    /// Subscribes to changes in the network namespace of the calling thread.
    pub fn subscribe(groups: &[RtnlGroup]) -> Result<Self> {
        let subscribe = || -> io::Result<Self> {
            let notifications = Notifications::open(Protocol::Route)?;
            groups.iter().try_for_each(|group| notifications.join(*group as u32))?;
            Ok(Self { notifications, only_local_routes: false })
        };
        subscribe().context(|| "subscribe to changes of the network".to_owned())
    }

    /// Leaves out changes of routes that do not deliver to this host.
    pub fn only_local_routes(self) -> Self {
        Self { only_local_routes: true, ..self }
    }

    /// Passes on the queued changes, in their order.
    pub fn receive(&mut self, mut take: impl FnMut(Change)) -> Result<()> {
        let only_local_routes = self.only_local_routes;
        let received = self.notifications.receive(usize::MAX, |message| {
            if !(only_local_routes && is_remote_route(&message)) {
                take(Change::parse(message));
            }
        });
        if received.context(|| "read changes of the network".to_owned())? == Received::Overrun {
            take(Change::Lost);
        }
        Ok(())
    }
}

/// Whether a message is about a route that does not deliver to this host.
fn is_remote_route(message: &Message<'_>) -> bool {
    // `rtm_type` of `struct rtmsg`.
    matches!(message.kind, libc::RTM_NEWROUTE | libc::RTM_DELROUTE)
        && bytes_at(message.body, 7).is_some_and(|[kind]: [u8; 1]| kind != libc::RTN_LOCAL)
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.notifications.as_fd()
    }
}
