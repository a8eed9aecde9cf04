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
mod tests;
