//! Opens the UDP socket of a receiver.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use linerate_net::privilege;
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use super::cmsg::UDP_GRO;
use super::membership::{Membership, set_membership};
use super::sockaddr::{is_of_link, unmapped};
use super::{check, get, set};
use crate::backend::Backend;
use crate::options::{MtuDiscovery, Options, Reuseport, SendOptions, TransmitClock};
use crate::versions::Versions;
use crate::{Error, Result, interface};

/// `IPV6_MULTICAST_ALL` of `linux/in6.h`.
const IPV6_MULTICAST_ALL: i32 = 29;
/// `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET` of `asm-generic/socket.h`.
const SO_PREFER_BUSY_POLL: i32 = 69;

/// `SOF_TIMESTAMPING_TX_SOFTWARE`, `_SOFTWARE`, `_OPT_ID` and `_OPT_TSONLY` of `linux/net_tstamp.h`, and
/// `_OPT_RX_FILTER`.
const TX_TIMESTAMPS: u32 = 1 << 1 | 1 << 4 | 1 << 7 | 1 << 11;
const OPT_RX_FILTER: u32 = 1 << 17;

/// A socket with these options for a backend, bound and joined.
pub(crate) fn open(options: &Options, backend: Backend) -> Result<OwnedFd> {
    let Versions { v4, v6 } = options.versions();
    let given = options.socket.as_ref().map(|socket| socket.try_clone());
    let is_given = given.is_some();
    let socket = given.unwrap_or_else(|| datagram(v6));
    let socket = socket.map_err(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => {
            Error::Invalid(format!("cannot bind to {}: this host has no IPv6", options.bind))
        }
        _ => Error::system("open a UDP socket", error),
    })?;
    let fd = socket.as_fd();
    let enable = |level, option, value: i32, what: &str| {
        set(fd, level, option, &value).map_err(|error| Error::system(what.to_owned(), error))
    };
    if v6 {
        if !is_given {
            let only = i32::from(!v4);
            enable(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, only, "set IPV6_V6ONLY")?;
        }
        enable(libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0, "receive joined groups only")?;
    }
    if v4 {
        enable(libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0, "receive joined groups only")?;
    }
    // Programs that receive one group share its port this way. An address of this host is not shared: the last
    // socket to bind would get all messages. Nor is a group that xdp takes: another program would get none.
    if options.bind.ip().is_multicast() && backend != Backend::Xdp && !is_given {
        enable(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1, "share a group")?;
    }
    if options.reuseport != Reuseport::Exclusive && !is_given {
        enable(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1, "share a port")?;
    }
    if let Some(name) = &options.interface {
        bind_to_device(fd, name)?;
    }
    if let Some(bytes) = options.recv_buffer_size {
        set_recv_buffer_size(fd, bytes)
            .map_err(|error| Error::system("size the buffer of a socket", error))?;
    }
    if let Some(time) = options.busy_poll {
        let time = i32::try_from(time.as_micros()).unwrap_or(i32::MAX);
        privileged(set(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &time), "poll busily")?;
        privileged(set(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, &1i32), "poll busily")?;
    }
    enable_metadata(options, fd)?;
    enable_sending(options, fd)?;
    if backend == Backend::Gro || is_given && probe_gro().is_ok() {
        let on = i32::from(backend == Backend::Gro);
        enable(libc::SOL_UDP, UDP_GRO, on, "have the kernel coalesce datagrams (UDP_GRO)")?;
    }
    if !is_given {
        bind(fd, options.bind)?;
    }
    select_receiver(fd, options.reuseport)?;
    for group in &options.groups {
        set_membership(fd, Membership::Join, group)?;
    }
    Ok(socket)
}

/// Whether the kernel coalesces datagrams for a socket.
pub(crate) fn probe_gro() -> std::result::Result<(), String> {
    let socket = datagram(false).map_err(|error| format!("no UDP socket: {error}"))?;
    set(socket.as_fd(), libc::SOL_UDP, UDP_GRO, &1i32)
        .map_err(|error| format!("this kernel has no UDP_GRO ({error}); Linux 5.0 does"))
}

