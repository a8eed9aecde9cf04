//! Every refusal, and that arbitrary bytes never do worse.

use linerate_segment::Error;
use linerate_segment::segment::{Checksums, IpId, LinkType, Options, Segments, Split};
use linerate_wire::ethernet::EtherType;
use linerate_wire::ip::Protocol;
use proptest::prelude::*;

use super::build::{Network, Packet, Transport, Tunnel};
use super::{options, split, strategies};

const TCP: Split = Split::Tcp { mss: 100 };
const UDP: Split = Split::Udp { size: 100 };

fn refused(bytes: &[u8], split_into: Split) -> Error {
    split(bytes, &Options::new(split_into)).unwrap_err()
}

#[test]
fn lengths_that_lie() {
    let good = Packet::tcp(300).build();
    let mut long = good.clone();
    long[16..18].copy_from_slice(&341_u16.to_be_bytes());
    assert_eq!(refused(&long, TCP), Error::Length { what: "IPv4 header", claimed: 341, have: 340 });
    assert_eq!(
        refused(&good[..good.len() - 1], TCP),
        Error::Length { what: "IPv4 header", claimed: 340, have: 339 }
    );
    let mut short = good.clone();
    short[16..18].copy_from_slice(&19_u16.to_be_bytes());
    assert!(matches!(refused(&short, TCP), Error::Header(_)));
    let mut cut = good;
    cut[16..18].copy_from_slice(&39_u16.to_be_bytes());
    assert!(matches!(refused(&cut, TCP), Error::Header(_)));

    for wrong in [307_u16, 309] {
        let mut bytes = Packet::udp(300).build();
        bytes[38..40].copy_from_slice(&wrong.to_be_bytes());
        let error = Error::Length { what: "UDP header", claimed: wrong.into(), have: 308 };
        assert_eq!(refused(&bytes, UDP), error);
        assert_eq!(refused(&bytes, Split::Fragments { mtu: 200 }), error);
    }

    let mut packet = Packet::tcp(300);
    packet.network = Network::v6();
    let mut bytes = packet.build();
    bytes[18..20].copy_from_slice(&400_u16.to_be_bytes());
    assert_eq!(
        refused(&bytes, TCP),
        Error::Length { what: "IPv6 header", claimed: 440, have: 360 }
    );

    // In a tunnel there is no padding behind an IP packet.
    let mut packet = Packet::tcp(300);
    packet.outer = Some((Network::default(), Tunnel::Ip));
    let mut bytes = packet.build();
    bytes.push(0);
    bytes[16..18].copy_from_slice(&361_u16.to_be_bytes());
    assert_eq!(
        refused(&bytes, TCP),
        Error::Length { what: "IPv4 header", claimed: 340, have: 341 }
    );
}

#[test]
fn every_cut_is_refused() {
    for packet in tunnelled() {
        let bytes = packet.build();
        for len in 0..bytes.len() {
            assert!(split(&bytes[..len], &options(&packet, TCP)).is_err(), "{len} bytes");
        }
    }
}

fn tunnelled() -> Vec<Packet> {
    let tunnels = [
        None,
        Some(Tunnel::Ip),
        Some(Tunnel::Vxlan { checksum: true, group: true }),
        Some(Tunnel::Geneve { checksum: true, options: vec![1; 8], bridged: false }),
        Some(Tunnel::Gre { checksum: true, key: Some(1), bridged: true }),
    ];
    tunnels
        .into_iter()
        .map(|tunnel| Packet {
            outer: tunnel.map(|tunnel| (Network::default(), tunnel)),
            ..Packet::tcp(300)
        })
        .collect()
}

