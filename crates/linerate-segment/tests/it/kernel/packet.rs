//! Super-packets for the kernel and for us, written byte by byte so that every field can have every
//! value, and the virtio header that goes with them.

use linerate_segment::segment::Split;
use linerate_wire::checksum::{self, Sum};
use linerate_wire::virtio::{Flags, GsoType, Header};

use linerate_testkit::Random;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// Where every frame goes.
pub(crate) const TO: [u8; 6] = [0x02, 0, 0, 0, 0, 2];

/// An IP header, its options or extension headers included.
#[derive(Clone, Debug)]
pub(crate) enum Ip {
    V4 { tos: u8, id: u16, df: bool, ttl: u8, options: Vec<u8> },
    V6 { class: u8, flow: u32, hops: u8, extensions: Vec<(u8, Vec<u8>)> },
}

/// What IP carries, without its payload.
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Tcp { flags: u16, sequence: u32, urgent: u16, options: Vec<u8> },
    Udp,
}

/// How the kernel is asked to segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Tcp,
    Datagrams,
    Fragments,
}

/// Everything about a super-packet but its payload's bytes and its number.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) tags: Vec<[u8; 4]>,
    pub(crate) ip: Ip,
    pub(crate) transport: Transport,
    pub(crate) how: How,
    /// Payload bytes of a segment or datagram; IP payload bytes of a fragment.
    pub(crate) size: u16,
    pub(crate) payload: usize,
    /// The virtio header has the bit for CWR.
    pub(crate) ecn_bit: bool,
    pub(crate) hint: Hint,
}

/// What the virtio header claims of the length of all headers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hint {
    Right,
    Zero,
    LinkAndNetwork,
}

impl Shape {
    pub(crate) fn is_v4(&self) -> bool {
        matches!(self.ip, Ip::V4 { .. })
    }

    pub(crate) fn protocol(&self) -> u8 {
        match self.transport {
            Transport::Tcp { .. } => TCP,
            Transport::Udp => UDP,
        }
    }

    pub(crate) fn link_len(&self) -> usize {
        14 + 4 * self.tags.len()
    }

    pub(crate) fn network_len(&self) -> usize {
        match &self.ip {
            Ip::V4 { options, .. } => 20 + options.len(),
            Ip::V6 { extensions, .. } => {
                40 + extensions.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
            }
        }
    }

    pub(crate) fn transport_len(&self) -> usize {
        match &self.transport {
            Transport::Tcp { options, .. } => 20 + options.len(),
            Transport::Udp => 8,
        }
    }

    pub(crate) fn headers_len(&self) -> usize {
        self.link_len() + self.network_len() + self.transport_len()
    }

    /// The same request in our words.
    pub(crate) fn split(&self) -> Split {
        match self.how {
            How::Tcp => Split::Tcp { mss: self.size },
            How::Datagrams => Split::Udp { size: self.size },
            How::Fragments => {
                // Extension headers of generated fragments all belong to every fragment.
                let fragment_header = if self.is_v4() { 0 } else { 8 };
                let headers = self.network_len() + fragment_header;
                Split::Fragments { mtu: (headers + usize::from(self.size)) as u16 }
            }
        }
    }

    /// The virtio header that asks the kernel.
    pub(crate) fn header(&self) -> Header {
        let kind = match (self.how, self.is_v4()) {
            (How::Tcp, true) => GsoType::TCPV4,
            (How::Tcp, false) => GsoType::TCPV6,
            (How::Datagrams, _) => GsoType::UDP_L4,
            (How::Fragments, _) => GsoType::UDP,
        };
        let to_transport = self.link_len() + self.network_len();
        let header_len = match self.hint {
            Hint::Right => self.headers_len(),
            Hint::Zero => 0,
            Hint::LinkAndNetwork => to_transport,
        };
        Header {
            flags: Flags::NEEDS_CSUM,
            gso_type: if self.ecn_bit { kind.union(GsoType::ECN) } else { kind },
            hdr_len: header_len as u16,
            gso_size: self.size,
            csum_start: to_transport as u16,
            csum_offset: if self.protocol() == TCP { 16 } else { 6 },
            ..Header::default()
        }
    }

    /// The virtio header of the packet without its link header.
    pub(crate) fn header_without_link(&self) -> Header {
        let header = self.header();
        let link = self.link_len() as u16;
        Header {
            hdr_len: header.hdr_len.saturating_sub(link),
            csum_start: header.csum_start - link,
            ..header
        }
    }

