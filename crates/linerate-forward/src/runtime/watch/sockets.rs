//! [`Source`]: a netlink socket that receives change notifications.

use std::os::fd::{AsFd, BorrowedFd};

use linerate_bpf::filter::{ClassicInstruction, ClassicProgram, attach};
use linerate_net::netlink::{Message, Notifications, Protocol, Received};

use super::detector::NEW_GENERATION;
use crate::{Error, Result};

/// Groups of `linux/rtnetlink.h`.
const ROUTE_GROUPS: [u32; 13] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_NEIGH,
    libc::RTNLGRP_TC,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV6_RULE,
    libc::RTNLGRP_IPV4_NETCONF,
    libc::RTNLGRP_IPV6_NETCONF,
    libc::RTNLGRP_NEXTHOP,
    libc::RTNLGRP_BRVLAN,
];
/// `XFRMNLGRP_EXPIRE`, `POLICY` and `MIGRATE` of `linux/xfrm.h`.
const XFRM_GROUPS: [u32; 3] = [2, 4, 7];

/// A socket.
pub(super) struct Source(Notifications);

impl Source {
    /// Routes, rules, nexthops, neighbours, links, addresses, settings, bridges, traffic control.
    pub(super) fn route(room: usize) -> Result<Self> {
        let source = Self::open(Protocol::Route, "routing", room)?;
        for group in ROUTE_GROUPS {
            match source.0.join(group) {
                // An older kernel does not have this group.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                other => other.map_err(|error| Error::system("watch changes of routing", error))?,
            }
        }
        Ok(source)
    }

    /// nftables commits. Only the last message of a commit matters; a ruleset can send 100,000.
    pub(super) fn nftables(room: usize) -> Result<Self> {
        let kind = u32::from(NEW_GENERATION.to_be());
        // ldh [4], the kind of the message; jeq
        let program = [instruction(0x28, 0, 0, 4), instruction(0x15, 0, 1, kind), TAKE, LEAVE];
        Self::netfilter(&[libc::NFNLGRP_NFTABLES], "nftables", room, &program)
    }

    /// Requested deletions and changes of tracked connections, but for those of the port `own`. The message has the
    /// netlink port ID of the requester; it is 0 if a packet or the timeout caused it (`nf_ct_delete`).
    pub(super) fn conntrack(room: usize, own: u32) -> Result<Self> {
        // ld [12], the port in the order of the host; jeq
        let program = [
            instruction(0x20, 0, 0, 12),
            instruction(0x15, 2, 0, 0),
            instruction(0x15, 1, 0, own.to_be()),
            TAKE,
            LEAVE,
        ];
        let groups = [libc::NFNLGRP_CONNTRACK_DESTROY, libc::NFNLGRP_CONNTRACK_UPDATE];
        Self::netfilter(&groups, "connection tracking", room, &program)
    }

    /// IPsec policies.
    pub(super) fn ipsec(room: usize) -> Result<Self> {
        let source = Self::open(Protocol::Xfrm, "IPsec", room)?;
        for group in XFRM_GROUPS {
            let joined = source.0.join(group);
            joined.map_err(|error| Error::system("watch changes of IPsec", error))?;
        }
        Ok(source)
    }

    fn netfilter(
        groups: &[libc::c_int],
        what: &str,
        room: usize,
        program: &[ClassicInstruction],
    ) -> Result<Self> {
        let source = Self::open(Protocol::Netfilter, what, room)?;
        let program = ClassicProgram::new(program).expect("a program by the rules");
        // Before the socket joins a group, so that nothing passes unfiltered.
        attach(source.as_fd(), &program)
            .and_then(|()| groups.iter().try_for_each(|group| source.0.join(*group as u32)))
            .map_err(|error| Error::system(format!("watch changes of {what}"), error))?;
        Ok(source)
    }

    fn open(protocol: Protocol, what: &str, room: usize) -> Result<Self> {
        let open = || {
            let notifications = Notifications::open(protocol)?;
            notifications.set_receive_buffer(room)?;
            Ok(Self(notifications))
        };
        open().map_err(|error| Error::system(format!("open a netlink socket for {what}"), error))
    }

    /// Reads up to `most` queued notifications, and passes on their messages.
    pub(super) fn drain(
        &mut self,
        most: usize,
        mut take: impl FnMut(Protocol, Message<'_>),
    ) -> Result<Received> {
        let protocol = self.0.protocol();
        self.0.receive(most, |message| take(protocol, message)).map_err(unread)
    }

    /// Discards everything that is queued.
    pub(super) fn discard(&mut self) -> Result<()> {
        self.0.discard().map_err(unread)
    }
}

fn unread(source: std::io::Error) -> Error {
    Error::system("read changes of the network", source)
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

const TAKE: ClassicInstruction = instruction(0x06, 0, 0, u32::MAX);
const LEAVE: ClassicInstruction = instruction(0x06, 0, 0, 0);

const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> ClassicInstruction {
    ClassicInstruction { code, jt, jf, k }
}
