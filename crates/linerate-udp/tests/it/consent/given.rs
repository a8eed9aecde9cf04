//! Sockets that a caller gives to the receiver, with their options.

use nix::sys::socket::{setsockopt, sockopt};

use super::situations::{BASE, OTHER_INTERFACE};
use super::{Consent, Situation, option};

/// Options of a caller's socket.
pub(super) const GIVEN: &[Situation] = &[
    Situation { name: "a given socket", given: Some(|_| Ok(())), consent: Consent::Holds, ..BASE },
    Situation {
        name: "a given socket is bound to another interface",
        here: OTHER_INTERFACE,
        bind: "0.0.0.0:7000",
        given: Some(|socket| {
            let name = std::ffi::OsString::from("other");
            setsockopt(socket, sockopt::BindToDevice, &name).map_err(|error| error.to_string())
        }),
        delivered: 0,
        answered: 0,
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a given socket has a filter",
        given: Some(super::filter),
        delivered: 3,
        answered: 3,
        consent: Consent::Refused("SO_ATTACH_FILTER"),
        ..BASE
    },
    Situation {
        name: "a given socket is encapsulated",
        // `UDP_ENCAP_ESPINUDP`: what is no ESP is handled by the kernel.
        given: Some(|socket| option(socket, libc::SOL_UDP, 100, 2)),
        delivered: 0,
        answered: 0,
        consent: Consent::Refused("UDP_ENCAP"),
        ..BASE
    },
    Situation {
        name: "a given socket takes IPv6 without checksums",
        bind: "[fd77::2]:7000",
        given: Some(|socket| option(socket, libc::SOL_UDP, 102, 1)),
        from: "[fd77::1]:5000",
        to: "[fd77::2]:7000",
        consent: Consent::Refused("UDP_NO_CHECK6_RX"),
        ..BASE
    },
    Situation {
        name: "a given socket has a least TTL",
        given: Some(|socket| option(socket, libc::IPPROTO_IP, libc::IP_MINTTL, 200)),
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a given socket is of IPv6 alone",
        bind: "[::]:7000",
        options: &[(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)],
        given: Some(|_| Ok(())),
        delivered: 0,
        answered: 0,
        consent: Consent::HoldsOn("rx"),
        ..BASE
    },
    Situation {
        name: "a given socket is bound to an address that is nobody's",
        bind: "10.99.0.1:7000",
        there: &["ip route add 10.99.0.0/24 via 10.77.0.2"],
        options: &[(libc::IPPROTO_IP, libc::IP_FREEBIND, 1)],
        given: Some(|_| Ok(())),
        to: "10.99.0.1:7000",
        delivered: 0,
        answered: 0,
        consent: Consent::HoldsOn("rx"),
        ..BASE
    },
    Situation {
        name: "a given socket reports errors, times and addresses",
        given: Some(|socket| {
            option(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
            option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
            option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 0x98)
        }),
        consent: Consent::Holds,
        ..BASE
    },
    Situation {
        name: "a given socket has an IPsec policy",
        given: Some(super::block),
        delivered: 0,
        answered: 0,
        consent: Consent::Refused("IPsec"),
        ..BASE
    },
    Situation {
        name: "a given socket shares its port",
        given: Some(|socket| option(socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)),
        consent: Consent::Refused("SO_REUSEPORT"),
        ..BASE
    },
];
