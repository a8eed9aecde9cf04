//! Views and emitters against etherparse, which builds the same headers independently.

use etherparse::{
    ArpHardwareId, ArpOperation, ArpPacket, EtherType as OtherType, IpFragOffset, IpNumber,
    Ipv4Header, Ipv4Options, PacketBuilder, SingleVlanHeader, TcpHeader, VlanHeader, VlanId,
    VlanPcp,
};
use linerate_wire::checksum::Sum;
use linerate_wire::ethernet::{self, Address, EtherType};
use linerate_wire::ip::Protocol;
use linerate_wire::layers::{self, Network, Transport};
use linerate_wire::tcp::Flags;
use linerate_wire::{arp, flow, ipv4, ipv6, tcp, udp, vlan};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

type Macs = ([u8; 6], [u8; 6]);

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

fn emit_ethernet(source: [u8; 6], destination: [u8; 6], ether_type: EtherType, bytes: &mut [u8]) {
    let (source, destination) = (Address(source), Address(destination));
    ethernet::Repr { destination, source, ether_type }.emit(bytes).unwrap();
}

proptest! {
    #[test]
    fn udp_over_ipv4(
        (source_mac, destination_mac) in any::<Macs>(),
        source: [u8; 4],
        destination: [u8; 4],
        ports: (u16, u16),
        ttl: u8,
        payload in payload(),
        padding in 0_usize..20,
    ) {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(source_mac, destination_mac)
            .ipv4(source, destination, ttl)
            .udp(ports.0, ports.1)
            .write(&mut frame, &payload)
            .unwrap();
        let end = frame.len();
        frame.resize(end + padding, 0xee);

        let layers = layers::parse(&frame).unwrap();
        prop_assert_eq!(layers.error, None);
        let ethernet = ethernet::Frame::new_checked(&frame).unwrap();
        prop_assert_eq!(ethernet.source(), Address(source_mac));
        prop_assert_eq!(ethernet.destination(), Address(destination_mac));
        let ip = layers.ipv4(&frame).unwrap();
        prop_assert_eq!(ip.source(), Ipv4Addr::from(source));
        prop_assert_eq!(ip.destination(), Ipv4Addr::from(destination));
        prop_assert_eq!(ip.protocol(), Protocol::UDP);
        prop_assert!(ip.verify_checksum());
        let datagram = layers.udp(&frame).unwrap();
        prop_assert_eq!((datagram.source_port(), datagram.destination_port()), ports);
        prop_assert_eq!(datagram.payload(), &payload[..]);
        let len = datagram.length();
        let pseudo = Sum::pseudo_v4(ip.source(), ip.destination(), Protocol::UDP, len);
        prop_assert!(datagram.verify_checksum(pseudo));
        let key = flow::Key::of(&frame).unwrap();
        prop_assert_eq!((key.source_port, key.destination_port), ports);

        let mut again = vec![0x55; end];
        emit_ethernet(source_mac, destination_mac, EtherType::IPV4, &mut again);
        let header = ipv4::Repr {
            source: source.into(),
            destination: destination.into(),
            protocol: Protocol::UDP,
            payload_len: 8 + payload.len(),
            traffic_class: ip.traffic_class(),
            identification: ip.identification(),
            dont_fragment: ip.dont_fragment(),
            ttl,
        };
        header.emit(&mut again[14..]).unwrap();
        again[42..].copy_from_slice(&payload);
        let header = udp::Repr { source_port: ports.0, destination_port: ports.1 };
        header.emit(&mut again[34..], pseudo).unwrap();
        prop_assert_eq!(&again[..], &frame[..end]);
    }

    #[test]
    fn tcp_over_tagged_ipv6(
        (source_mac, destination_mac) in any::<Macs>(),
        source: [u8; 16],
        destination: [u8; 16],
        ports: (u16, u16),
        numbers: (u32, u32),
        window: u16,
        id in 0_u16..4096,
        flags in 0_u16..256,
        payload in payload(),
    ) {
        let tag = VlanHeader::Single(SingleVlanHeader {
            pcp: VlanPcp::ZERO,
            drop_eligible_indicator: false,
            vlan_id: VlanId::try_new(id).unwrap(),
            ether_type: OtherType::IPV6,
        });
        let mut header = TcpHeader::new(ports.0, ports.1, numbers.0, window);
        header.acknowledgment_number = numbers.1;
        header.fin = flags & 0x01 != 0;
        header.syn = flags & 0x02 != 0;
        header.rst = flags & 0x04 != 0;
        header.psh = flags & 0x08 != 0;
        header.ack = flags & 0x10 != 0;
        header.urg = flags & 0x20 != 0;
        header.ece = flags & 0x40 != 0;
        header.cwr = flags & 0x80 != 0;
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(source_mac, destination_mac)
            .vlan(tag)
            .ipv6(source, destination, 61)
            .tcp_header(header)
            .write(&mut frame, &payload)
            .unwrap();

        let layers = layers::parse(&frame).unwrap();
        prop_assert_eq!((layers.tags, layers.error), (1, None));
        prop_assert_eq!(layers.ether_type, EtherType::IPV6);
        let ip = layers.ipv6(&frame).unwrap();
        prop_assert_eq!(ip.source(), Ipv6Addr::from(source));
        prop_assert_eq!(ip.destination(), Ipv6Addr::from(destination));
        prop_assert_eq!((ip.hop_limit(), ip.next_header()), (61, Protocol::TCP));
        let segment = layers.tcp(&frame).unwrap();
        prop_assert_eq!((segment.source_port(), segment.destination_port()), ports);
        prop_assert_eq!((segment.sequence(), segment.flags()), (numbers.0, Flags(flags)));
        prop_assert_eq!(segment.payload(), &payload[..]);
        let len = (20 + payload.len()) as u32;
        let pseudo = Sum::pseudo_v6(ip.source(), ip.destination(), Protocol::TCP, len);
        prop_assert!(segment.verify_checksum(pseudo));

        let mut again = vec![0x55; frame.len()];
        emit_ethernet(source_mac, destination_mac, EtherType::VLAN, &mut again);
        vlan::Repr { id, ether_type: EtherType::IPV6 }.emit(&mut again[14..]).unwrap();
        let header = ipv6::Repr {
            source: source.into(),
            destination: destination.into(),
            next_header: Protocol::TCP,
            payload_len: 20 + payload.len(),
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 61,
        };
        header.emit(&mut again[18..]).unwrap();
        again[78..].copy_from_slice(&payload);
        let header = tcp::Repr {
            source_port: ports.0,
            destination_port: ports.1,
            sequence: numbers.0,
            acknowledgement: numbers.1,
            flags: Flags(flags),
            window,
            urgent: 0,
        };
        header.emit(&mut again[58..], pseudo).unwrap();
        prop_assert_eq!(again, frame);
    }

    #[test]
    fn ipv4_options_and_fragments(
        options in (0_usize..11).prop_flat_map(|words| prop::collection::vec(any::<u8>(), words * 4)),
        offset in 0_u16..0x2000,
        more: bool,
        identification: u16,
        payload in payload(),
    ) {
        let mut header =
            Ipv4Header::new(payload.len() as u16, 9, IpNumber::UDP, [1, 2, 3, 4], [5, 6, 7, 8])
                .unwrap();
        header.options = Ipv4Options::try_from(&options[..]).unwrap();
        header.set_payload_len(payload.len()).unwrap();
        header.identification = identification;
        header.more_fragments = more;
        header.dont_fragment = false;
        header.fragment_offset = IpFragOffset::try_new(offset).unwrap();
        header.header_checksum = header.calc_header_checksum();
        let mut bytes = Vec::new();
        header.write(&mut bytes).unwrap();
        bytes.extend_from_slice(&payload);

        let packet = ipv4::Packet::new_checked(&bytes[..]).unwrap();
        prop_assert_eq!(packet.options(), &options[..]);
        prop_assert_eq!(packet.payload(), &payload[..]);
        prop_assert_eq!(packet.fragment_offset(), offset << 3);
        prop_assert_eq!((packet.more_fragments(), packet.identification()), (more, identification));
        prop_assert_eq!(packet.is_fragment(), more || offset != 0);
        prop_assert!(packet.verify_checksum());
    }

    #[test]
    fn arp_packets(macs in any::<Macs>(), addresses: ([u8; 4], [u8; 4]), operation in 1_u16..4) {
        let packet = ArpPacket::new(
            ArpHardwareId::ETHERNET,
            OtherType::IPV4,
            ArpOperation(operation),
            &macs.0,
            &addresses.0,
            &macs.1,
            &addresses.1,
        )
        .unwrap();
        let mut frame = Vec::new();
        PacketBuilder::ethernet2(macs.0, [0xff; 6]).arp(packet).write(&mut frame).unwrap();
        let layers = layers::parse(&frame).unwrap();
        prop_assert_eq!(layers.network, Network::Arp);
        let packet = arp::Repr {
            operation: operation.into(),
            sender_mac: Address(macs.0),
            sender_ip: addresses.0.into(),
            target_mac: Address(macs.1),
            target_ip: addresses.1.into(),
        };
        prop_assert_eq!(arp::Repr::parse(&frame[14..]), Ok(packet));
        let mut again = vec![0; 28];
        packet.emit(&mut again).unwrap();
        prop_assert_eq!(&again[..], &frame[14..42]);
    }
}

