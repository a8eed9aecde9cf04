//! Builds packets with etherparse, layer by layer, independently of what is tested: a super-packet,
//! and each segment that should come of it, are the same description with other numbers.

use etherparse::{
    IpNumber, Ipv4Header, Ipv4Options, Ipv6FlowLabel, Ipv6Header, TcpHeader, UdpHeader,
};

pub(crate) const VXLAN: u16 = 4789;
pub(crate) const GENEVE: u16 = 6081;

#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) v6: bool,
    pub(crate) id: u16,
    pub(crate) dont_fragment: bool,
    pub(crate) class: u8,
    pub(crate) ttl: u8,
    /// The last byte of the source address.
    pub(crate) host: u8,
    /// IPv4 options, a multiple of 4 bytes.
    pub(crate) options: Vec<u8>,
    /// IPv6 extension headers: number and bytes, the first of which is written over.
    pub(crate) extensions: Vec<(u8, Vec<u8>)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Tcp { sequence: u32, flags: u16, urgent: u16, options: Vec<u8> },
    Udp { checksum: bool },
}

#[derive(Clone, Debug)]
pub(crate) enum Tunnel {
    Vxlan {
        checksum: bool,
        group: bool,
    },
    Geneve {
        checksum: bool,
        options: Vec<u8>,
        bridged: bool,
    },
    Gre {
        checksum: bool,
        key: Option<u32>,
        bridged: bool,
    },
    /// With the extension header of 5G.
    Gtp {
        checksum: bool,
        container: bool,
    },
    /// Without a header of its own if `direct`.
    Gue {
        checksum: bool,
        direct: bool,
    },
    Ip,
}

/// A packet in words.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// Ethernet in front, with so many tags.
    pub(crate) ethernet: Option<usize>,
    pub(crate) outer: Option<(Network, Tunnel)>,
    /// Tags of an Ethernet frame in the tunnel.
    pub(crate) inner_tags: usize,
    pub(crate) network: Network,
    pub(crate) transport: Transport,
    pub(crate) ports: (u16, u16),
    /// Of TCP.
    pub(crate) acknowledgement: u32,
    /// Of TCP.
    pub(crate) window: u16,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const SOURCE: [u8; 4] = [192, 0, 2, 1];
pub(crate) const DESTINATION: [u8; 4] = [198, 51, 100, 77];
pub(crate) const SOURCE6: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub(crate) const DESTINATION6: [u8; 16] =
    [0x20, 1, 0xd, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 2];

impl Default for Network {
    fn default() -> Self {
        Self {
            v6: false,
            id: 0x1234,
            dont_fragment: false,
            class: 0,
            ttl: 64,
            host: 1,
            options: vec![],
            extensions: vec![],
        }
    }
}

impl Network {
    pub(crate) fn v6() -> Self {
        Self { v6: true, ..Self::default() }
    }

    pub(crate) fn header_len(&self) -> usize {
        match self.v6 {
            false => 20 + self.options.len(),
            true => 40 + self.extensions.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(),
        }
    }

    pub(crate) fn v4_header(&self, protocol: u8, payload: usize) -> Ipv4Header {
        let [a, b, c, _] = SOURCE;
        let (protocol, source) = (IpNumber(protocol), [a, b, c, self.host]);
        let mut header =
            Ipv4Header::new(payload as u16, self.ttl, protocol, source, DESTINATION).unwrap();
        header.options = Ipv4Options::try_from(&self.options[..]).unwrap();
        header.set_payload_len(payload).unwrap();
        header.identification = self.id;
        header.dont_fragment = self.dont_fragment;
        header.dscp = (self.class >> 2).try_into().unwrap();
        header.ecn = (self.class & 3).try_into().unwrap();
        header.header_checksum = header.calc_header_checksum();
        header
    }

    pub(crate) fn v6_header(&self, protocol: u8, payload: usize) -> Ipv6Header {
        let extensions = self.header_len() - 40;
        let mut source = SOURCE6;
        source[15] = self.host;
        Ipv6Header {
            traffic_class: self.class,
            flow_label: Ipv6FlowLabel::try_new(0x9_8765).unwrap(),
            payload_length: (extensions + payload) as u16,
            next_header: IpNumber(self.extensions.first().map_or(protocol, |(number, _)| *number)),
            hop_limit: self.ttl,
            source,
            destination: DESTINATION6,
        }
    }

