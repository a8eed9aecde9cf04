use super::*;

fn v4(protocol: Protocol, dont_fragment: bool, payload: &[u8]) -> alloc::vec::Vec<u8> {
    let mut bytes = alloc::vec![0; 20];
    let ip = ipv4::Repr {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        protocol,
        payload_len: payload.len(),
        traffic_class: 0,
        identification: 1,
        dont_fragment,
        ttl: 64,
    };
    ip.emit(&mut bytes).unwrap();
    bytes.extend(payload);
    bytes
}

fn v6(next_header: Protocol, payload: &[u8]) -> alloc::vec::Vec<u8> {
    let mut bytes = alloc::vec![0; 40];
    let ip = ipv6::Repr {
        source: [1; 16].into(),
        destination: [2; 16].into(),
        next_header,
        payload_len: payload.len(),
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
    };
    ip.emit(&mut bytes).unwrap();
    bytes.extend(payload);
    bytes
}

#[test]
fn errors_go_back_and_quote_the_packet() {
    let mut out = [0xff; MAX_ERROR_LEN];
    let packet = v4(Protocol::UDP, true, &[7; 2000]);
    let len = emit_error(&packet, Reason::TooBig(1400), &mut out).unwrap();
    assert_eq!(len, 576);
    let ip = ipv4::Packet::new_checked(&out[..len]).unwrap();
    assert_eq!((ip.source(), ip.destination()), ([10, 0, 0, 2].into(), [10, 0, 0, 1].into()));
    assert!(Sum::ZERO.bytes(&out[..20]).is_valid() && Sum::ZERO.bytes(ip.payload()).is_valid());
    assert_eq!(ip.payload()[..2], [3, 4]);
    assert_eq!(ip.payload()[4..8], [0, 0, 5, 120]);
    assert_eq!(ip.payload()[8..], packet[..548]);

    let packet = v6(Protocol::TCP, &[7; 60]);
    let len = emit_error(&packet, Reason::AddressUnreachable, &mut out).unwrap();
    assert_eq!(len, 40 + 8 + 100);
    let ip = ipv6::Packet::new_checked(&out[..len]).unwrap();
    assert_eq!((ip.source(), ip.destination()), ([2; 16].into(), [1; 16].into()));
    let pseudo = Sum::pseudo_v6(ip.source(), ip.destination(), Protocol::ICMPV6, 108);
    assert!(pseudo.bytes(ip.payload()).is_valid());
    assert_eq!(ip.payload()[..8], [1, 3, ip.payload()[2], ip.payload()[3], 0, 0, 0, 0]);
    assert_eq!(ip.payload()[8..], packet);
}

#[test]
fn there_is_none_for_what_must_not_have_one() {
    let mut out = [0; MAX_ERROR_LEN];
    let mut none = |packet: &[u8], reason| {
        assert!(emit_error(packet, reason, &mut out).is_none(), "{packet:?} {reason:?}");
    };
    let lost = Reason::AddressUnreachable;
    none(&[], lost);
    none(&[0x45; 19], lost);
    none(&v4(Protocol::ICMP, true, &[3, 1, 0, 0, 0, 0, 0, 0]), lost);
    none(&v4(Protocol::UDP, false, &[0; 8]), Reason::TooBig(1400));
    none(&v6(Protocol::ICMPV6, &[1, 3, 0, 0, 0, 0, 0, 0]), lost);
    let (mut later, mut group, mut nobody) =
        (v4(Protocol::UDP, false, &[0; 8]), v6(Protocol::UDP, &[0; 8]), v6(Protocol::UDP, &[0; 8]));
    later[7] = 1;
    group[24] = 0xff;
    nobody[8..24].fill(0);
    [later, group, nobody].iter().for_each(|packet| none(packet, lost));
    // A ping has one.
    assert!(
        emit_error(&v4(Protocol::ICMP, true, &[8, 0, 0, 0, 0, 0, 0, 0]), lost, &mut out).is_some()
    );
    assert!(
        emit_error(&v6(Protocol::ICMPV6, &[128, 0, 0, 0, 0, 0, 0, 0]), lost, &mut out).is_some()
    );
}
