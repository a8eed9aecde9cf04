//! Messages of connection tracking's netlink interface (`linux/netfilter/nfnetlink_conntrack.h`).

use std::io;
use std::net::IpAddr;

use linerate_net::netlink::{Message, Protocol, Socket, attribute, put_attr, put_nested};

use crate::tuple::FiveTuple;

/// `IPCTNL_MSG_CT_NEW`: a connection, new or changed.
pub(super) const NEW: u16 = (libc::NFNL_SUBSYS_CTNETLINK << 8) as u16;
/// `IPCTNL_MSG_CT_GET`.
const GET: u16 = NEW | 1;
/// `IPCTNL_MSG_CT_DELETE`.
pub(super) const DELETE: u16 = NEW | 2;

/// Bytes of `struct nfgenmsg`, before the attributes.
pub(super) const HEADER: usize = 4;

/// Attributes, in the header with the prefix `CTA_`.
pub(super) mod attr {
    pub(in crate::runtime) const TUPLE_ORIG: u16 = 1;
    pub(in crate::runtime) const TUPLE_REPLY: u16 = 2;
    pub(in crate::runtime) const PROTOINFO: u16 = 4;
    pub(in crate::runtime) const ZONE: u16 = 18;
    pub(in crate::runtime) const TIMESTAMP: u16 = 20;
    pub(in crate::runtime) const TUPLE_IP: u16 = 1;
    pub(in crate::runtime) const TUPLE_PROTO: u16 = 2;
    pub(in crate::runtime) const V4_SRC: u16 = 1;
    pub(in crate::runtime) const V4_DST: u16 = 2;
    pub(in crate::runtime) const V6_SRC: u16 = 3;
    pub(in crate::runtime) const V6_DST: u16 = 4;
    pub(in crate::runtime) const PROTO_NUM: u16 = 1;
    pub(in crate::runtime) const SRC_PORT: u16 = 2;
    pub(in crate::runtime) const DST_PORT: u16 = 3;
    pub(in crate::runtime) const ICMP_ID: u16 = 4;
    pub(in crate::runtime) const ICMPV6_ID: u16 = 7;
    pub(in crate::runtime) const TIMESTAMP_START: u16 = 1;
    pub(in crate::runtime) const TIMESTAMP_STOP: u16 = 2;
    pub(in crate::runtime) const PROTOINFO_TCP: u16 = 1;
    pub(in crate::runtime) const TCP_STATE: u16 = 1;
    pub(in crate::runtime) const TCP_FLAGS_ORIGINAL: u16 = 4;
    pub(in crate::runtime) const TCP_FLAGS_REPLY: u16 = 5;
}

/// States of TCP connections that have had both SYNs and may still have packets (`TCP_CONNTRACK_ESTABLISHED` to
/// `TCP_CONNTRACK_TIME_WAIT` of `linux/netfilter/nf_conntrack_tcp.h`).
const OPEN: std::ops::RangeInclusive<u8> = 3..=7;
/// `IP_CT_TCP_FLAG_BE_LIBERAL`: packets outside of the window are valid.
const BE_LIBERAL: u8 = 0x08;
/// `IP_CT_TCP_FLAG_DATA_UNACKNOWLEDGED`: data was seen, but not its acknowledgement.
const UNACKNOWLEDGED: u8 = 0x10;
/// `IP_CT_TCP_FLAG_MAXACK_SET`: the largest acknowledgement, which a RST is compared with, is known.
const MAXACK_SET: u8 = 0x20;

/// Has the kernel load conntrack and its interface, if they are modules: programs that are loaded later know its types.
pub(super) fn load_module() {
    // Without a tuple it is refused.
    let _ = Socket::open(Protocol::Netfilter)
        .and_then(|socket| socket.request(GET, 0, &[0; HEADER], |_| ()));
}