/// The address that a socket got, with the port that the kernel chose for port 0.
pub(crate) fn local_address(fd: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    Ok(net::getsockname(fd)?.try_into()?)
}

/// Bytes that the kernel lets a socket queue, overhead included: twice what was asked for.
pub(crate) fn recv_buffer_size(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get::<1>(fd, libc::SOL_SOCKET, libc::SO_RCVBUF).map(|[bytes]| bytes)
}

/// The same of what it sends.
pub(crate) fn send_buffer_size(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get::<1>(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).map(|[bytes]| bytes)
}

/// TTL and traffic class of packets that a socket sends by IPv4, then by IPv6.
pub(crate) fn ip_defaults(fd: BorrowedFd<'_>) -> [(u8, u8); 2] {
    [
        (libc::IPPROTO_IP, libc::IP_TTL, libc::IP_TOS),
        (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, libc::IPV6_TCLASS),
    ]
    .map(|(level, ttl, class)| {
        // An IPv4 socket has no options of IPv6, and sends none.
        let read = |option| super::get::<1>(fd, level, option).ok().map(|[value]| value as u8);
        (read(ttl).unwrap_or(64), read(class).unwrap_or(0))
    })
}

/// A UDP socket of IPv6 or IPv4.
pub(super) fn datagram(v6: bool) -> io::Result<OwnedFd> {
    let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    Ok(net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

pub(super) const NEEDS_SCOPE: &str = "a link-local address needs its interface, by number, as in [fe80::1%2]:7000; `ip link` has the numbers";

pub(super) fn lacks_scope(address: SocketAddr) -> bool {
    let SocketAddr::V6(address) = address else { return false };
    address.scope_id() == 0 && is_of_link(address.ip())
}

pub(super) fn bind(fd: BorrowedFd<'_>, address: SocketAddr) -> Result<()> {
    net::bind(fd, &address).map_err(|errno| match errno {
        Errno::ADDRNOTAVAIL => Error::AddressNotAvailable(address),
        Errno::ADDRINUSE => Error::AddressInUse(address),
        Errno::ACCESS if privilege::lacks("CAP_NET_BIND_SERVICE") => Error::Privilege {
            action: format!("bind to {address}"),
            capability: "CAP_NET_BIND_SERVICE",
        },
        Errno::INVAL if lacks_scope(address) => {
            Error::Invalid(format!("cannot bind to {address}: {NEEDS_SCOPE}"))
        }
        _ => Error::system(format!("bind to {address}"), errno.into()),
    })
}

fn bind_to_device(fd: BorrowedFd<'_>, name: &str) -> Result<()> {
    interface::index(name)?;
    let (option, len) = (libc::SO_BINDTODEVICE, name.len() as libc::socklen_t);
    // SAFETY: the name is readable for its length.
    let answer = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, name.as_ptr().cast(), len)
    };
    check(answer as isize)
        .map(drop)
        .map_err(|error| Error::system(format!("bind a socket to interface {name}"), error))
}

/// As much as was asked for where the process may, else as much as `net.core.rmem_max` allows.
fn set_recv_buffer_size(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
    set(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
        .or_else(|_| set(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes))
}

const DESTINATION: &str = "ask for the destination of messages";
const TRAFFIC_CLASS: &str = "ask for the traffic class of messages";

fn enable_metadata(options: &Options, fd: BorrowedFd<'_>) -> Result<()> {
    let Versions { v4, v6 } = options.versions();
    let metadata = options.metadata;
    let both = v4 && v6;
    let (level, destination, class) = if v6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, libc::IPV6_RECVTCLASS)
    } else {
        (libc::IPPROTO_IP, libc::IP_PKTINFO, libc::IP_RECVTOS)
    };
    for (on, level, option, what) in [
        (metadata.destination, level, destination, DESTINATION),
        (metadata.destination && both, libc::IPPROTO_IP, libc::IP_PKTINFO, DESTINATION),
        (metadata.traffic_class, level, class, TRAFFIC_CLASS),
        (metadata.traffic_class && both, libc::IPPROTO_IP, libc::IP_RECVTOS, TRAFFIC_CLASS),
        (metadata.timestamp, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, "ask for timestamps"),
    ] {
        if on {
            set(fd, level, option, &1i32).map_err(|error| Error::system(what, error))?;
        }
    }
    Ok(())
}

