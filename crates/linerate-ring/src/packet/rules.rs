//! The rules by which the kernel accepts a ring or answers EINVAL without a reason.
//!
//! They are those of `packet_set_ring` in `net/packet/af_packet.c` (Trivelloni 2018, section 2.4.3). They
//! are checked before the kernel is asked, so that the error can name the one that is broken.

use super::layout::{
    BLOCK_HEADER, FRAME_ALIGNMENT, PRIVATE_ALIGNMENT, TPACKET_V2, TPACKET_V3, V2_HEADER, V3_HEADER,
};
use crate::region::pages::base_page_size;

/// Which of the rings of a packet socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `TPACKET_V3` receive ring: blocks of frames of any length.
    Receive,
    /// `TPACKET_V2` transmit ring: frames of one length.
    Transmit,
    /// `TPACKET_V3` transmit ring: as version 2, with a longer header.
    TransmitV3,
}

impl Kind {
    /// What `PACKET_VERSION` takes.
    pub(super) const fn version(self) -> libc::c_int {
        match self {
            Self::Receive | Self::TransmitV3 => TPACKET_V3,
            Self::Transmit => TPACKET_V2,
        }
    }

    /// Bytes before the payload of a frame.
    const fn header(self) -> u32 {
        match self {
            Self::Receive | Self::TransmitV3 => V3_HEADER,
            Self::Transmit => V2_HEADER,
        }
    }
}

/// A ring to ask the kernel for; the fields are those of `struct tpacket_req3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingConfig {
    /// Which ring.
    pub kind: Kind,
    /// Bytes of a block (`tp_block_size`).
    pub block_size: u32,
    /// Blocks in the ring (`tp_block_nr`).
    pub blocks: u32,
    /// Bytes of a frame (`tp_frame_size`); a V3 receive ring checks it, but does not use it.
    pub frame_size: u32,
    /// Frames in the ring (`tp_frame_nr`).
    pub frames: u32,
    /// Milliseconds until a block that is not full is handed over (`tp_retire_blk_tov`).
    pub retire_ms: u32,
    /// Bytes at the head of each block for the program's own use (`tp_sizeof_priv`).
    pub private_size: u32,
    /// Features to switch on (`tp_feature_req_word`).
    pub features: u32,
    /// Bytes kept free before each frame's payload (`PACKET_RESERVE`).
    pub reserve: u32,
}

/// A rule that a [`RingConfig`] breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum BrokenRule {
    /// No blocks: that asks the kernel to remove the ring.
    #[error("a ring needs at least one block (tp_block_nr)")]
    NoBlocks,
    /// The size of a block is zero or does not fit a signed 32-bit integer.
    #[error("a block must have 1 to 2147483647 bytes (tp_block_size), not {block_size}")]
    BlockSize {
        /// Bytes asked for.
        block_size: u32,
    },
    /// The size of a block is no multiple of the page size.
    #[error("a block must be whole pages of {page_size} bytes (tp_block_size), not {block_size}")]
    BlockNotPages {
        /// Bytes asked for.
        block_size: u32,
        /// Bytes of a page of this machine.
        page_size: u32,
    },
    /// A V3 block cannot hold its header, the private area, and the header of one frame.
    #[error(
        "a block must have at least {least} bytes (tp_block_size) for its header, \
         {private_size} private bytes (tp_sizeof_priv) and one frame header, not {block_size}"
    )]
    BlockTooSmall {
        /// Bytes asked for.
        block_size: u32,
        /// Private bytes asked for.
        private_size: u32,
        /// Bytes needed.
        least: u64,
    },
    /// A frame cannot hold its header and the reserve.
    #[error(
        "a frame must have at least {least} bytes (tp_frame_size) for its header and the reserve \
         (PACKET_RESERVE), not {frame_size}"
    )]
    FrameTooSmall {
        /// Bytes asked for.
        frame_size: u32,
        /// Bytes needed.
        least: u32,
    },
    /// The size of a frame is no multiple of 16.
    #[error(
        "the size of a frame must be a multiple of {FRAME_ALIGNMENT} (tp_frame_size, \
         TPACKET_ALIGNMENT), not {frame_size}"
    )]
    FrameNotAligned {
        /// Bytes asked for.
        frame_size: u32,
    },
    /// Not one frame fits a block.
    #[error("a frame of {frame_size} bytes (tp_frame_size) does not fit a block of {block_size}")]
    FrameLargerThanBlock {
        /// Bytes of a frame.
        frame_size: u32,
        /// Bytes of a block.
        block_size: u32,
    },
    /// The number of frames does not fit 32 bits.
    #[error("{per_block} frames in each of {blocks} blocks (tp_block_nr) are more than 4294967295")]
    TooManyFrames {
        /// Frames that fit a block.
        per_block: u32,
        /// Blocks asked for.
        blocks: u32,
    },
    /// The number of frames is not what sizes and blocks make it.
    #[error(
        "the ring has {expected} frames (tp_frame_nr: frames a block times blocks), not {frames}"
    )]
    FrameCount {
        /// Frames asked for.
        frames: u32,
        /// Frames that there are.
        expected: u32,
    },
    /// A V3 transmit ring was asked for something that only a receive ring has.
    #[error(
        "a V3 transmit ring has no retire timeout, private area or features \
         (tp_retire_blk_tov, tp_sizeof_priv, tp_feature_req_word)"
    )]
    ReceiveOnly,
}

