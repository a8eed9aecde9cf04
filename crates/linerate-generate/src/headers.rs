//! [`HeaderTemplate`]: the constant part of the headers of all frames, and the sums over it.

use linerate_wire::checksum::Sum;
use linerate_wire::ethernet::{self, EtherType};
use linerate_wire::{ip, ipv4, ipv6, tcp, udp, vlan};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::config::{Config, header_len};
use crate::options::{PayloadHeader, Transport};
use crate::size::Sizes;

/// The first bytes of the stamp.
pub(crate) const STAMP_MAGIC: [u8; 4] = *b"LNRT";

/// The longest frame with every varying field zero, and the offsets in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeaderTemplate {
    pub(crate) frame: Vec<u8>,
    pub(crate) header_len: usize,
    pub(crate) network_at: usize,
    pub(crate) transport_at: usize,
    pub(crate) checksum_at: usize,
    /// Sum of the IPv4 header, in the machine's byte order.
    pub(crate) network_sum: u64,
    /// Sum of pseudo header, transport header and magic, and of lengths and payload where the size
    /// is fixed.
    pub(crate) transport_sum: u64,
}

impl HeaderTemplate {
    pub(crate) fn new(config: &Config) -> Self {
        let size = usize::from(config.sizes.max());
        let fixed = matches!(config.sizes, Sizes::Fixed(_));
        let network_at =
            ethernet::HEADER_LEN + if config.vlan.is_some() { vlan::TAG_LEN } else { 0 };
        let transport_at =
            network_at + if config.is_ipv6() { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
        let header_len = header_len(config.vlan.is_some(), config.is_ipv6(), config.transport);
        let mut frame = vec![0; size];
        emit(config, &mut frame, network_at, transport_at, header_len);
        if !fixed {
            blank_lengths(config, &mut frame, network_at, transport_at);
        }
        let checksum_at = transport_at
            + match config.transport {
                Transport::Udp => udp::CHECKSUM_OFFSET,
                Transport::Tcp => tcp::CHECKSUM_OFFSET,
            };
        let addresses = if config.is_ipv6() {
            &frame[network_at + 8..network_at + 40]
        } else {
            &frame[network_at + 12..network_at + 20]
        };
        let protocol = config.transport.protocol();
        let mut transport_sum = raw_sum(addresses)
            + raw_sum(&[0, protocol.0])
            + raw_sum(&frame[transport_at..header_len]);
        if config.stamp != PayloadHeader::None {
            transport_sum += raw_sum(&STAMP_MAGIC);
        }
        if fixed {
            let len = (size - transport_at) as u16;
            transport_sum += raw_sum(&len.to_be_bytes());
        }
        Self {
            network_sum: raw_sum(&frame[network_at..transport_at]),
            transport_sum,
            frame,
            header_len,
            network_at,
            transport_at,
            checksum_at,
        }
    }
}

/// Ones' complement sum of 16-bit words in the machine's own byte order, not folded.
pub(crate) fn raw_sum(bytes: &[u8]) -> u64 {
    bytes
        .chunks(2)
        .map(|pair| u64::from(u16::from_ne_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])))
        .sum()
}

/// Writes headers with zeros for varying fields and checksums. The slices are long enough, for the
/// configuration has room for the headers.
fn emit(
    config: &Config,
    frame: &mut [u8],
    network_at: usize,
    transport_at: usize,
    header_len: usize,
) {
    let zero = |address: IpAddr, count: u64| match (address, count) {
        (address, 1) => address,
        (IpAddr::V4(_), _) => Ipv4Addr::UNSPECIFIED.into(),
        (IpAddr::V6(address), _) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    };
    let source = zero(config.source.first(), config.source.count());
    let destination = zero(config.destination.first(), config.destination.count());
    let port = |ports: crate::fields::Ports| if ports.count() == 1 { ports.first() } else { 0 };
    let payload_len = frame.len() - transport_at;
    let protocol = config.transport.protocol();
    let fits = "the configuration has room for the headers";
    let ip = ip::Repr::new(source, destination, protocol, payload_len)
        .expect("the configuration has one address family");
    let Config { traffic_class, ttl, dont_fragment, .. } = *config;
    let ip = match ip {
        ip::Repr::V4(ip) => ip::Repr::V4(ipv4::Repr { traffic_class, ttl, dont_fragment, ..ip }),
        ip::Repr::V6(ip) => ip::Repr::V6(ipv6::Repr { traffic_class, hop_limit: ttl, ..ip }),
    };
    let ethernet = ethernet::Repr {
        destination: config.destination_mac,
        source: config.source_mac,
        ether_type: if config.vlan.is_some() { EtherType::VLAN } else { ip.ether_type() },
    };
    ethernet.emit(frame).expect(fits);
    if let Some(id) = config.vlan {
        let tag = vlan::Repr { id, ether_type: ip.ether_type() };
        tag.emit(&mut frame[ethernet::HEADER_LEN..]).expect(fits);
    }
    ip.emit(&mut frame[network_at..]).expect(fits);
    if !config.is_ipv6() && config.network_varies() {
        frame[network_at + 10..network_at + 12].fill(0);
    }
    let (source_port, destination_port) =
        (port(config.source_ports), port(config.destination_ports));
    let segment = &mut frame[transport_at..];
    match config.transport {
        Transport::Udp => {
            udp::Repr { source_port, destination_port }.emit(segment, Sum::ZERO).expect(fits);
            segment[udp::CHECKSUM_OFFSET..udp::CHECKSUM_OFFSET + 2].fill(0);
        }
        Transport::Tcp => {
            let tcp = tcp::Repr {
                source_port,
                destination_port,
                sequence: 1,
                acknowledgement: 1,
                flags: config.tcp_flags,
                window: u16::MAX,
                urgent: 0,
            };
            tcp.emit(segment, Sum::ZERO).expect(fits);
            segment[tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2].fill(0);
        }
    }
    if config.stamp != PayloadHeader::None {
        frame[header_len..header_len + 4].copy_from_slice(&STAMP_MAGIC);
    }
}

/// Zeroes the length fields: each frame of another size writes its own.
fn blank_lengths(config: &Config, frame: &mut [u8], network_at: usize, transport_at: usize) {
    let network_len = network_at + if config.is_ipv6() { 4 } else { 2 };
    frame[network_len..network_len + 2].fill(0);
    if config.transport == Transport::Udp {
        frame[transport_at + 4..transport_at + 6].fill(0);
    }
}