/// Has conntrack no longer wait for acknowledgements of the TCP connection of packets that come in with this tuple. One that
/// has ended is not an error.
pub(super) fn acknowledge(socket: &Socket, tuple: &FiveTuple, zone: u16) -> io::Result<()> {
    let is_ipv4 = tuple.source.is_ipv4();
    let family = if is_ipv4 { libc::AF_INET } else { libc::AF_INET6 };
    let mut request = vec![family as u8, 0, 0, 0];
    put_nested(&mut request, attr::TUPLE_ORIG, |inner| {
        put_nested(inner, attr::TUPLE_IP, |ip| match (tuple.source.ip(), tuple.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                put_attr(ip, attr::V4_SRC, &source.octets());
                put_attr(ip, attr::V4_DST, &destination.octets());
            }
            (source, destination) => {
                put_attr(ip, attr::V6_SRC, &v6(source));
                put_attr(ip, attr::V6_DST, &v6(destination));
            }
        });
        put_nested(inner, attr::TUPLE_PROTO, |protocol| {
            put_attr(protocol, attr::PROTO_NUM, &[tuple.protocol.number()]);
            put_attr(protocol, attr::SRC_PORT, &tuple.source.port().to_be_bytes());
            put_attr(protocol, attr::DST_PORT, &tuple.destination.port().to_be_bytes());
        });
    });
    put_attr(&mut request, attr::ZONE, &zone.to_be_bytes());
    put_flags(&mut request, [0, UNACKNOWLEDGED]);
    match socket.request(NEW, 0, &request, |_| ()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The flags of both directions of a TCP connection: values and mask (`struct nf_ct_tcp_flags`).
fn put_flags(request: &mut Vec<u8>, flags: [u8; 2]) {
    put_nested(request, attr::PROTOINFO, |info| {
        put_nested(info, attr::PROTOINFO_TCP, |tcp| {
            put_attr(tcp, attr::TCP_FLAGS_ORIGINAL, &flags);
            put_attr(tcp, attr::TCP_FLAGS_REPLY, &flags);
        });
    });
}

/// Exempts open TCP connections of this thread's network namespace from window tracking until they end ([`BE_LIBERAL`]).
/// A RST is compared with the last acknowledgement again once a segment is inside the window that is known, which for a
/// connection that was long on the fast path may be never. Returns how many connections were changed.
///
/// # Errors
/// If the connections cannot be listed, or some of them not changed. A connection that has ended is not an error.
pub(super) fn set_be_liberal() -> io::Result<u64> {
    let (list, change) = (Socket::open(Protocol::Netfilter)?, Socket::open(Protocol::Netfilter)?);
    let (mut changed, mut failed) = (0, Ok(()));
    // The dump is read in pieces: a million connections take no memory.
    let _ = list.dump(GET, &[0; HEADER], |message| {
        let Some(request) = be_liberal_request(message) else { return };
        match change.request(NEW, 0, &request, |_| ()) {
            Ok(()) => changed += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) => failed = Err(error),
        }
    })?;
    failed.map(|()| changed)
}

/// The change of a listed connection; `None` if it is not an open TCP connection.
fn be_liberal_request(message: Message<'_>) -> Option<Vec<u8>> {
    let attributes = message.body.get(HEADER..)?;
    let tcp = attribute(attribute(attributes, attr::PROTOINFO)?, attr::PROTOINFO_TCP)?;
    let state = attribute(tcp, attr::TCP_STATE)?.first()?;
    if !OPEN.contains(state) {
        return None;
    }
    let mut request = message.body[..HEADER].to_vec();
    let tuple = attribute(attributes, attr::TUPLE_ORIG)?;
    put_nested(&mut request, attr::TUPLE_ORIG, |inner| inner.extend(tuple));
    if let Some(zone) = attribute(attributes, attr::ZONE) {
        put_attr(&mut request, attr::ZONE, zone);
    }
    put_flags(&mut request, [BE_LIBERAL, BE_LIBERAL | MAXACK_SET]);
    Some(request)
}