impl RingConfig {
    /// The request with as many frames as its blocks hold; 0 where the sizes make no sense, which
    /// [`RingConfig::check`] then says.
    pub fn with_max_frame_nr(mut self) -> Self {
        let per_block = self.block_size.checked_div(self.frame_size).unwrap_or(0);
        self.frames = per_block.saturating_mul(self.blocks);
        self
    }

    /// Checks the rules, in the kernel's order.
    ///
    /// # Errors
    ///
    /// The first rule that is broken. A request that keeps all of them can still fail for want of
    /// memory.
    pub fn check(&self) -> Result<(), BrokenRule> {
        self.check_on(u32::try_from(base_page_size()).unwrap_or(u32::MAX))
    }

    fn check_on(&self, page_size: u32) -> Result<(), BrokenRule> {
        let Self { kind, block_size, blocks, frame_size, frames, private_size, .. } = *self;
        if blocks == 0 {
            return Err(BrokenRule::NoBlocks);
        }
        if !(1..=i32::MAX as u32).contains(&block_size) {
            return Err(BrokenRule::BlockSize { block_size });
        }
        if !block_size.is_multiple_of(page_size) {
            return Err(BrokenRule::BlockNotPages { block_size, page_size });
        }
        let least = kind.header().saturating_add(self.reserve);
        if kind.version() == TPACKET_V3 {
            let private = u64::from(private_size).next_multiple_of(u64::from(PRIVATE_ALIGNMENT));
            let least = u64::from(BLOCK_HEADER) + private + u64::from(least);
            if u64::from(block_size) < least {
                return Err(BrokenRule::BlockTooSmall { block_size, private_size, least });
            }
        }
        if frame_size < least {
            return Err(BrokenRule::FrameTooSmall { frame_size, least });
        }
        if !frame_size.is_multiple_of(FRAME_ALIGNMENT) {
            return Err(BrokenRule::FrameNotAligned { frame_size });
        }
        let per_block = block_size / frame_size;
        if per_block == 0 {
            return Err(BrokenRule::FrameLargerThanBlock { frame_size, block_size });
        }
        let Some(expected) = per_block.checked_mul(blocks) else {
            return Err(BrokenRule::TooManyFrames { per_block, blocks });
        };
        if expected != frames {
            return Err(BrokenRule::FrameCount { frames, expected });
        }
        let receive_only = self.retire_ms | private_size | self.features;
        if kind == Kind::TransmitV3 && receive_only != 0 {
            return Err(BrokenRule::ReceiveOnly);
        }
        Ok(())
    }

    /// The structure that the socket option takes; a version 2 ring reads only its first half.
    pub(super) fn to_kernel(self) -> libc::tpacket_req3 {
        libc::tpacket_req3 {
            tp_block_size: self.block_size,
            tp_block_nr: self.blocks,
            tp_frame_size: self.frame_size,
            tp_frame_nr: self.frames,
            tp_retire_blk_tov: self.retire_ms,
            tp_sizeof_priv: self.private_size,
            tp_feature_req_word: self.features,
        }
    }
}
