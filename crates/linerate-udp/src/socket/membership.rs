//! Groups of a socket: joins, leaves, and whose messages the kernel accepts.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::check;
use super::sockaddr::{SockAddr, group_request};
use crate::group::Group;
use crate::{Error, Result, interface};

/// Bytes of `struct group_filter` (RFC 3678 §5) before its list of senders, and of a `struct sockaddr_storage`.
const GROUP_FILTER: usize = 144;
const STORAGE: usize = 128;
/// Senders that are read, at most; one more than `xdp` takes.
const MAX_SENDERS: usize = 25;

/// Into a group or out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Membership {
    Join,
    Leave,
}

/// Joins or leaves.
pub(crate) fn set_membership(fd: BorrowedFd<'_>, what: Membership, group: &Group) -> Result<()> {
    let index = match &group.interface {
        Some(name) => interface::index(name)?,
        None => 0,
    };
    let level = if group.address.is_ipv4() { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 };
    let (option, addresses): (i32, &[IpAddr]) = match (what, group.source) {
        (Membership::Join, None) => (libc::MCAST_JOIN_GROUP, &[group.address]),
        (Membership::Leave, None) => (libc::MCAST_LEAVE_GROUP, &[group.address]),
        (Membership::Join, Some(source)) => {
            (libc::MCAST_JOIN_SOURCE_GROUP, &[group.address, source])
        }
        (Membership::Leave, Some(source)) => {
            (libc::MCAST_LEAVE_SOURCE_GROUP, &[group.address, source])
        }
    };
    let (request, len) = group_request(index, addresses);
    // SAFETY: `request` is readable for `len` bytes.
    let answer = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, request.as_ptr().cast(), len as u32)
    };
    check(answer as isize).map(drop).map_err(|error| Error::Group {
        action: if what == Membership::Join { "join" } else { "leave" },
        group: group.clone(),
        reason: membership_error(what, group, &error),
    })
}

fn membership_error(what: Membership, group: &Group, error: &io::Error) -> String {
    match (error.raw_os_error(), what) {
        (Some(libc::EADDRINUSE), Membership::Join) => "this receiver is in it already".to_owned(),
        (Some(libc::EADDRNOTAVAIL), Membership::Leave) => "this receiver is not in it".to_owned(),
        (Some(libc::ENODEV | libc::EADDRNOTAVAIL), _) if group.interface.is_none() => {
            "no route leads there, so that the interface must be named: GROUP@IFACE".to_owned()
        }
        (Some(libc::ENOBUFS), _) => {
            "the socket is in as many groups as it may be; raise net.ipv4.igmp_max_memberships or \
             net.ipv4.igmp_max_msf"
                .to_owned()
        }
        (Some(libc::EINVAL), _) => format!(
            "{error}: the group is of another kind than the receiver's address, or was joined from any \
             source and from one"
        ),
        _ => error.to_string(),
    }
}

/// From whom a socket receives messages to a group that arrive on the interface `index`; an empty list means from
/// anybody. `None` where it has not joined the group there, or excludes senders.
pub(crate) fn accepted_senders(
    fd: BorrowedFd<'_>,
    group: IpAddr,
    index: u32,
) -> Option<Vec<IpAddr>> {
    let mut filter = [0; GROUP_FILTER + MAX_SENDERS * STORAGE];
    let (request, len) = group_request(index, &[group]);
    filter[..len].copy_from_slice(&request[..len]);
    filter[GROUP_FILTER - 4..GROUP_FILTER].copy_from_slice(&(MAX_SENDERS as u32).to_ne_bytes());
    let level = if group.is_ipv4() { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 };
    let mut size = filter.len() as libc::socklen_t;
    // SAFETY: `filter` is writable for `size` bytes.
    let answer = unsafe {
        let filter = filter.as_mut_ptr().cast();
        libc::getsockopt(fd.as_raw_fd(), level, libc::MCAST_MSFILTER, filter, &mut size)
    };
    check(answer as isize).ok()?;
    let number = |at: usize| filter[at..at + 4].try_into().map(u32::from_ne_bytes).ok();
    let includes = number(GROUP_FILTER - 8)? == libc::MCAST_INCLUDE as u32;
    let count = number(GROUP_FILTER - 4)? as usize;
    let senders = filter[GROUP_FILTER..].chunks(STORAGE).take(count);
    let senders: Vec<_> = senders.map(|one| SockAddr::read(one).ip()).collect();
    // One that includes nobody and one that excludes somebody are left to the stack.
    (includes != senders.is_empty()).then_some(senders)
}