    fn wrap(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.v6 {
            self.v6_header(protocol, payload.len()).write(&mut bytes).unwrap();
            for (index, (_, extension)) in self.extensions.iter().enumerate() {
                let at = bytes.len();
                bytes.extend_from_slice(extension);
                bytes[at] = self.extensions.get(index + 1).map_or(protocol, |(number, _)| *number);
            }
        } else {
            self.v4_header(protocol, payload.len()).write(&mut bytes).unwrap();
        }
        bytes.extend_from_slice(payload);
        bytes
    }

    fn udp(&self, ports: (u16, u16), checksum: bool, payload: &[u8]) -> Vec<u8> {
        let len = payload.len() + 8;
        let mut header = if self.v6 {
            let ip = self.v6_header(17, len);
            UdpHeader::with_ipv6_checksum(ports.0, ports.1, &ip, payload).unwrap()
        } else {
            let ip = self.v4_header(17, len);
            UdpHeader::with_ipv4_checksum(ports.0, ports.1, &ip, payload).unwrap()
        };
        if !checksum {
            header.checksum = 0;
        }
        let mut bytes = Vec::new();
        header.write(&mut bytes).unwrap();
        bytes.extend_from_slice(payload);
        bytes
    }
}

/// The checksum of RFC 1071, word by word.
pub(crate) fn checksum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn ethernet(tags: usize, v6: bool, packet: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 7];
    for tag in 0..tags {
        let kind = if tag + 1 < tags { [0x88, 0xa8] } else { [0x81, 0x00] };
        bytes.extend_from_slice(&kind);
        bytes.extend_from_slice(&[0x60, 100 + tag as u8]);
    }
    bytes.extend_from_slice(if v6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
    bytes.extend_from_slice(packet);
    bytes
}

impl Packet {
    pub(crate) fn tcp(payload: usize) -> Self {
        Self {
            ethernet: Some(0),
            outer: None,
            inner_tags: 0,
            network: Network::default(),
            transport: Transport::Tcp { sequence: 1000, flags: 0x10, urgent: 0, options: vec![] },
            ports: (40_000, 443),
            acknowledgement: 0x0102_0304,
            window: 0x7fff,
            payload: pattern(payload),
        }
    }

    pub(crate) fn udp(payload: usize) -> Self {
        Self { transport: Transport::Udp { checksum: true }, ..Self::tcp(payload) }
    }

    /// Bytes of headers from the first IP header to the payload.
    pub(crate) fn headers(&self) -> usize {
        let transport = match &self.transport {
            Transport::Tcp { options, .. } => 20 + options.len(),
            Transport::Udp { .. } => 8,
        };
        let bridge = 14 + 4 * self.inner_tags;
        let outer = match &self.outer {
            None => 0,
            Some((network, tunnel)) => {
                network.header_len()
                    + match tunnel {
                        Tunnel::Vxlan { .. } => 16 + bridge,
                        Tunnel::Geneve { options, bridged, .. } => {
                            16 + options.len() + if *bridged { bridge } else { 0 }
                        }
                        Tunnel::Gre { checksum, key, bridged } => {
                            let options = usize::from(*checksum) + usize::from(key.is_some());
                            4 + 4 * options + if *bridged { bridge } else { 0 }
                        }
                        Tunnel::Gtp { container, .. } => 16 + 8 * usize::from(*container),
                        Tunnel::Gue { direct, .. } => 12 - 4 * usize::from(*direct),
                        Tunnel::Ip => 0,
                    }
            }
        };
        outer + self.network.header_len() + transport
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let (protocol, transport) = match &self.transport {
            Transport::Udp { checksum } => {
                (17, self.network.udp(self.ports, *checksum, &self.payload))
            }
            Transport::Tcp { sequence, flags, urgent, options } => {
                let mut header = TcpHeader::new(self.ports.0, self.ports.1, *sequence, self.window);
                header.acknowledgment_number = self.acknowledgement;
                header.urgent_pointer = *urgent;
                let bit = |bit: u16| flags & bit != 0;
                header.fin = bit(0x001);
                header.syn = bit(0x002);
                header.rst = bit(0x004);
                header.psh = bit(0x008);
                header.ack = bit(0x010);
                header.urg = bit(0x020);
                header.ece = bit(0x040);
                header.cwr = bit(0x080);
                header.ns = bit(0x100);
                header.set_options_raw(options).unwrap();
                let len = header.header_len() + self.payload.len();
                header.checksum = if self.network.v6 {
                    let ip = self.network.v6_header(6, len);
                    header.calc_checksum_ipv6(&ip, &self.payload).unwrap()
                } else {
                    let ip = self.network.v4_header(6, len);
                    header.calc_checksum_ipv4(&ip, &self.payload).unwrap()
                };
                let mut bytes = Vec::new();
                header.write(&mut bytes).unwrap();
                bytes.extend_from_slice(&self.payload);
                (6, bytes)
            }
        };
        let packet = self.network.wrap(protocol, &transport);
        let (packet, v6) = match &self.outer {
            None => (packet, self.network.v6),
            Some((outer, tunnel)) => (self.encapsulate(outer, tunnel, &packet), outer.v6),
        };
        match self.ethernet {
            None => packet,
            Some(tags) => ethernet(tags, v6, &packet),
        }
    }

