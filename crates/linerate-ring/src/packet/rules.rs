//! The rules by which the kernel accepts a ring or answers EINVAL without a reason: those of `packet_set_ring` in
//! `net/packet/af_packet.c` (Trivelloni 2018, section 2.4.3).

use super::layout::{TPACKET_V2, TPACKET_V3};
use crate::region::base_page_size;
use crate::{Error, Result};

/// Which of the rings of a packet socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `TPACKET_V3` receive ring: blocks of frames of any length.
    Receive,
    /// `TPACKET_V2` transmit ring: frames of one length.
    Transmit,
}

impl Kind {
    /// What `PACKET_VERSION` takes, and the option that makes the ring.
    pub(super) const fn options(self) -> (libc::c_int, libc::c_int) {
        match self {
            Self::Receive => (TPACKET_V3, libc::PACKET_RX_RING),
            Self::Transmit => (TPACKET_V2, libc::PACKET_TX_RING),
        }
    }
}

/// A ring to ask the kernel for; the fields are those of `struct tpacket_req3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingConfig {
    pub(super) kind: Kind,
    /// Bytes of a block (`tp_block_size`).
    pub(super) block_size: u32,
    /// Blocks in the ring (`tp_block_nr`).
    pub(super) blocks: u32,
    /// Bytes of a frame (`tp_frame_size`), aligned, header and reserve included; at most a block. A receive ring checks it,
    /// but does not use it.
    pub(super) frame_size: u32,
    /// Frames in the ring (`tp_frame_nr`).
    pub(super) frames: u32,
    /// Milliseconds until a block that is not full is handed over (`tp_retire_blk_tov`).
    pub(super) retire_ms: u32,
    /// Bytes kept free before each frame's payload (`PACKET_RESERVE`).
    pub(super) reserve: u32,
}

impl RingConfig {
    /// The request with as many frames as its blocks hold. It can still fail for want of memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the rule that the blocks break. Whoever makes a request keeps those of frames.
    pub(super) fn with_frames(self) -> Result<Self> {
        let Self { block_size, blocks, .. } = self;
        let page_size = base_page_size() as u32;
        let per_block = block_size.checked_div(self.frame_size).unwrap_or(0);
        let rule = if blocks == 0 {
            "a ring needs at least one block (tp_block_nr)".to_owned()
        } else if !(1..=i32::MAX as u32).contains(&block_size) {
            format!("a block must have 1 to 2147483647 bytes (tp_block_size), not {block_size}")
        } else if !block_size.is_multiple_of(page_size) {
            format!(
                "a block must be whole pages of {page_size} bytes (tp_block_size), not {block_size}"
            )
        } else if let Some(frames) = per_block.checked_mul(blocks) {
            return Ok(Self { frames, ..self });
        } else {
            format!(
                "{per_block} frames in each of {blocks} blocks (tp_block_nr) are more than 4294967295"
            )
        };
        Err(Error::Invalid(format!("the kernel would refuse this ring: {rule}")))
    }

    /// The structure that the socket option takes; a version 2 ring reads only its first half.
    pub(super) fn to_kernel(self) -> libc::tpacket_req3 {
        libc::tpacket_req3 {
            tp_block_size: self.block_size,
            tp_block_nr: self.blocks,
            tp_frame_size: self.frame_size,
            tp_frame_nr: self.frames,
            tp_retire_blk_tov: self.retire_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        }
    }
}
