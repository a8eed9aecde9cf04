//! [`Mapped`]: the memory of one ring as the kernel maps it.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use linerate_bpf::map::{ProtFlags, SharedMapping};
use rustix::net::xdp::XdpRingOffset;

use super::queue::{Memory, RingIndex};

/// A ring mapped from a socket, unmapped on drop. `T` is the kernel's entry: a `u64` chunk address
/// in the fill and completion rings, an `xdp_desc` in the receive and transmit rings.
#[derive(Debug)]
pub(crate) struct Mapped<T> {
    _mapping: SharedMapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    slots: u32,
}

// SAFETY: the mapping belongs to this value alone in this process; the pointers stay valid wherever
// it moves, and what the kernel shares is only touched through atomics or by the ring protocol.
unsafe impl<T: Send> Send for Mapped<T> {}

impl<T: Copy> Mapped<T> {
    /// Maps the ring of `slots` entries at page offset `page_offset` (`XDP_PGOFF_RX_RING` and the
    /// like) of `socket`, laid out as `offsets` says (`XDP_MMAP_OFFSETS`).
    pub(crate) fn new(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        offsets: &XdpRingOffset,
        slots: u32,
    ) -> io::Result<Self> {
        let Some(flags) = offsets.flags else {
            let missing = "AF_XDP rings without flags (Linux before 5.4)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, missing));
        };
        let len = offsets.desc as usize + slots as usize * size_of::<T>();
        let mapping =
            SharedMapping::new(socket, len, page_offset, ProtFlags::READ | ProtFlags::WRITE)?;
        let base = mapping.as_ptr();
        // SAFETY: the kernel's offsets lie within the mapping, whose length is computed from them.
        let at = |offset: u64| unsafe { base.add(offset as usize) };
        Ok(Self {
            _mapping: mapping,
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: at(flags).cast(),
            entries: at(offsets.desc).cast(),
            slots,
        })
    }
}

impl<T: Copy> Memory for Mapped<T> {
    type Entry = T;

    #[inline(always)]
    fn producer(&self) -> &impl RingIndex {
        // SAFETY: an aligned u32 of the mapping, which lives as long as `self`.
        unsafe { self.producer.as_ref() }
    }

    #[inline(always)]
    fn consumer(&self) -> &impl RingIndex {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline(always)]
    fn flags(&self) -> &impl RingIndex {
        // SAFETY: as for `producer`.
        unsafe { self.flags.as_ref() }
    }

    #[inline(always)]
    fn slots(&self) -> u32 {
        self.slots
    }

    #[inline(always)]
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    #[inline(always)]
    unsafe fn read(&self, index: u32) -> T {
        // SAFETY: the mask keeps the slot inside the mapping; the caller owns the slot.
        unsafe { self.entries.add((index & (self.slots - 1)) as usize).read() }
    }

    #[inline(always)]
    unsafe fn write(&self, index: u32, entry: T) {
        // SAFETY: as for `read`.
        unsafe { self.entries.add((index & (self.slots - 1)) as usize).write(entry) };
    }
}
