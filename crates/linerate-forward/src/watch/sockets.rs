//! [`Source`]: a netlink socket on which the kernel tells of changes.

use std::os::fd::{AsFd, BorrowedFd};

use linerate_bpf::filter::{Classic, Statement, attach};
use netlink_sys::protocols::{NETLINK_NETFILTER, NETLINK_ROUTE, NETLINK_XFRM};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::judge::NEW_GENERATION;
use crate::netlink::{Channel, Message, messages};
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

/// More than the kernel puts into one notification (`NLMSG_GOODSIZE` is a page, links with many virtual
/// functions take more).
const LONGEST: usize = 128 << 10;

/// A socket.
pub(super) struct Source {
    channel: Channel,
    protocol: isize,
    buffer: Box<[u8]>,
}

/// How far a socket was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drained {
    /// As far as was allowed, or to the end.
    Read,
    /// Something was lost.
    Overrun,
}

impl Source {
    /// Routes, rules, nexthops, neighbours, links, addresses, settings, bridges, traffic control.
    pub(super) fn route(room: usize) -> Result<Self> {
        let source = Self::open(NETLINK_ROUTE, "routing", room)?;
        for group in ROUTE_GROUPS {
            match source.channel.join(group) {
                // A kernel that has no such group yet.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                other => other.map_err(|error| Error::system("watch changes of routing", error))?,
            }
        }
        Ok(source)
    }

    /// Commits to nftables. Of those only the last message is of use, and a ruleset may come to 100,000.
    pub(super) fn nftables(room: usize) -> Result<Self> {
        let kind = u32::from(NEW_GENERATION.to_be());
        // ldh [4], the kind of the message; jeq
        let program = [statement(0x28, 0, 0, 4), statement(0x15, 0, 1, kind), TAKE, LEAVE];
        Self::netfilter(libc::NFNLGRP_NFTABLES, "nftables", room, &program)
    }

    /// Ends of tracked connections that somebody asked for: such a message names who did, by the port of
    /// the asking socket, and one that came of itself has 0 there (`nf_ct_delete`).
    pub(super) fn conntrack(room: usize) -> Result<Self> {
        // ld [12], the port; jeq
        let program = [statement(0x20, 0, 0, 12), statement(0x15, 1, 0, 0), TAKE, LEAVE];
        Self::netfilter(libc::NFNLGRP_CONNTRACK_DESTROY, "connection tracking", room, &program)
    }

    /// Policies of IPsec.
    pub(super) fn ipsec(room: usize) -> Result<Self> {
        let source = Self::open(NETLINK_XFRM, "IPsec", room)?;
        for group in XFRM_GROUPS {
            let joined = source.channel.join(group);
            joined.map_err(|error| Error::system("watch changes of IPsec", error))?;
        }
        Ok(source)
    }

    fn netfilter(
        group: libc::c_int,
        what: &str,
        room: usize,
        program: &[Statement],
    ) -> Result<Self> {
        let source = Self::open(NETLINK_NETFILTER, what, room)?;
        let program = Classic::new(program).expect("a program by the rules");
        // Before there is anything to filter.
        attach(source.channel.as_fd(), &program)
            .and_then(|()| source.channel.join(group as u32))
            .map_err(|error| Error::system(format!("watch changes of {what}"), error))?;
        Ok(source)
    }

    fn open(protocol: isize, what: &str, room: usize) -> Result<Self> {
        let failed = |error| Error::system(format!("open a netlink socket for {what}"), error);
        let channel = Channel::open(protocol).map_err(failed)?;
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&channel, room).is_err() {
            let set = rustix::net::sockopt::set_socket_recv_buffer_size(&channel, room);
            set.map_err(|errno| failed(errno.into()))?;
        }
        Ok(Self { channel, protocol, buffer: vec![0; LONGEST].into() })
    }

    /// Reads up to `most` notifications of those that wait, and hands over the messages in them.
    pub(super) fn drain(
        &mut self,
        most: usize,
        mut take: impl FnMut(isize, Message<'_>),
    ) -> Result<Drained> {
        for _ in 0..most {
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            let length = match recv(&self.channel, &mut self.buffer[..], flags) {
                Ok((_, length)) => length,
                Err(Errno::AGAIN) => return Ok(Drained::Read),
                Err(Errno::INTR) => continue,
                Err(Errno::NOBUFS) => return Ok(Drained::Overrun),
                Err(errno) => {
                    return Err(Error::system("read changes of the network", errno.into()));
                }
            };
            let Some(bytes) = self.buffer.get(..length) else { return Ok(Drained::Overrun) };
            for message in messages(bytes) {
                take(self.protocol, message);
            }
        }
        Ok(Drained::Read)
    }

    /// Throws away all that waits. It comes to an end after something was lost: the kernel queues nothing
    /// more until all is read (`netlink_rcv_wake`).
    pub(super) fn discard(&mut self) -> Result<()> {
        loop {
            match recv(&self.channel, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => {
                    return Err(Error::system("read changes of the network", errno.into()));
                }
            }
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

const TAKE: Statement = statement(0x06, 0, 0, u32::MAX);
const LEAVE: Statement = statement(0x06, 0, 0, 0);

const fn statement(code: u16, jt: u8, jf: u8, k: u32) -> Statement {
    Statement { code, jt, jf, k }
}
