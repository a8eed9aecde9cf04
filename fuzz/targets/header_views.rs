//! Header views, layers, flow keys and printed lines of any frame: no panic, and all lies inside.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_capture::print::Printer;
use linerate_wire::{arp, ethernet, flow, icmpv4, icmpv6, ipv4, ipv6, layers, tcp, udp, vlan};

fuzz_target!(|data: &[u8]| {
    // Each view on its own, as if its layer came first.
    let mut text = String::new();
    macro_rules! view {
        ($($view:expr),* $(,)?) => { $(if let Ok(view) = $view { text += &view.to_string(); })* };
    }
    view!(
        ethernet::Frame::new_checked(data),
        vlan::Tag::new_checked(data),
        arp::Packet::new_checked(data),
        ipv4::Packet::new_checked(data),
        ipv6::Packet::new_checked(data),
        icmpv4::Message::new_checked(data),
        icmpv6::Message::new_checked(data),
        tcp::Segment::new_checked(data),
        udp::Datagram::new_checked(data),
    );
    if let Ok(segment) = tcp::Segment::new_checked(data) {
        assert!(segment.options().count() <= 40, "more options than bytes");
        assert!(segment.header_len() + segment.payload().len() <= data.len());
    }
    if let Ok(packet) = ipv4::Packet::new_checked(data) {
        assert!(packet.header_len() + packet.payload().len() <= data.len());
        let _ = (packet.verify_checksum(), packet.options());
    }
    if let Ok(packet) = ipv6::Packet::new_checked(data) {
        let _ = (packet.upper(), packet.payload());
    }

    if let Ok(layers) = layers::parse(data) {
        assert!(layers.end <= data.len());
        assert!(layers.payload(data).len() <= data.len());
        let _ = (layers.arp(data), layers.ipv4(data), layers.ipv6(data), layers.tcp(data));
        let _ = (layers.udp(data), layers.icmpv4(data), layers.icmpv6(data), layers.vlan(data, 0));
        if let Some(key) = flow::Key::of(data) {
            assert_eq!(key.reversed().reversed(), key);
        }
    }

    for link_type in [1, 101, 113] {
        text.clear();
        let wire_len = data.len() as u32 + u32::from(data.first().copied().unwrap_or(0));
        Printer::new(link_type, false).print(&mut text, None, data, wire_len);
        assert_eq!(text.matches('\n').count(), 1, "one line a packet");
    }
});
