//! What packet sockets and user space share: the structures and constants of
//! `linux/if_packet.h`, as views on bytes.

use std::mem::offset_of;

use linerate_bpf::filter::CookedHeader;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Alignment of frames in a ring (`TPACKET_ALIGNMENT`).
pub(super) const FRAME_ALIGNMENT: u32 = 16;

/// Offset of the bytes to send in a version 2 transmit frame: after the header, aligned.
pub(super) const V2_PAYLOAD: usize = 32;

/// Bytes of an 802.1Q or 802.1ad tag.
pub(super) const VLAN_TAG: usize = 4;

/// Bytes of the two addresses that a VLAN tag follows.
pub(super) const ADDRESSES: usize = 12;

/// `PACKET_VERSION`: version 2 and 3.
pub(super) const TPACKET_V2: libc::c_int = 1;
/// See [`TPACKET_V2`].
pub(super) const TPACKET_V3: libc::c_int = 2;

/// Option of a packet socket: a virtio header goes before each frame (`linux/if_packet.h`).
pub(super) const PACKET_VNET_HDR: libc::c_int = 15;

/// Block or frame belongs to user space.
pub(super) const STATUS_USER: u32 = libc::TP_STATUS_USER;
/// The transport checksum is partial.
pub(super) const STATUS_CHECKSUM_NOT_READY: u32 = libc::TP_STATUS_CSUMNOTREADY;
/// The frame had a VLAN tag, which is in the header now.
pub(super) const STATUS_VLAN: u32 = libc::TP_STATUS_VLAN_VALID;
/// The header has the tag's protocol as well.
pub(super) const STATUS_VLAN_PROTOCOL: u32 = libc::TP_STATUS_VLAN_TPID_VALID;
/// The timestamp is the network card's.
pub(super) const STATUS_HARDWARE_STAMP: u32 = 1 << 31;

/// Head of a version 3 block: `struct tpacket_block_desc` with its version 1 header.
#[repr(C)]
#[derive(FromBytes, Immutable, KnownLayout)]
pub(super) struct BlockHeader {
    pub(super) version: u32,
    pub(super) private_offset: u32,
    pub(super) status: u32,
    pub(super) frames: u32,
    pub(super) first_offset: u32,
    pub(super) len: u32,
    pub(super) sequence: u64,
    pub(super) first_seconds: u32,
    pub(super) first_nanos: u32,
    pub(super) last_seconds: u32,
    pub(super) last_nanos: u32,
}

/// Offset of [`BlockHeader::status`], the word that says who owns the block.
pub(super) const BLOCK_STATUS: usize = offset_of!(BlockHeader, status);

/// Head of a version 3 frame: `struct tpacket3_hdr`, and the `struct sockaddr_ll` after it.
#[repr(C)]
#[derive(FromBytes, Immutable, KnownLayout)]
pub(super) struct FrameHeader {
    pub(super) next_offset: u32,
    pub(super) seconds: u32,
    pub(super) nanos: u32,
    pub(super) captured: u32,
    pub(super) wire_len: u32,
    pub(super) status: u32,
    pub(super) mac_offset: u16,
    pub(super) network_offset: u16,
    pub(super) hash: u32,
    pub(super) vlan_tci: u32,
    pub(super) vlan_protocol: u16,
    padding: [u8; 10],
    family: u16,
    /// In network order, unlike the others.
    protocol: [u8; 2],
    pub(super) interface: i32,
    hardware_type: u16,
    pub(super) packet_type: u8,
    address_len: u8,
    address: [u8; 8],
}

impl FrameHeader {
    /// Writes the frame's link-layer address as this header, which has its length.
    #[inline]
    pub(super) fn put_cooked(&self, kind: CookedHeader, header: &mut [u8]) {
        header.fill(0);
        match kind {
            CookedHeader::V1 => {
                (header[1], header[5]) = (self.packet_type, self.address_len);
                header[2..4].copy_from_slice(&self.hardware_type.to_be_bytes());
                header[6..14].copy_from_slice(&self.address);
                header[14..].copy_from_slice(&self.protocol);
            }
            CookedHeader::V2 => {
                header[..2].copy_from_slice(&self.protocol);
                header[4..8].copy_from_slice(&self.interface.to_be_bytes());
                header[8..10].copy_from_slice(&self.hardware_type.to_be_bytes());
                (header[10], header[11]) = (self.packet_type, self.address_len);
                header[12..].copy_from_slice(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
            (
                offset_of!(BlockHeader, first_seconds),
                offset_of!(libc::tpacket_hdr_v1, ts_first_pkt),
            ),
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
}
