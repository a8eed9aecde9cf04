//! The four single-producer, single-consumer rings between a socket and the kernel: the protocol.
//!
//! ```text
//!                 user space                kernel
//!   fill          Producer  --- chunk --->  consumer     "receive into this chunk"
//!   receive       Consumer  <-- frame ----  producer     "this chunk holds a frame"
//!   transmit      Producer  --- frame --->  consumer     "send this"
//!   completion    Consumer  <-- chunk ----  producer     "sent, the chunk is yours again"
//! ```
//!
//! A ring is a power of two of slots and two free-running 32-bit indices. The producer writes slots,
//! then publishes its index with Release; the consumer reads that index with Acquire, so that the
//! slots below it are complete, reads them, and publishes its own index with Release, so that the
//! producer, reading it with Acquire, overwrites only what has been read. The kernel does the same
//! on its side (`smp_store_release`, `smp_load_acquire` in `net/xdp/xsk_queue.h`).
//!
//! Each side keeps a plain copy of both indices and touches the shared ones as rarely as it can: the
//! other side's index when the copy says that nothing is left, its own once a batch. Every touch of
//! a shared index is a cache line that moves between two cores.
//!
//! The protocol is generic over the memory behind it, so that loom can run it over its own atomics.

use std::sync::atomic::{AtomicU32, Ordering};

/// A 32-bit word that both sides see.
pub(crate) trait RingIndex {
    /// An atomic load.
    fn load(&self, ordering: Ordering) -> u32;
    /// An atomic store.
    fn store(&self, value: u32, ordering: Ordering);
}

impl RingIndex for AtomicU32 {
    #[inline(always)]
    fn load(&self, ordering: Ordering) -> u32 {
        AtomicU32::load(self, ordering)
    }

    #[inline(always)]
    fn store(&self, value: u32, ordering: Ordering) {
        AtomicU32::store(self, value, ordering);
    }
}

/// The memory of one ring: three words and the slots.
pub(crate) trait Memory {
    /// What a slot holds.
    type Entry: Copy;

    /// The index of the next slot that the producer will publish.
    fn producer(&self) -> &impl RingIndex;

    /// The index of the next slot that the consumer will release.
    fn consumer(&self) -> &impl RingIndex;

    /// `XDP_RING_NEED_WAKEUP` or nothing, written by the kernel.
    fn flags(&self) -> &impl RingIndex;

    /// The number of slots, a power of two.
    fn slots(&self) -> u32;

    /// A sequentially consistent fence.
    fn fence(&self);

    /// The entry in the slot that the free-running `index` falls on.
    ///
    /// # Safety
    /// The slot must belong to the caller by the protocol above.
    unsafe fn read(&self, index: u32) -> Self::Entry;

    /// Puts `entry` in the slot that the free-running `index` falls on.
    ///
    /// # Safety
    /// The slot must belong to the caller by the protocol above.
    unsafe fn write(&self, index: u32, entry: Self::Entry);
}

/// The producing end of a ring (fill, transmit).
#[derive(Debug)]
pub(crate) struct Producer<M> {
    memory: M,
    /// Next slot to write; runs ahead of the published index within a batch.
    head: u32,
    /// The consumer's index plus the number of slots: `head` must stay below it.
    limit: u32,
}

impl<M: Memory> Producer<M> {
    /// The end of a ring that nobody has written yet, or that this side wrote before.
    pub(crate) fn new(memory: M) -> Self {
        let head = memory.producer().load(Ordering::Relaxed);
        let limit = memory.consumer().load(Ordering::Acquire).wrapping_add(memory.slots());
        Self { memory, head, limit }
    }

    /// How many slots may be written now, at most `wanted`. Looks at the kernel's index only when
    /// the copy is not enough.
    #[inline]
    pub(crate) fn free(&mut self, wanted: u32) -> u32 {
        let free = self.limit.wrapping_sub(self.head);
        if free >= wanted {
            return wanted;
        }
        // Acquire: pairs with the consumer's release of the slots, so that it has finished reading
        // what we are about to overwrite.
        let consumed = self.memory.consumer().load(Ordering::Acquire);
        self.limit = consumed.wrapping_add(self.memory.slots());
        self.limit.wrapping_sub(self.head).min(wanted)
    }

