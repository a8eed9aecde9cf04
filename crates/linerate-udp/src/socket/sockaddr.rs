//! [`SockAddr`]: a `SocketAddr` as the kernel lays it out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

const V4: u16 = libc::AF_INET as u16;
const V6: u16 = libc::AF_INET6 as u16;

/// A `sockaddr_in` or a `sockaddr_in6`, read and written as bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SockAddr([u8; 28]);

impl SockAddr {
    /// Length of the longer one, in bytes.
    pub(crate) const MAX_LEN: u32 = 28;

    pub(crate) fn of(address: SocketAddr) -> Self {
        let mut address_bytes = Self::default();
        let bytes = &mut address_bytes.0;
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(address) => {
                bytes[..2].copy_from_slice(&V4.to_ne_bytes());
                bytes[4..8].copy_from_slice(&address.ip().octets());
            }
            SocketAddr::V6(address) => {
                bytes[..2].copy_from_slice(&V6.to_ne_bytes());
                bytes[4..8].copy_from_slice(&address.flowinfo().to_ne_bytes());
                bytes[8..24].copy_from_slice(&address.ip().octets());
                bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
            }
        }
        address_bytes
    }

    /// The same for an IPv6 socket, which takes IPv4 addresses as IPv4-mapped ones, or for an IPv4 socket.
    #[inline]
    pub(crate) fn of_family(address: SocketAddr, v6: bool) -> Self {
        match address {
            SocketAddr::V4(v4) if v6 => {
                Self::of(SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0).into())
            }
            SocketAddr::V6(_) if !v6 => Self::of(unmapped(address)),
            _ => Self::of(address),
        }
    }

    /// Bytes that are in use.
    pub(crate) fn len(&self) -> u32 {
        if self.family() == V6 { Self::MAX_LEN } else { 16 }
    }

    /// The address; unspecified where the kernel wrote none.
    #[inline]
    pub(crate) fn address(&self) -> SocketAddr {
        Self::read(&self.0)
    }

    /// The address in these bytes.
    #[inline]
    pub(crate) fn read(bytes: &[u8]) -> SocketAddr {
        let array = |from: usize| -> [u8; 4] { part(bytes, from) };
        let [f0, f1, p0, p1] = array(0);
        let port = u16::from_be_bytes([p0, p1]);
        match u16::from_ne_bytes([f0, f1]) {
            V6 => {
                let ip = Ipv6Addr::from(part::<16>(bytes, 8));
                let flow = u32::from_ne_bytes(array(4));
                let scope = u32::from_ne_bytes(array(24));
                SocketAddrV6::new(ip, port, flow, scope).into()
            }
            V4 => (Ipv4Addr::from(array(4)), port).into(),
            _ => (Ipv4Addr::UNSPECIFIED, 0).into(),
        }
    }

    fn family(&self) -> u16 {
        u16::from_ne_bytes([self.0[0], self.0[1]])
    }
}

/// An address of a message, with its scope ID as the kernel sets it: the interface index for link-local addresses.
#[inline]
pub(crate) fn scoped(mut address: SocketAddr, interface: Option<u32>) -> SocketAddr {
    if let (SocketAddr::V6(address), Some(interface)) = (&mut address, interface)
        && is_of_link(address.ip())
    {
        address.set_scope_id(interface);
    }
    address
}

/// Converts an IPv4-mapped IPv6 address to the IPv4 address (RFC 4291 §2.5.5.2).
#[inline]
pub(crate) fn unmapped(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => address,
        // With its scope, where it is none.
        SocketAddr::V6(v6) => v6.ip().to_ipv4_mapped().map_or(address, |ip| (ip, v6.port()).into()),
    }
}

/// Whether an address is valid on one link only (`__ipv6_addr_needs_scope_id`).
pub(super) fn is_of_link(ip: &Ipv6Addr) -> bool {
    // Groups of the link's scope and of the interface's are no less local.
    ip.is_unicast_link_local() || matches!(ip.segments()[0] & 0xff0f, 0xff01 | 0xff02)
}

/// `struct group_req` or `struct group_source_req` (RFC 3678 §5), as bytes.
pub(super) fn group_request(interface: u32, addresses: &[IpAddr]) -> ([u8; 264], usize) {
    // `struct sockaddr_storage` has 128 bytes and is aligned to 8.
    let mut bytes = [0; 264];
    bytes[..4].copy_from_slice(&interface.to_ne_bytes());
    for (place, &address) in addresses.iter().enumerate() {
        let at = 8 + place * 128;
        bytes[at..at + 28].copy_from_slice(&SockAddr::of(SocketAddr::new(address, 0)).0);
    }
    (bytes, 8 + addresses.len() * 128)
}

#[inline]
fn part<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    bytes.get(from..from + N).and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv4_address_is_found_in_an_ipv6_address() {
        for (text, wanted) in [
            ("[::ffff:10.1.2.3]:7", "10.1.2.3:7"),
            ("10.1.2.3:7", "10.1.2.3:7"),
            ("[fe80::1%3]:7", "[fe80::1%3]:7"),
        ] {
            assert_eq!(unmapped(text.parse().unwrap()), wanted.parse().unwrap());
        }
    }

    #[test]
    fn an_address_comes_back_as_it_went_in() {
        for text in ["10.1.2.3:7000", "[fe80::1]:9", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(SockAddr::of(address).address(), address);
        }
        let scoped = SocketAddrV6::new("fe80::7".parse().unwrap(), 1, 2, 3).into();
        assert_eq!(SockAddr::of(scoped).address(), scoped);
        assert_eq!((SockAddr::of(scoped).len(), SockAddr::default().len()), (28, 16));
    }
}
