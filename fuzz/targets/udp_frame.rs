//! UDP in frames of AF_XDP: what is found lies inside the frame, and the views of `linerate-wire` see the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_udp::xdp::Parser;
use linerate_wire::{ethernet, ipv4, ipv6, udp};

fuzz_target!(|frame: &[u8]| {
    let loose = Parser::new(true).parse(frame);
    let strict = Parser::new(false).parse(frame);
    if let Ok(datagram) = &strict {
        assert_eq!(loose.as_ref(), Ok(datagram), "what is right is right everywhere");
    }
    let Ok(datagram) = loose else { return };
    let payload = &frame[datagram.payload.clone()];
    let packet = ethernet::Frame::new_checked(frame).expect("an Ethernet frame").payload();
    let bytes = if datagram.source.is_ipv4() {
        let view = ipv4::Packet::new_checked(packet).expect("an IPv4 packet");
        assert!(view.verify_checksum() && !view.is_fragment());
        assert_eq!(view.traffic_class(), datagram.traffic_class);
        view.payload()
    } else {
        let view = ipv6::Packet::new_checked(packet).expect("an IPv6 packet");
        assert_eq!(view.traffic_class(), datagram.traffic_class);
        view.payload()
    };
    let view = udp::Datagram::new_checked(bytes).expect("a UDP datagram");
    assert_eq!(view.payload(), payload);
    assert_eq!(view.destination_port(), datagram.destination.port());
});
