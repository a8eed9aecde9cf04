use super::*;

#[test]
fn the_views_lie_where_the_kernels_structures_do() {
    assert_eq!(size_of::<FrameHeader>(), libc::TPACKET3_HDRLEN);
    assert_eq!(V2_PAYLOAD, size_of::<libc::tpacket2_hdr>());
    assert_eq!(size_of::<BlockHeader>(), size_of::<libc::tpacket_block_desc>());
    let header = offset_of!(libc::tpacket_block_desc, hdr);
    let fields = [
        (offset_of!(BlockHeader, status), offset_of!(libc::tpacket_hdr_v1, block_status)),
        (offset_of!(BlockHeader, frames), offset_of!(libc::tpacket_hdr_v1, num_pkts)),
        (
            offset_of!(BlockHeader, first_offset),
            offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt),
        ),
        (offset_of!(BlockHeader, len), offset_of!(libc::tpacket_hdr_v1, blk_len)),
        (offset_of!(BlockHeader, sequence), offset_of!(libc::tpacket_hdr_v1, seq_num)),
        (offset_of!(BlockHeader, first_seconds), offset_of!(libc::tpacket_hdr_v1, ts_first_pkt)),
        (offset_of!(BlockHeader, last_seconds), offset_of!(libc::tpacket_hdr_v1, ts_last_pkt)),
    ];
    for (ours, kernel) in fields {
        assert_eq!(ours, header + kernel);
    }
    let variant = offset_of!(libc::tpacket3_hdr, hv1);
    let address = size_of::<libc::tpacket3_hdr>();
    let fields = [
        (offset_of!(FrameHeader, next_offset), offset_of!(libc::tpacket3_hdr, tp_next_offset)),
        (offset_of!(FrameHeader, seconds), offset_of!(libc::tpacket3_hdr, tp_sec)),
        (offset_of!(FrameHeader, nanos), offset_of!(libc::tpacket3_hdr, tp_nsec)),
        (offset_of!(FrameHeader, captured), offset_of!(libc::tpacket3_hdr, tp_snaplen)),
        (offset_of!(FrameHeader, wire_len), offset_of!(libc::tpacket3_hdr, tp_len)),
        (offset_of!(FrameHeader, status), offset_of!(libc::tpacket3_hdr, tp_status)),
        (offset_of!(FrameHeader, mac_offset), offset_of!(libc::tpacket3_hdr, tp_mac)),
        (offset_of!(FrameHeader, network_offset), offset_of!(libc::tpacket3_hdr, tp_net)),
        (
            offset_of!(FrameHeader, hash),
            variant + offset_of!(libc::tpacket_hdr_variant1, tp_rxhash),
        ),
        (
            offset_of!(FrameHeader, vlan_tci),
            variant + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tci),
        ),
        (
            offset_of!(FrameHeader, vlan_protocol),
            variant + offset_of!(libc::tpacket_hdr_variant1, tp_vlan_tpid),
        ),
        (
            offset_of!(FrameHeader, packet_type),
            address + offset_of!(libc::sockaddr_ll, sll_pkttype),
        ),
    ];
    for (ours, kernel) in fields {
        assert_eq!(ours, kernel);
    }
}