/// Has an IPv6 socket report the destination of IPv4 messages once: quinn's buffers have no room for more.
#[cfg(feature = "quinn")]
pub(crate) fn disable_ipv4_info(fd: BorrowedFd<'_>) {
    // Known to every socket that can receive IPv4.
    let _ = set(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, &0i32);
}

/// The options for sending, and the error queue.
fn enable_sending(options: &Options, fd: BorrowedFd<'_>) -> Result<()> {
    let Versions { v4, v6 } = options.versions();
    let SendOptions {
        mtu_discovery,
        ttl,
        broadcast,
        multicast_ttl,
        multicast_loop,
        multicast_interface,
        buffer_size,
        backend: _,
        gso: _,
        timestamps,
        transmit_clock,
        max_pacing_rate,
    } = &options.send;
    let index = multicast_interface.as_deref().map(interface::index).transpose()?;
    let discovery = mtu_discovery.map(|discovery| match discovery {
        MtuDiscovery::Off => libc::IP_PMTUDISC_DONT,
        MtuDiscovery::Fragment => libc::IP_PMTUDISC_WANT,
        MtuDiscovery::Refuse => libc::IP_PMTUDISC_DO,
        MtuDiscovery::Probe => libc::IP_PMTUDISC_PROBE,
    });
    let errors = options.icmp_errors.then_some(1);
    let number = |value: Option<u8>| value.map(i32::from);
    let looped = multicast_loop.map(i32::from);
    let v4_options = [
        (libc::IP_MTU_DISCOVER, discovery, "set MTU discovery"),
        (libc::IP_TTL, number(*ttl), "set the TTL"),
        (libc::IP_MULTICAST_TTL, number(*multicast_ttl), "set the multicast TTL"),
        (libc::IP_MULTICAST_LOOP, looped, "set the multicast loop"),
        (libc::IP_RECVERR, errors, "enable ICMP errors"),
    ];
    let v6_options = [
        (libc::IPV6_MTU_DISCOVER, discovery, "set MTU discovery"),
        (libc::IPV6_UNICAST_HOPS, number(*ttl), "set the hop limit"),
        (libc::IPV6_MULTICAST_HOPS, number(*multicast_ttl), "set the multicast hop limit"),
        (libc::IPV6_MULTICAST_LOOP, looped, "set the multicast loop"),
        (libc::IPV6_RECVERR, errors, "enable ICMPv6 errors"),
        (libc::IPV6_MULTICAST_IF, index.map(u32::cast_signed), "set the multicast interface"),
    ];
    let of =
        |on: bool, level| move |(option, value, what)| on.then_some((level, option, value, what));
    let v4_options = v4_options.into_iter().filter_map(of(v4, libc::IPPROTO_IP));
    let v6_options = v6_options.into_iter().filter_map(of(v6, libc::IPPROTO_IPV6));
    let broadcast = (
        libc::SOL_SOCKET,
        libc::SO_BROADCAST,
        broadcast.map(i32::from),
        "allow broadcast messages",
    );
    for (level, option, value, what) in v4_options.chain(v6_options).chain([broadcast]) {
        if let Some(value) = value {
            set(fd, level, option, &value).map_err(|error| Error::system(what, error))?;
        }
    }
    if let Some(index) = index.filter(|_| v4) {
        let any = libc::in_addr { s_addr: 0 };
        let request = libc::ip_mreqn {
            imr_multiaddr: any,
            imr_address: any,
            imr_ifindex: index.cast_signed(),
        };
        set(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)
            .map_err(|error| Error::system("set the multicast interface", error))?;
    }
    if let Some(bytes) = *buffer_size {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX / 2);
        set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
            .or_else(|_| set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes))
            .map_err(|error| Error::system("size the buffer of a socket", error))?;
    }
    if *timestamps {
        // Kernels before 6.12 do not know the last, which keeps received messages as they are.
        set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &(TX_TIMESTAMPS | OPT_RX_FILTER))
            .or_else(|_| set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &TX_TIMESTAMPS))
            .map_err(|error| Error::system("ask for transmit timestamps", error))?;
    }
    if let Some(clock) = transmit_clock {
        let clock = match clock {
            TransmitClock::Monotonic => libc::CLOCK_MONOTONIC,
            TransmitClock::Tai => libc::CLOCK_TAI,
        };
        // `struct sock_txtime`: the clock, and `SOF_TXTIME_REPORT_ERRORS`.
        privileged(set(fd, libc::SOL_SOCKET, libc::SO_TXTIME, &[clock, 2]), "set transmit times")?;
    }
    if let Some(rate) = max_pacing_rate {
        set(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate)
            .map_err(|error| Error::system("set the pacing rate", error))?;
    }
    Ok(())
}

