//! [`ControlMessages`]: the ancillary data of a received message (cmsg(3)), read as bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::sockaddr::{scoped, unmapped};
use crate::message::Message;

/// The most bytes that ancillary data can take: UDP_GRO, a timestamp, the packet information of IPv6 and IPv4 and the
/// traffic class; and where transmit timestamps are on, kernels before 6.12 add another form of the timestamp.
pub(crate) const CMSG_SPACE: usize = 24 + 32 + 40 + 32 + 24 + 64;

const HEADER: usize = size_of::<libc::cmsghdr>();
/// `UDP_GRO` of `linux/udp.h`.
pub(super) const UDP_GRO: i32 = 104;

/// What the kernel reports of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ControlMessages {
    /// Bytes of each segment but the last, of a super-datagram (`UDP_GRO`).
    pub(crate) segment_size: Option<usize>,
    pub(crate) timestamp: Option<u64>,
    pub(crate) traffic_class: Option<u8>,
    pub(crate) interface_index: Option<u32>,
    pub(crate) destination: Option<IpAddr>,
    pub(crate) broadcast: bool,
}

impl ControlMessages {
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let mut control = Self::default();
        each(bytes, |kind, data| control.take(kind, data));
        control
    }

    /// The message with this ancillary data. Its destination is `bound`, the address of the socket, where the
    /// kernel reports none.
    #[inline]
    pub(crate) fn message<'m>(
        &self,
        payload: &'m [u8],
        source: SocketAddr,
        bound: SocketAddr,
        truncated: bool,
    ) -> Message<'m> {
        let destination = self
            .destination
            .map(|ip| scoped(unmapped(SocketAddr::new(ip, bound.port())), self.interface_index));
        Message {
            payload,
            source: unmapped(source),
            destination: destination.unwrap_or(bound),
            broadcast: self.broadcast,
            timestamp: self.timestamp,
            traffic_class: self.traffic_class,
            interface_index: self.interface_index,
            next_hop: None,
            truncated,
        }
    }

    #[inline]
    fn take(&mut self, kind: (i32, i32), data: &[u8]) {
        match kind {
            (libc::SOL_UDP, UDP_GRO) => {
                self.segment_size = usize::try_from(i32::from_ne_bytes(array(data, 0))).ok();
            }
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => self.timestamp = timespec(data),
            (libc::IPPROTO_IP, libc::IP_TOS) => self.traffic_class = data.first().copied(),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.traffic_class = Some(i32::from_ne_bytes(array(data, 0)) as u8);
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                self.interface_index = Some(u32::from_ne_bytes(array(data, 0)));
                let destination = Ipv4Addr::from(array::<4>(data, 8));
                self.destination = Some(destination.into());
                // `ipi_spec_dst` is the address of the host that answers.
                self.broadcast =
                    !destination.is_multicast() && destination.octets() != array(data, 4);
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                self.destination = Some(Ipv6Addr::from(array::<16>(data, 0)).into());
                self.interface_index = Some(u32::from_ne_bytes(array(data, 16)));
            }
            _ => {}
        }
    }
}

/// The nanoseconds of a `struct timespec`.
#[inline]
pub(super) fn timespec(data: &[u8]) -> Option<u64> {
    let seconds = u64::from_ne_bytes(array(data, 0));
    seconds.checked_mul(1_000_000_000)?.checked_add(u64::from_ne_bytes(array(data, 8)))
}

/// Calls `take` with level and type, and the data, of each control message.
#[inline]
pub(super) fn each<'b>(mut bytes: &'b [u8], mut take: impl FnMut((i32, i32), &'b [u8])) {
    while let Some((header, _)) = bytes.split_at_checked(HEADER) {
        let len = usize::from_ne_bytes(array(header, 0));
        let kind = (i32::from_ne_bytes(array(header, 8)), i32::from_ne_bytes(array(header, 12)));
        let Some(data) = bytes.get(HEADER..len) else { break };
        take(kind, data);
        bytes = bytes.get(len.next_multiple_of(8)..).unwrap_or(&[]);
    }
}

#[inline]
fn array<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    bytes.get(from..from + N).and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}

#[cfg(test)]
mod tests;
