use super::*;

/// `udp port 53` of IPv4 as libpcap compiles it for a live interface, without fragments.
fn port_53() -> ClassicProgram {
    let s = |code, jt, jf, k| ClassicInstruction { code, jt, jf, k };
    ClassicProgram::new([
        s(0x28, 0, 0, 12),
        s(0x15, 0, 8, 0x0800),
        s(0x30, 0, 0, 23),
        s(0x15, 0, 6, 17),
        s(0xb1, 0, 0, 14),
        s(0x48, 0, 0, 14),
        s(0x15, 2, 0, 53),
        s(0x48, 0, 0, 16),
        s(0x15, 0, 1, 53),
        s(0x06, 0, 0, 262_144),
        s(0x06, 0, 0, 0),
    ])
    .expect("a program")
}

fn datagram(port: u16) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 8, 0, 0]);
    frame
}

fn tagged(frame: &[u8], protocol: u16, tci: u16) -> Vec<u8> {
    let tag = [protocol.to_be_bytes(), tci.to_be_bytes()].concat();
    [&frame[..12], &tag, &frame[12..]].concat()
}

fn accepts(program: &ClassicProgram, frame: &[u8]) -> bool {
    program.accepts(frame, frame.len() as u32) != 0
}

#[test]
fn a_tag_in_place_is_looked_through_as_one_beside_the_frame() {
    let program = port_53().with_inline_vlan_tags(0).expect("laid out");
    for port in [53, 54] {
        let frame = datagram(port);
        assert_eq!(accepts(&program, &frame), port == 53);
        for protocol in [0x8100, 0x88a8] {
            assert_eq!(accepts(&program, &tagged(&frame, protocol, 7)), port == 53);
        }
        // The second tag is part of the frame for the kernel, too.
        assert!(!accepts(&program, &tagged(&tagged(&frame, 0x8100, 1), 0x88a8, 2)));
    }
    crate::filter::translate(&program).expect("no metadata is left");
}

#[test]
fn metadata_are_read_from_the_tag() {
    let s = |code, jt, jf, k: i32| ClassicInstruction { code, jt, jf, k: k as u32 };
    // VLAN 7: present, and the low twelve bits of the TCI.
    let vlan = ClassicProgram::new([
        s(0x20, 0, 0, -4096 + 48),
        s(0x15, 0, 4, 1),
        s(0x20, 0, 0, -4096 + 44),
        s(0x54, 0, 0, 0x0fff),
        s(0x15, 0, 1, 7),
        s(0x06, 0, 0, 96),
        s(0x06, 0, 0, 0),
    ])
    .expect("a program");
    let program = vlan.with_inline_vlan_tags(0).expect("laid out");
    let frame = datagram(53);
    assert!(!accepts(&program, &frame));
    assert!(accepts(&program, &tagged(&frame, 0x8100, 0x2007)));
    assert!(!accepts(&program, &tagged(&frame, 0x8100, 8)));
    // Outgoing frames only, as `outbound` compiles.
    let outbound = ClassicProgram::new([
        s(0x28, 0, 0, -4096 + 4),
        s(0x15, 0, 1, 4),
        s(0x06, 0, 0, 96),
        s(0x06, 0, 0, 0),
    ])
    .expect("a program");
    for packet_type in [0, 4] {
        let program = outbound.with_inline_vlan_tags(packet_type).expect("laid out");
        assert_eq!(accepts(&program, &frame), packet_type == 4);
    }
}

#[test]
fn the_length_does_not_count_the_tag() {
    let s = |code, jt, jf, k| ClassicInstruction { code, jt, jf, k };
    let frame = datagram(53);
    let length = frame.len() as u32;
    // Exactly as long as the frame without a tag.
    let exact = [s(0x80, 0, 0, 0), s(0x15, 0, 1, length), s(6, 0, 0, 1), s(6, 0, 0, 0)];
    let program = ClassicProgram::new(exact).expect("a program");
    let program = program.with_inline_vlan_tags(0).expect("laid out");
    assert!(accepts(&program, &frame));
    assert!(accepts(&program, &tagged(&frame, 0x8100, 1)));
    assert!(!accepts(&program, &[&frame[..], &[0]].concat()));
}

#[test]
fn what_cannot_be_moved_is_refused() {
    let s = |code, k| ClassicInstruction { code, jt: 0, jf: 0, k };
    for code_and_k in [(0x20, 10), (0x48, 0), (0x81, 0)] {
        let program =
            ClassicProgram::new([s(code_and_k.0, code_and_k.1), s(6, 1)]).expect("a program");
        assert!(program.with_inline_vlan_tags(0).is_none(), "{code_and_k:?}");
    }
}