/// The address that a socket of a caller is bound to, and whether it leaves IPv4 to others.
pub(crate) fn bound(fd: BorrowedFd<'_>) -> Result<(SocketAddr, bool)> {
    let ask = |level, option| {
        get::<1>(fd, level, option)
            .map(|[value]| value.cast_signed())
            .map_err(|error| Error::system("read the type of a socket", error))
    };
    let is_udp = ask(libc::SOL_SOCKET, libc::SO_PROTOCOL)? == libc::IPPROTO_UDP;
    let family = ask(libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    if !is_udp || !matches!(family, libc::AF_INET | libc::AF_INET6) {
        return Err(Error::Invalid("the socket is not a UDP socket".to_owned()));
    }
    let address =
        local_address(fd).map_err(|error| Error::system("read the address of a socket", error))?;
    if address.port() == 0 {
        return Err(Error::Invalid("the socket is not bound to a port".to_owned()));
    }
    if matches!(net::getpeername(fd), Ok(Some(_))) {
        return Err(Error::Invalid("the socket is connected to one peer".to_owned()));
    }
    if unmapped(address) != address {
        return Err(Error::Invalid(format!(
            "the socket is an IPv6 socket bound to {address}: bind an IPv4 socket"
        )));
    }
    let only_v6 = family == libc::AF_INET6 && ask(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)? != 0;
    Ok((address, only_v6))
}

fn privileged(answer: io::Result<()>, action: &str) -> Result<()> {
    answer.map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) if privilege::lacks("CAP_NET_ADMIN") => {
            Error::Privilege { action: action.to_owned(), capability: "CAP_NET_ADMIN" }
        }
        _ => Error::system(action, error),
    })
}

/// Which of the sockets of one port gets a message.
fn select_receiver(fd: BorrowedFd<'_>, reuseport: Reuseport) -> Result<()> {
    let (sockets, what) = match reuseport {
        Reuseport::Exclusive | Reuseport::Flow => return Ok(()),
        Reuseport::Cpu { sockets } => (sockets, libc::SKF_AD_OFF + libc::SKF_AD_CPU),
        Reuseport::Spread { sockets } => (sockets, libc::SKF_AD_OFF + libc::SKF_AD_RANDOM),
    };
    if sockets == 0 {
        return Err(Error::Invalid("0 sockets cannot share a port".to_owned()));
    }
    let instruction = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, what as u32),
        instruction(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, sockets),
        instruction(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
        .map_err(|error| Error::system("choose among the sockets of a port", error))
}