    fn encapsulate(&self, outer: &Network, tunnel: &Tunnel, packet: &[u8]) -> Vec<u8> {
        let v6 = self.network.v6;
        let ether_type = if v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        let inside = |bridged: bool| match bridged {
            true => ([0x65, 0x58], ethernet(self.inner_tags, v6, packet)),
            false => (ether_type, packet.to_vec()),
        };
        match tunnel {
            Tunnel::Vxlan { checksum, group } => {
                let flags = if *group { [0x88, 0x08, 0, 9] } else { [8, 0, 0, 0] };
                let mut bytes = flags.to_vec();
                bytes.extend_from_slice(&[0, 0, 42, 0]);
                bytes.extend_from_slice(&inside(true).1);
                outer.wrap(17, &outer.udp((55_555, VXLAN), *checksum, &bytes))
            }
            Tunnel::Geneve { checksum, options, bridged } => {
                let (kind, inner) = inside(*bridged);
                let mut bytes = vec![(options.len() / 4) as u8, 0, kind[0], kind[1], 0, 0, 43, 0];
                bytes.extend_from_slice(options);
                bytes.extend_from_slice(&inner);
                outer.wrap(17, &outer.udp((55_556, GENEVE), *checksum, &bytes))
            }
            Tunnel::Gre { checksum: checked, key, bridged } => {
                let (kind, inner) = inside(*bridged);
                let flags = u8::from(*checked) << 7 | u8::from(key.is_some()) << 5;
                let mut bytes = vec![flags, 0, kind[0], kind[1]];
                if *checked {
                    bytes.extend_from_slice(&[0; 4]);
                }
                if let Some(key) = key {
                    bytes.extend_from_slice(&key.to_be_bytes());
                }
                bytes.extend_from_slice(&inner);
                if *checked {
                    let sum = checksum(&bytes);
                    bytes[4..6].copy_from_slice(&sum.to_be_bytes());
                }
                outer.wrap(47, &bytes)
            }
            Tunnel::Gtp { checksum, container } => {
                let extension: &[u8] = match container {
                    true => &[0, 0, 0, 0x85, 1, 0x10, 9, 0],
                    false => &[],
                };
                let len = (extension.len() + packet.len()) as u16;
                let mut bytes = vec![0x30 | u8::from(*container) << 2, 255];
                bytes.extend_from_slice(&len.to_be_bytes());
                bytes.extend_from_slice(&[0, 0, 0, 44]);
                bytes.extend_from_slice(extension);
                bytes.extend_from_slice(packet);
                outer.wrap(17, &outer.udp((55_557, 2152), *checksum, &bytes))
            }
            Tunnel::Gue { checksum, direct } => {
                let header = [0, if v6 { 41 } else { 4 }, 0, 0];
                let mut bytes = if *direct { vec![] } else { header.to_vec() };
                bytes.extend_from_slice(packet);
                outer.wrap(17, &outer.udp((55_558, 6080), *checksum, &bytes))
            }
            Tunnel::Ip => outer.wrap(if v6 { 41 } else { 4 }, packet),
        }
    }
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}
