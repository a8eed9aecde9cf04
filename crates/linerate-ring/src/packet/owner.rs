//! The word in a block or slot that says who owns it: the whole protocol of a packet ring.
//!
//! ```text
//!   receive    kernel: fills the block --- user --->    program: reads it
//!                                      <-- kernel ---
//!   transmit   program: fills the slot --- request ---> kernel: sends it
//!                                      <-- available --
//! ```
//!
//! The side that releases memory stores the word with Release, after its last access; the side that takes it
//! loads the word with Acquire, before its first. (The kernel has `smp_wmb` and `smp_rmb` in those places:
//! `prb_close_block` and `prb_dispatch_next_block` of `net/packet/af_packet.c`.) Generic over the word, so
//! that loom can run the protocol.

use std::sync::atomic::Ordering;

use super::layout::STATUS_USER;
use crate::xdp::queue::RingIndex;

/// Whether a block of a receive ring is the program's to read.
#[inline]
pub(super) fn is_filled(status: &impl RingIndex) -> bool {
    status.load(Ordering::Acquire) & STATUS_USER != 0
}

/// Gives a block that has been read back to the kernel.
#[inline]
pub(super) fn give_back(status: &impl RingIndex) {
    status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
}

/// Whether a slot of a transmit ring is the program's to fill.
#[inline]
pub(super) fn is_available(status: &impl RingIndex) -> bool {
    status.load(Ordering::Acquire) == libc::TP_STATUS_AVAILABLE
}

/// Gives a slot that has been filled to the kernel, to send.
#[inline]
pub(super) fn request_sending(status: &impl RingIndex) {
    status.store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
}

#[cfg(test)]
mod loom_tests;
