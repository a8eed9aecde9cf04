//! The judge: a parser that shares nothing with ours.

use etherparse::{LinkExtHeader, NetHeaders, PacketHeaders, TransportHeader};

/// Parses a frame with etherparse, recomputes every checksum and length, and returns the identifier of
/// its tag.
pub(crate) fn verify(frame: &[u8]) -> Option<u16> {
    let headers = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let payload = headers.payload.slice();
    let transport = headers.transport.unwrap();
    let (found, right) = match headers.net.as_ref().unwrap() {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(
                usize::from(ip.total_len),
                ip.header_len() + transport.header_len() + payload.len()
            );
            match &transport {
                TransportHeader::Udp(udp) => {
                    (udp.checksum, udp.calc_checksum_ipv4(ip, payload).unwrap())
                }
                TransportHeader::Tcp(tcp) => {
                    (tcp.checksum, tcp.calc_checksum_ipv4(ip, payload).unwrap())
                }
                other => panic!("{other:?}"),
            }
        }
        NetHeaders::Ipv6(ip, _) => {
            assert_eq!(usize::from(ip.payload_length), transport.header_len() + payload.len());
            match &transport {
                TransportHeader::Udp(udp) => {
                    (udp.checksum, udp.calc_checksum_ipv6(ip, payload).unwrap())
                }
                TransportHeader::Tcp(tcp) => {
                    (tcp.checksum, tcp.calc_checksum_ipv6(ip, payload).unwrap())
                }
                other => panic!("{other:?}"),
            }
        }
        NetHeaders::Arp(arp) => panic!("{arp:?}"),
    };
    assert_eq!(found, right, "transport checksum");
    let network_len = frame.len() - headers.link_exts.len() * 4 - 14;
    let parsed_len = headers.net.as_ref().unwrap().header_len() + transport.header_len();
    assert_eq!(network_len, parsed_len + payload.len(), "padding that nobody asked for");
    if let TransportHeader::Udp(udp) = &transport {
        assert_eq!(usize::from(udp.length), 8 + payload.len());
    }
    headers.link_exts.first().map(|extension| match extension {
        LinkExtHeader::Vlan(tag) => tag.vlan_id.value(),
        other => panic!("{other:?}"),
    })
}
