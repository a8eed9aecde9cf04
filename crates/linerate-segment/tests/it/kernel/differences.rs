//! What may differ between the kernel and us, which cases, how exactly, and why. A case that is listed
//! here has to differ as it says.

use super::compare::Difference;
use super::packet::{How, Ip, Shape, TCP, Transport};
use super::wire::Seen;

/// What differs on every way in.
pub(crate) const DIFFERENCES: [Difference; 6] = [
    Difference {
        // Sequence numbers would be taken twice; the kernel's own TCP never makes such a packet.
        name: "a SYN with data for several segments is refused by us",
        of: |shape| shape.is_syn() && shape.payload > usize::from(shape.size) && !shape.is_stub(),
        is: |_, kernel, ours| kernel.len() > 1 && ours.is_err(),
    },
    Difference {
        // `__virtio_net_hdr_to_skb` counts TCP options as payload, `tcp_gso_segment` does not.
        name: "payload for one segment, more than that with the TCP options: the kernel drops it",
        of: Shape::is_stub,
        is: |_, kernel, ours| kernel.is_empty() && ours.as_ref().is_ok_and(|ours| ours.len() == 1),
    },
    Difference {
        // `UDP_MAX_SEGMENTS`.
        name: "more than 128 datagrams are refused by the kernel",
        of: |shape| shape.how == How::Datagrams && shape.payload > 128 * usize::from(shape.size),
        is: |_, kernel, ours| kernel.is_empty() && ours.is_ok(),
    },
    Difference {
        // We are asked for an MTU, which has room for what would be the fragment header.
        name: "an IPv6 datagram that fits without a fragment header is left whole by us",
        of: |shape| {
            let len = shape.payload + 8;
            let size = usize::from(shape.size);
            shape.how == How::Fragments && !shape.is_v4() && (size + 1..=size + 8).contains(&len)
        },
        is: |_, kernel, ours| kernel.len() == 2 && ours.as_ref().is_ok_and(|ours| ours.len() == 1),
    },
    Difference {
        // `ipv6_gso_segment` counts them at every fragment, which no receiver could put together.
        name: "IPv6 extension headers are counted in the offsets of the kernel's UFO",
        of: |shape| {
            let several = shape.payload + 8 > usize::from(shape.size);
            shape.how == How::Fragments && !shape.is_v4() && shape.network_len() > 40 && several
        },
        is: |shape, kernel, ours| {
            let extensions = shape.network_len() - 40;
            let at = shape.link_len() + shape.network_len() + 2;
            let mut counted = ours.as_ref().expect("fragments").clone();
            for (index, frame) in counted.iter_mut().enumerate() {
                let offset = u16::from_be_bytes([frame[at], frame[at + 1]]);
                let offset = offset.wrapping_add((index * extensions) as u16);
                frame[at..at + 2].copy_from_slice(&offset.to_be_bytes());
            }
            counted == *kernel
        },
    },
    Difference {
        // `inet_gso_segment` repeats the header; `ip_fragment` does as RFC 791 says, and we do.
        name: "IPv4 options that are not for every fragment are repeated by the kernel's UFO",
        of: |shape| shape.how == How::Fragments && shape.has_first_only_options(),
        is: |shape, kernel, ours| {
            let ours = ours.as_ref().expect("fragments");
            let header = shape.link_len()..shape.link_len() + shape.network_len();
            let all_in_header = |(ours, kernel): (&Vec<u8>, &Vec<u8>)| {
                let places = differing(ours, kernel);
                !places.is_empty() && places.iter().all(|at| header.contains(at))
            };
            ours.len() == kernel.len()
                && ours[0] == kernel[0]
                && ours.iter().zip(kernel).skip(1).all(all_in_header)
        },
    },
];

/// What differs where a router fragments for an MTU of 68 bytes.
pub(crate) const ROUTED: [Difference; 1] = [Difference {
    name: "a TCP header that does not fit one fragment up to its checksum is refused by us",
    of: |shape| {
        let len = shape.network_len() + shape.transport_len() + shape.payload;
        shape.protocol() == TCP && shape.size < 18 && len > 68 && !shape.is_df()
    },
    is: |_, kernel, ours| kernel.len() > 1 && ours.is_err(),
}];

/// What differs in tunnels from a TAP device.
pub(crate) const TUNNELS: [Difference; 4] = {
    let [syn, stub, many, ..] = DIFFERENCES;
    let single = Difference {
        // The virtio header speaks of the outer checksum of segments only.
        name: "the kernel does not complete the outer checksum of a frame that is no super-packet",
        of: Shape::is_single,
        is: |_, kernel, ours| {
            let ([ours], [kernel]) = (&ours.as_ref().expect("a frame")[..], &kernel[..]) else {
                return false;
            };
            let udp = if kernel[12] == 0x08 { 34 } else { 54 };
            let places = differing(ours, kernel);
            !places.is_empty() && places.iter().all(|at| (udp + 6..udp + 8).contains(at))
        },
    };
    [syn, stub, many, single]
};

/// Where two frames differ, everywhere behind the shorter one.
fn differing(a: &[u8], b: &[u8]) -> Vec<usize> {
    (0..a.len().max(b.len())).filter(|at| a.get(*at) != b.get(*at)).collect()
}

impl Shape {
    fn is_syn(&self) -> bool {
        matches!(self.transport, Transport::Tcp { flags, .. } if flags & 2 != 0)
    }

    fn is_df(&self) -> bool {
        matches!(self.ip, Ip::V4 { df: true, .. })
    }

    /// No super-packet to the virtio header.
    pub(crate) fn is_single(&self) -> bool {
        let options = self.transport_len() - if self.how == How::Tcp { 20 } else { 8 };
        self.payload + options <= usize::from(self.size)
    }

    /// One segment to us and to `tcp_gso_segment`, and several to the virtio header.
    fn is_stub(&self) -> bool {
        let options = self.transport_len() - 20.min(self.transport_len());
        let size = usize::from(self.size);
        self.how == How::Tcp && self.payload <= size && self.payload + options > size
    }

    /// The identification of IPv6 fragments, which the kernel chooses and we are given.
    pub(crate) fn fragment_id(&self, kernel: &Seen) -> u32 {
        if self.how != How::Fragments || self.is_v4() {
            return 0;
        }
        let at = self.link_len() + self.network_len() + 4;
        let id = kernel.first().and_then(|frame| frame.get(at..at + 4));
        id.map_or(0, |id| u32::from_be_bytes(id.try_into().expect("four bytes")))
    }

    /// Options that only the first fragment is to have, of a datagram that makes more: those that do
    /// something, and have not the high bit.
    fn has_first_only_options(&self) -> bool {
        let Ip::V4 { options, .. } = &self.ip else { return false };
        let mut rest = &options[..];
        while let [kind, after @ ..] = rest {
            rest = match kind {
                0 => return false,
                1 => after,
                kind if kind & 0x80 == 0 => return self.payload + 8 > usize::from(self.size),
                _ => &rest[usize::from(after[0])..],
            };
        }
        false
    }
}
