//! [`Metadata`]: what the steering program writes in front of a frame (`struct steer_meta`).

use std::ptr;

use crate::Timestamp;

/// Ethernet addresses in front of which nothing is inserted.
const ADDRESSES: usize = 12;
const MAGIC: u32 = 0x4c4e_5254;
const HARDWARE: u32 = 1 << 0;
const VLAN: u32 = 1 << 1;

/// The layout of `struct steer_meta` in `bpf/steer.h`.
#[repr(C, packed(4))]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Metadata {
    pub(super) timestamp: u64,
    pub(super) vlan_tci: u16,
    /// Network order.
    pub(super) vlan_proto: [u8; 2],
    pub(super) flags: u32,
    pub(super) magic: u32,
}

impl Metadata {
    /// Reads the metadata that ends at `frame`, if there is any, and takes its mark away, so that
    /// the next frame in this chunk is not mistaken to have some.
    ///
    /// # Safety
    /// `frame` must be a received frame in a chunk that is ours, with the kernel's headroom.
    #[inline]
    pub(super) unsafe fn take(frame: *mut u8) -> Option<Self> {
        // SAFETY: the headroom is larger than the metadata; alignment is not assumed.
        let found = unsafe { frame.sub(size_of::<Self>()).cast::<Self>().read_unaligned() };
        if found.magic != MAGIC {
            return None;
        }
        // SAFETY: as above, its last four bytes.
        unsafe { frame.sub(size_of::<u32>()).cast::<u32>().write_unaligned(0) };
        Some(found)
    }

    /// The stamp in front of `frame` as it stands there, nothing taken away.
    ///
    /// # Safety
    /// As for [`Metadata::take`].
    #[inline]
    pub(super) unsafe fn stamp(frame: *const u8) -> Option<u64> {
        // SAFETY: as there.
        let found = unsafe { frame.sub(size_of::<Self>()).cast::<Self>().read_unaligned() };
        (found.magic == MAGIC && found.timestamp != 0).then_some(found.timestamp)
    }

    /// The stamp in UTC; the kernel's clock was `tai_offset_ns` nanoseconds ahead of it.
    #[inline]
    pub(super) fn timestamp(&self, tai_offset_ns: u64) -> Option<Timestamp> {
        match (self.timestamp, self.flags & HARDWARE) {
            (0, _) => None,
            (stamp, 0) => Some(Timestamp(stamp - tai_offset_ns.min(stamp))),
            (stamp, _) => Some(Timestamp(stamp)),
        }
    }

    #[inline]
    pub(super) fn vlan(&self) -> Option<Tag> {
        let [t0, t1] = self.vlan_tci.to_be_bytes();
        let [p0, p1] = self.vlan_proto;
        (self.flags & VLAN != 0).then_some(Tag([p0, p1, t0, t1]))
    }
}

/// A VLAN tag as it stands in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag([u8; 4]);

impl Tag {
    /// Moves the addresses forward by four bytes and puts the tag behind them.
    ///
    /// # Safety
    /// `frame` must be a received frame of `len` bytes in a chunk that is ours, with headroom.
    #[cold]
    pub(super) unsafe fn insert(self, frame: *mut u8, len: usize) -> (*mut u8, usize) {
        if len < ADDRESSES {
            return (frame, len);
        }
        // SAFETY: four bytes of headroom are there, and the addresses are part of the frame.
        unsafe {
            let start = frame.sub(self.0.len());
            ptr::copy(frame, start, ADDRESSES);
            ptr::copy_nonoverlapping(self.0.as_ptr(), start.add(ADDRESSES), self.0.len());
            (start, len + self.0.len())
        }
    }
}

#[cfg(test)]
mod tests;