#[test]
fn not_ip_and_too_many_tags() {
    let mut bytes = Packet::tcp(300).build();
    bytes[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(refused(&bytes, TCP), Error::NotIp(EtherType::ARP));
    let mut packet = Packet::tcp(300);
    packet.ethernet = Some(3);
    assert_eq!(refused(&packet.build(), TCP), Error::TooManyTags);
    let raw = Options { link: LinkType::Ip, ..Options::new(TCP) };
    assert!(matches!(split(&[0x50; 400], &raw).unwrap_err(), Error::Header(_)));
}

#[test]
fn fragments_and_jumbograms() {
    for flags in [[0x20, 0], [0, 1]] {
        let mut bytes = Packet::tcp(300).build();
        bytes[20..22].copy_from_slice(&flags);
        assert_eq!(refused(&bytes, TCP), Error::Fragment);
        assert_eq!(refused(&bytes, Split::Mtu(200)), Error::Fragment);
    }
    let mut packet = Packet::tcp(300);
    packet.network = Network::v6();
    packet.network.extensions = vec![(44, vec![0, 0, 0, 1, 0, 0, 0, 1])];
    assert_eq!(refused(&packet.build(), TCP), Error::Fragment);

    // Beside the length another option, which segments would have to keep.
    let options = vec![0, 1, 0xc2, 4, 0, 0, 1, 76, 5, 2, 0, 0, 1, 4, 0, 0];
    packet.network.extensions = vec![(0, options)];
    let mut bytes = packet.build();
    bytes[18..20].fill(0);
    assert_eq!(refused(&bytes, TCP), Error::Jumbo);
    // One in a tunnel is the kernel's.
    packet.network.extensions = vec![(0, vec![0, 0, 0xc2, 4, 0, 0, 1, 72])];
    packet.outer = Some((Network::default(), Tunnel::Ip));
    let mut bytes = packet.build();
    bytes[38..40].fill(0);
    assert_eq!(refused(&bytes, TCP), Error::Jumbo);
    packet.outer = None;
    let mut bytes = packet.build();
    bytes[18..20].fill(0);
    bytes[61] += 1;
    let (claimed, have) = (40 + 329, bytes.len() - 14);
    assert_eq!(refused(&bytes, TCP), Error::Length { what: "IPv6 header", claimed, have });
}

#[test]
fn other_protocols() {
    let mut bytes = Packet::udp(300).build();
    assert_eq!(
        refused(&bytes, TCP),
        Error::OtherProtocol { wanted: Protocol::TCP, found: Protocol::UDP }
    );
    bytes[23] = 132;
    assert_eq!(refused(&bytes, UDP), Error::Protocol(Protocol(132)));

    let mut packet = Packet::tcp(300);
    packet.network = Network::v6();
    packet.network.extensions = vec![(51, vec![0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1])];
    assert_eq!(refused(&packet.build(), TCP), Error::Protocol(Protocol::AUTHENTICATION));
    packet.network.extensions = vec![(135, vec![0; 8])];
    assert_eq!(refused(&packet.build(), TCP), Error::Protocol(Protocol::MOBILITY));
}

#[test]
fn tunnels_that_a_segment_cannot_repeat() {
    let mut packet = Packet::tcp(300);
    packet.outer =
        Some((Network::default(), Tunnel::Gre { checksum: false, key: Some(9), bridged: false }));
    let mut bytes = packet.build();
    // The key's place becomes a sequence number's.
    bytes[34] = 0x10;
    assert!(matches!(refused(&bytes, TCP), Error::Tunnel { tunnel: "GRE", .. }));
    bytes[34] = 0x60;
    assert!(matches!(refused(&bytes, TCP), Error::Header(_)));
    bytes[34..36].copy_from_slice(&[0x20, 1]);
    assert!(matches!(refused(&bytes, TCP), Error::Header(_)));

    packet.outer = Some((Network::default(), Tunnel::Vxlan { checksum: false, group: false }));
    let mut bytes = packet.build();
    // Remote checksum offload; then the generic protocol extension.
    bytes[43] = 0x20;
    assert!(matches!(refused(&bytes, TCP), Error::Tunnel { tunnel: "VXLAN", .. }));
    bytes[42..44].copy_from_slice(&[0x0c, 0]);
    assert!(matches!(refused(&bytes, TCP), Error::Tunnel { tunnel: "VXLAN", .. }));
}

#[test]
fn a_tunnel_in_a_tunnel() {
    for tunnel in tunnelled().into_iter().filter(|packet| packet.outer.is_some()) {
        let inner = Packet { ethernet: None, ..tunnel }.build();
        let mut bytes = Packet::udp(0).build();
        bytes.truncate(34);
        bytes.extend_from_slice(&inner);
        bytes[16..18].copy_from_slice(&(20 + inner.len() as u16).to_be_bytes());
        bytes[23] = 4;
        assert!(matches!(refused(&bytes, TCP), Error::NestedTunnel(_)));
        // As fragments of the outermost packet it can go out.
        assert!(split(&bytes, &Options::new(Split::Mtu(200))).unwrap().len() > 1);
    }
}

#[test]
fn routes_that_hide_the_destination() {
    let mut packet = Packet::tcp(300);
    packet.network.options = vec![131, 7, 4, 1, 2, 3, 4, 0];
    assert_eq!(refused(&packet.build(), TCP), Error::Route("an IPv4 source route"));
    let none = Options { checksums: Checksums::None, ..Options::new(TCP) };
    assert_eq!(split(&packet.build(), &none).unwrap().len(), 3);
    // At its end, the destination is the last address.
    packet.network.options[2] = 8;
    assert_eq!(split(&packet.build(), &Options::new(TCP)).unwrap().len(), 3);

    packet.network = Network::v6();
    packet.network.extensions = vec![(43, vec![0, 0, 3, 1, 0, 0, 0, 0])];
    assert_eq!(refused(&packet.build(), TCP), Error::Route("an IPv6 routing header"));
}

#[test]
fn syn_with_much_payload() {
    let mut packet = Packet::tcp(300);
    packet.transport =
        Transport::Tcp { sequence: 1, flags: 0x02, urgent: 0, options: vec![2, 4, 5, 0xb4] };
    assert_eq!(refused(&packet.build(), TCP), Error::Syn);
    assert_eq!(refused(&packet.build(), Split::Mtu(200)), Error::Syn);
    assert_eq!(split(&packet.build(), &Options::new(Split::Mtu(1500))).unwrap().len(), 1);
}

#[test]
fn a_fixed_identification_needs_dont_fragment() {
    let packet = Packet::tcp(300);
    let fixed = Options { outer_id: IpId::Fixed, ..Options::new(TCP) };
    assert_eq!(split(&packet.build(), &fixed).unwrap_err(), Error::FixedId);
}

#[test]
fn sizes_and_limits() {
    let packet = Packet::tcp(300).build();
    assert_eq!(refused(&packet, Split::Tcp { mss: 0 }), Error::ZeroSize);
    assert_eq!(refused(&Packet::udp(300).build(), Split::Udp { size: 0 }), Error::ZeroSize);
    assert_eq!(refused(&packet, Split::Mtu(0)), Error::MtuTooSmall { mtu: 0, need: 41 });
    assert_eq!(refused(&packet, Split::Mtu(40)), Error::MtuTooSmall { mtu: 40, need: 41 });
    assert_eq!(split(&packet, &Options::new(Split::Mtu(41))).unwrap().len(), 300);

    let limited = Options { max_segments: 2, ..Options::new(TCP) };
    assert_eq!(split(&packet, &limited).unwrap_err(), Error::TooManySegments { count: 3, max: 2 });
    let limited = Options { max_burst: 339, ..Options::new(TCP) };
    assert_eq!(split(&packet, &limited).unwrap_err(), Error::BurstTooLong { len: 340, max: 339 });

    let mut packet = Packet::tcp(300);
    packet.network = Network::v6();
    packet.network.extensions = vec![(0, [[0, 63].as_slice(), &[0; 510]].concat())];
    assert_eq!(refused(&packet.build(), TCP), Error::HeadersTooLong { len: 586 });
}

fn splits() -> impl Strategy<Value = Split> {
    let size = prop_oneof![0_u16..200, any::<u16>()];
    prop_oneof![
        size.clone().prop_map(|mss| Split::Tcp { mss }),
        size.clone().prop_map(|size| Split::Udp { size }),
        size.clone().prop_map(|mtu| Split::Fragments { mtu }),
        size.prop_map(Split::Mtu),
    ]
}

fn checksums() -> impl Strategy<Value = Checksums> {
    prop_oneof![Just(Checksums::Full), Just(Checksums::Partial), Just(Checksums::None)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    /// A packet with bytes changed, inserted or cut off: an error or segments, never a panic.
    #[test]
    fn damaged_packets(
        mut packet in prop_oneof![strategies::packet(strategies::tcp()), strategies::packet(strategies::udp())],
        changes in prop::collection::vec((0_usize..250, any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        split_into in splits(),
        checksums in checksums(),
    ) {
        packet.payload.truncate(600);
        let mut bytes = packet.build();
        for (at, value) in changes {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len())));
        let options = Options { checksums, ..options(&packet, split_into) };
        if Segments::new(&bytes, &options).is_ok_and(|segments| segments.len() > 2000) {
            return Ok(());
        }
        let _ = split(&bytes, &options);
    }
}

#[test]
fn too_few_and_too_short_buffers_lose_no_segment() {
    let packet = Packet::tcp(5000).build();
    let options = Options::new(Split::Tcp { mss: 1000 });
    let right = split(&packet, &options).unwrap();
    let mut segments = Segments::new(&packet, &options).unwrap();
    let mut written = Vec::new();
    let len = segments.max_len();
    let mut take = |segments: &mut Segments<'_>, lens: &[usize]| {
        let mut buffers: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
        let mut buffers = buffers.iter_mut().map(Vec::as_mut_slice);
        let result =
            segments.write_all(&mut buffers, |buffer, len| written.push(buffer[..len].to_vec()));
        (result, buffers.len(), segments.len())
    };
    assert_eq!(take(&mut segments, &[]), (Ok(()), 0, 5));
    assert_eq!(take(&mut segments, &[len, len]), (Ok(()), 0, 3));
    let short = Err(Error::BufferTooSmall { need: len, have: 7 });
    assert_eq!(take(&mut segments, &[len, 7, len, len]), (short, 1, 2));
    assert_eq!(take(&mut segments, &[len, len, len]), (Ok(()), 1, 0));
    assert_eq!(take(&mut segments, &[7, 7]), (Ok(()), 2, 0), "none is taken after the last");
    assert_eq!(written, right);
}