/// An IPv6 frame with the given headers between the fixed one and a UDP datagram of one byte.
fn ipv6_with(extensions: &[(u8, &[u8])], rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    let len: usize = extensions.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() + rest.len();
    frame.extend_from_slice(&[0x60, 0, 0, 0, (len >> 8) as u8, len as u8, extensions[0].0, 64]);
    frame.extend_from_slice(&[0x20; 32]);
    for (index, (_, bytes)) in extensions.iter().enumerate() {
        let at = frame.len();
        frame.extend_from_slice(bytes);
        frame[at] = extensions.get(index + 1).map_or(17, |(kind, _)| *kind);
    }
    frame.extend_from_slice(rest);
    frame
}

const DATAGRAM: [u8; 9] = [0, 7, 0, 9, 0, 9, 0, 0, 0xaa];

#[test]
fn extension_headers_are_walked() {
    let frame = ipv6_with(
        &[
            (0, &[0; 8]),
            (43, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (51, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (60, &[0; 8]),
        ],
        &DATAGRAM,
    );
    let layers = layers::parse(&frame).unwrap();
    assert_eq!((layers.transport, layers.error), (Transport::Udp, None));
    assert_eq!(layers.transport_offset, 14 + 40 + 8 + 16 + 12 + 8);
    assert_eq!(layers.udp(&frame).unwrap().payload(), [0xaa]);
    assert!(etherparse::SlicedPacket::from_ethernet(&frame).unwrap().transport.is_some());
}

#[test]
fn later_fragments_have_no_transport_header() {
    let fragment = |offset: u16, more: bool| {
        let [high, low] = (offset | u16::from(more)).to_be_bytes();
        ipv6_with(&[(44, &[0, 0, high, low, 0, 0, 0, 9])], &DATAGRAM)
    };
    let first = fragment(0, true);
    let layers = layers::parse(&first).unwrap();
    assert_eq!(layers.network, Network::Ipv6 { fragment: true });
    assert_eq!(layers.transport, Transport::Udp);
    let later = fragment(8, false);
    let layers = layers::parse(&later).unwrap();
    assert_eq!((layers.transport, layers.error), (Transport::Other, None));
    assert_eq!(layers.protocol, Some(Protocol::UDP));
    let upper = layers.ipv6(&later).unwrap().upper_layer().unwrap();
    let identification = upper.fragment.map(|fragment| fragment.identification);
    assert_eq!((upper.is_later_fragment(), identification), (true, Some(9)));
    assert_eq!(flow::Key::of(&first), flow::Key::of(&later), "all pieces have one key");
}

#[test]
fn endless_extensions_are_an_error() {
    let many: Vec<(u8, &[u8])> = vec![(60, &[0; 8]); 40];
    let frame = ipv6_with(&many, &DATAGRAM);
    let layers = layers::parse(&frame).unwrap();
    assert_eq!(layers.transport, Transport::Other);
    assert!(layers.error.is_some_and(|error| error.to_string().contains("16")));
}

#[test]
fn two_tags_and_then_too_many() {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .double_vlan(VlanId::try_new(100).unwrap(), VlanId::try_new(200).unwrap())
        .ipv4([1; 4], [2; 4], 3)
        .udp(4, 5)
        .write(&mut frame, &[6])
        .unwrap();
    let layers = layers::parse(&frame).unwrap();
    assert_eq!((layers.tags, layers.transport), (2, Transport::Udp));
    assert_eq!(
        (layers.vlans(&frame), layers.ports(&frame)),
        ([Some(100), Some(200)], Some((4, 5)))
    );
    assert_eq!(
        layers::parse_from(&frame[22..], layers.ether_type, 0).ports(&frame[22..]),
        Some((4, 5))
    );

    let mut many = vec![0; 12];
    many.extend(std::iter::repeat_n([0x81, 0, 0, 1], 9).flatten());
    let layers = layers::parse(&many).unwrap();
    assert_eq!((layers.tags, layers.network), (layers::MAX_TAGS, Network::Other));
}

#[test]
fn super_packets_end_with_the_frame() {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([1; 4], [2; 4], 3)
        .tcp(4, 5, 6, 7)
        .write(&mut frame, &[6; 1000])
        .unwrap();
    frame[16..18].fill(0);
    let layers = layers::parse(&frame).unwrap();
    assert_eq!(layers.tcp(&frame).unwrap().payload().len(), 1000);
    assert_eq!(layers.ipv4(&frame).unwrap().payload().len(), 1020);
}

#[test]
fn hardware_addresses_are_read_as_they_are_printed() {
    let address: Address = "02:4C:4e:52:54:02".parse().unwrap();
    assert_eq!(address.to_string().parse(), Ok(address));
    assert!(address.is_local() && !address.is_multicast() && Address::BROADCAST.is_multicast());
    for text in ["", "1:2:3", "1:2:3:4:5:6:7", "g0:0:0:0:0:0", "+1:0:0:0:0:0", "001:0:0:0:0:0"] {
        assert!(text.parse::<Address>().is_err(), "{text:?}");
    }
}