    /// Writes the next slot, unseen by the other side until [`Producer::publish`]. False, and
    /// nothing written, when the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, entry: M::Entry) -> bool {
        if self.free(1) == 0 {
            return false;
        }
        // SAFETY: `free` says that the consumer has released this slot, and nobody but us writes.
        unsafe { self.memory.write(self.head, entry) };
        self.head = self.head.wrapping_add(1);
        true
    }

    /// Hands everything pushed so far to the other side.
    #[inline]
    pub(crate) fn publish(&mut self) {
        // Release: the slots must be visible before the index that covers them.
        self.memory.producer().store(self.head, Ordering::Release);
    }

    /// Whether something was pushed that was not published.
    #[inline]
    pub(crate) fn has_unpublished(&self) -> bool {
        // Only this side writes the index.
        self.memory.producer().load(Ordering::Relaxed) != self.head
    }

    /// Whether the kernel sleeps and must be woken by a system call to look at this ring again.
    /// Call it after [`Producer::publish`].
    ///
    /// A wake-up must not be lost when both sides check at the same time:
    ///
    /// ```text
    ///   ours                                the kernel's (driver, at the end of its poll)
    ///   W1  producer = head                 K1  flags |= NEED_WAKEUP
    ///       fence                               barrier
    ///   R1  flags                           K2  producer; if there is work, do not sleep
    /// ```
    ///
    /// If R1 does not see K1, then K2 must see W1, or both sleep. That is store-buffering: Release
    /// and Acquire do not forbid it, x86 included, since a load may overtake an earlier store to
    /// another address. It takes a full fence between W1 and R1, ours below, and one between K1
    /// and K2. The kernel's half is the driver's: `xsk_set_rx_need_wakeup` and
    /// `xsk_set_tx_need_wakeup` themselves are plain stores, and drivers look at the ring again
    /// from a later poll, which an interrupt re-arm (a serialising register write) separates from
    /// the store. In copy mode there is nothing to lose: for transmission the flag is set at bind
    /// and never cleared, since only a system call sends, and for reception it is never set, since
    /// the frame's own arrival runs the kernel's side.
    #[inline]
    pub(crate) fn need_wakeup(&self) -> bool {
        self.memory.fence();
        self.memory.flags().load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// How many slots the other side has not released yet, pushed but unpublished ones included.
    pub(crate) fn outstanding(&self) -> u32 {
        self.head.wrapping_sub(self.memory.consumer().load(Ordering::Acquire))
    }
}

/// The consuming end of a ring (receive, completion).
#[derive(Debug)]
pub(crate) struct Consumer<M> {
    memory: M,
    /// Next slot to read; runs ahead of the published index within a batch.
    head: u32,
    /// The producer's index as last seen.
    limit: u32,
}

impl<M: Memory> Consumer<M> {
    /// The end of a ring that nobody has read yet, or that this side read before.
    pub(crate) fn new(memory: M) -> Self {
        let head = memory.consumer().load(Ordering::Relaxed);
        Self { memory, head, limit: head }
    }

    /// How many entries can be read now. Looks at the kernel's index only when the copy says none.
    #[inline]
    pub(crate) fn ready(&mut self) -> u32 {
        let ready = self.limit.wrapping_sub(self.head);
        if ready != 0 {
            return ready;
        }
        // Acquire: pairs with the producer's Release, so that the slots below are complete.
        self.limit = self.memory.producer().load(Ordering::Acquire);
        self.limit.wrapping_sub(self.head)
    }

    /// Looks at the kernel's index again, whatever the copy says.
    #[inline]
    pub(crate) fn refresh(&mut self) -> u32 {
        self.limit = self.memory.producer().load(Ordering::Acquire);
        self.limit.wrapping_sub(self.head)
    }

    /// How many entries can be read without looking at the kernel's index.
    #[inline]
    pub(crate) fn cached_available(&self) -> u32 {
        self.limit.wrapping_sub(self.head)
    }

    /// The entry `ahead` slots past the next one, if it has been published; nothing is consumed.
    #[inline]
    pub(crate) fn peek(&self, ahead: u32) -> Option<M::Entry> {
        if ahead >= self.limit.wrapping_sub(self.head) {
            return None;
        }
        // SAFETY: below the producer's index, read with Acquire, and not released yet.
        Some(unsafe { self.memory.read(self.head.wrapping_add(ahead)) })
    }

    /// Takes the next entry, if one is known to be there (see [`Consumer::ready`]). Its slot is
    /// given back by [`Consumer::release`].
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<M::Entry> {
        let entry = self.peek(0)?;
        self.head = self.head.wrapping_add(1);
        Some(entry)
    }

    /// Gives the slots of everything popped so far back to the other side.
    #[inline]
    pub(crate) fn release(&mut self) {
        // Release: our reads of the slots must be done before the producer may overwrite them.
        self.memory.consumer().store(self.head, Ordering::Release);
    }
}

#[cfg(test)]
mod loom_tests;
#[cfg(test)]
mod tests;
