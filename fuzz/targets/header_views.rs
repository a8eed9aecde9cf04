//! Header views, layers, flow keys and printed lines of any frame: no panic, and all lies inside.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_capture::print::Printer;
use linerate_wire::udp_tunnel::UdpTunnel;
use linerate_wire::{
    arp, ethernet, flow, geneve, gre, icmp, ipv4, ipv6, layers, tcp, udp, vlan, vxlan,
};

fuzz_target!(|data: &[u8]| {
    // Each view on its own, as if its layer came first.
    let _ = ethernet::Frame::new_checked(data).map(|frame| (frame.source(), frame.payload()));
    let _ = vlan::Tag::new_checked(data).map(|tag| tag.ether_type());
    let _ = arp::Repr::parse(data);
    let _ = udp::Datagram::new_checked(data).map(|datagram| datagram.payload());
    if let Ok(segment) = tcp::Segment::new_checked(data) {
        assert!(segment.header_len() + segment.payload().len() <= data.len());
    }
    if let Ok(packet) = ipv4::Packet::new_checked(data) {
        assert!(packet.header_len() + packet.payload().len() <= data.len());
        let _ = (packet.verify_checksum(), packet.options());
    }
    if let Ok(packet) = ipv6::Packet::new_checked(data) {
        let _ = (packet.upper_layer(), packet.payload());
    }
    if let Ok(packet) = geneve::Packet::new_checked(data) {
        assert!(packet.header_len() <= data.len());
    }
    if let Ok(packet) = gre::Packet::new_checked(data) {
        assert!(packet.header_len() <= data.len());
    }
    if let Some((_, _, len)) = UdpTunnel::detect(data) {
        assert!(len <= data.len());
    }
    let kind = ethernet::EtherType(data.first_chunk().map_or(0, |two| u16::from_be_bytes(*two)));
    if let Some((_, at)) = layers::next_header(data, kind, 2) {
        assert!(at > 2);
    }
    for link_type in [0, 1, 101, 108, 113, 276] {
        if let Some(Ok((kind, at))) = layers::link_payload(data, link_type) {
            let _ = layers::parse_from(data, kind, at);
        }
    }
    let _ = vxlan::Packet::new_checked(data).map(|packet| packet.is_plain());
    for reason in [icmp::Reason::AddressUnreachable, icmp::Reason::TooBig(1400)] {
        let len = icmp::emit_error(data, reason, &mut [0; icmp::MAX_ERROR_LEN]);
        assert!(len.is_none_or(|len| len <= icmp::MAX_ERROR_LEN));
    }

    if let Ok(layers) = layers::parse(data) {
        assert!(layers.end <= data.len());
        let _ = (layers.ipv4(data), layers.ipv6(data), layers.tcp(data), layers.udp(data));
        let _ = (layers.addresses(data), flow::Key::of(data));
    }

    let mut text = String::new();
    for link_type in [1, 101, 113] {
        text.clear();
        let wire_len = data.len() as u32 + u32::from(data.first().copied().unwrap_or(0));
        Printer::new(link_type, false).print(&mut text, None, data, wire_len);
        assert_eq!(text.matches('\n').count(), 1, "one line a packet");
    }
});