    /// Completes the checksum of a packet without link header.
    pub(crate) fn finish(&self, packet: &mut [u8]) {
        let at = self.network_len();
        let sum = Sum::ZERO.bytes(&packet[at..]);
        let (field, sum) = match self.transport {
            Transport::Tcp { .. } => (at + 16, sum.checksum()),
            Transport::Udp => (at + 6, sum.udp_checksum()),
        };
        packet[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// The frame, whose source address (that of Ethernet, and the end of that of IP) is its number.
    /// The transport checksum is the sum of the pseudo header, as a sender leaves it to hardware.
    pub(crate) fn frame(&self, number: u32, random: &mut Random) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.headers_len() + self.payload);
        frame.extend(TO);
        frame.extend(from(number));
        self.tags.iter().for_each(|tag| frame.extend(tag));
        frame.extend(if self.is_v4() { [0x08, 0x00] } else { [0x86, 0xdd] });
        frame.extend(self.packet(number, random));
        frame
    }

    /// The frame without its link header.
    pub(crate) fn packet(&self, number: u32, random: &mut Random) -> Vec<u8> {
        let upper_len = self.transport_len() + self.payload;
        let mut packet = Vec::with_capacity(self.network_len() + upper_len);
        let pseudo = self.ip.write(&mut packet, self.protocol(), number, upper_len);
        let at = packet.len();
        packet.extend([0x10, 0x92, 0x23, 0x28]);
        let checksum_at = match &self.transport {
            Transport::Tcp { flags, sequence, urgent, options } => {
                packet.extend(sequence.to_be_bytes());
                packet.extend(number.to_be_bytes());
                let len = (20 + options.len()) as u16 / 4;
                packet.extend((len << 12 | flags).to_be_bytes());
                packet.extend([0x7f, 0xf1, 0, 0]);
                packet.extend(urgent.to_be_bytes());
                packet.extend(options);
                at + 16
            }
            Transport::Udp => {
                packet.extend((upper_len as u16).to_be_bytes());
                packet.extend([0, 0]);
                at + 6
            }
        };
        packet[checksum_at..checksum_at + 2].copy_from_slice(&pseudo.folded().to_be_bytes());
        packet.extend(random.bytes(self.payload));
        packet
    }
}

impl Ip {
    /// Writes the header and returns the sum of the pseudo header.
    fn write(&self, packet: &mut Vec<u8>, protocol: u8, number: u32, upper_len: usize) -> Sum {
        // The first few are addresses of networks and interfaces.
        let [_, a, b, c] = (number + 256).to_be_bytes();
        match self {
            Self::V4 { tos, id, df, ttl, options } => {
                let (source, to) = ([10, a, b, c], [192, 168, 77, 2]);
                let header_len = 20 + options.len();
                let at = packet.len();
                packet.extend([0x40 | (header_len / 4) as u8, *tos]);
                packet.extend(((header_len + upper_len) as u16).to_be_bytes());
                packet.extend(id.to_be_bytes());
                packet.extend([if *df { 0x40 } else { 0 }, 0, *ttl, protocol, 0, 0]);
                packet.extend(source);
                packet.extend(to);
                packet.extend(options);
                let sum = checksum::of(&packet[at..]);
                packet[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
                let protocol = linerate_wire::ip::Protocol(protocol);
                Sum::pseudo_v4(source.into(), to.into(), protocol, upper_len as u16)
            }
            Self::V6 { class, flow, hops, extensions } => {
                let source = [0xfd, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c];
                let to = [0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
                let len: usize = extensions.iter().map(|(_, bytes)| bytes.len()).sum();
                let first = extensions.first().map_or(protocol, |(kind, _)| *kind);
                let word = 6 << 28 | u32::from(*class) << 20 | flow & 0xf_ffff;
                packet.extend(word.to_be_bytes());
                packet.extend(((len + upper_len) as u16).to_be_bytes());
                packet.extend([first, *hops]);
                packet.extend(source);
                packet.extend(to);
                for (index, (_, bytes)) in extensions.iter().enumerate() {
                    let next = extensions.get(index + 1).map_or(protocol, |(kind, _)| *kind);
                    packet.push(next);
                    packet.extend(&bytes[1..]);
                }
                let protocol = linerate_wire::ip::Protocol(protocol);
                Sum::pseudo_v6(source.into(), to.into(), protocol, upper_len as u32)
            }
        }
    }
}

/// The link-layer address of the sender of a case.
pub(crate) fn from(number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_be_bytes();
    [0x02, 0x10, a, b, c, d]
}
