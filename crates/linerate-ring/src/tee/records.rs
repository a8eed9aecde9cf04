//! [`Records`]: a BPF ring buffer, read in place; and [`Reader`], which tells the program whether the reader
//! sleeps.
//!
//! The ring is one page with the reader's position, one with the writer's, and the data, mapped
//! twice in a row by the kernel so that no record is ever split (`kernel/bpf/ringbuf.c`). A record
//! is an eight-byte header and its bytes. The writer reserves it with the busy bit set, fills it,
//! and clears the bit; the reader takes records in order until it meets the writer's position or a
//! busy one, and moves its own position when it is done with their bytes, not before.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use linerate_bpf::map::{ProtFlags, SharedMapping};
use linerate_bpf::tee::PASS;
use rustix::param::page_size;

use crate::{Error, Result};

/// The record is being written.
const BUSY: u32 = 1 << 31;
/// The record holds nothing.
const DISCARDED: u32 = 1 << 30;
/// Bytes of the header before each record.
const HEADER: u64 = 8;

/// The reading end of a ring buffer.
#[derive(Debug)]
pub(super) struct Records {
    reader: SharedMapping,
    writer: SharedMapping,
    data: NonNull<u8>,
    mask: u64,
    /// The next record to read; ahead of the published position within a batch.
    position: u64,
    /// The writer's position as last seen.
    limit: u64,
    /// The position as the kernel knows it.
    released: u64,
    /// How often the writer's position was looked at.
    looks: u64,
}

// SAFETY: the mappings belong to this value; what the kernel writes is only touched through atomics,
// or after they say that it is complete.
unsafe impl Send for Records {}

impl Records {
    /// Maps the ring buffer `map` of `size` bytes.
    pub(super) fn map(map: BorrowedFd<'_>, size: u32) -> Result<Self> {
        let page = page_size();
        let failed = |error| Error::system("map the tee's ring buffer", error);
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        let reader = SharedMapping::new(map, page, 0, writable).map_err(failed)?;
        let len = page + 2 * size as usize;
        let writer = SharedMapping::new(map, len, page as u64, ProtFlags::READ).map_err(failed)?;
        // SAFETY: the data begins one page into a mapping that is longer.
        let data = unsafe { writer.as_ptr().add(page) };
        let mask = u64::from(size) - 1;
        let mut records =
            Self { reader, writer, data, mask, position: 0, limit: 0, released: 0, looks: 0 };
        records.position = records.reader_position().load(Ordering::Relaxed);
        records.limit = records.position;
        records.released = records.position;
        Ok(records)
    }

    /// Whether a record has been reserved that was not read yet; looks at the writer's position
    /// only when the copy says no.
    #[inline]
    pub(super) fn ready(&mut self) -> bool {
        if self.position != self.limit {
            return true;
        }
        // Acquire: the headers of the records below are initialised.
        self.limit = self.writer_position().load(Ordering::Acquire);
        self.looks += 1;
        self.position != self.limit
    }

    /// How often the writer's position was looked at: while it is the same, no time has passed for the reader.
    #[inline]
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    /// Whether the next record is complete and has bytes. Passes over those that hold nothing.
    #[inline]
    pub(super) fn has_frame(&mut self) -> bool {
        while self.ready() {
            let header = self.header().load(Ordering::Acquire);
            if header & DISCARDED == 0 {
                return header & BUSY == 0;
            }
            self.pass(header);
        }
        false
    }

    /// The header of the record at the position, which the writer has reserved. The writer changes the
    /// word when it submits, hence the atomic; Acquire pairs with its exchange, after which the bytes are
    /// complete.
    #[inline]
    fn header(&self) -> &AtomicU32 {
        let offset = (self.position & self.mask) as usize;
        // SAFETY: within the data; records are aligned to eight bytes.
        unsafe { self.data.add(offset).cast::<AtomicU32>().as_ref() }
    }

    /// Moves the position past the record with this header.
    #[inline]
    fn pass(&mut self, header: u32) {
        let len = u64::from(header & !DISCARDED);
        self.position += (HEADER + len).next_multiple_of(8);
    }

    /// The next complete record's bytes, or `None`. They stay until [`Records::release`].
    ///
    /// # Safety
    /// The bytes must not be used after the next `release`.
    #[inline]
    pub(super) unsafe fn next<'r>(&mut self) -> Option<&'r [u8]> {
        let header = self.complete()?;
        // SAFETY: a complete record; the caller sees to it that nothing is given back before its time.
        let bytes = unsafe { self.bytes(header) };
        self.pass(header);
        Some(bytes)
    }

    /// The bytes of the record that `next` would give.
    #[inline]
    pub(super) fn peek(&mut self) -> Option<&[u8]> {
        let header = self.complete()?;
        // SAFETY: a complete record, and `release` needs `self` for itself.
        Some(unsafe { self.bytes(header) })
    }

    /// The header of the next complete record with bytes, of those that the copy of the writer's position
    /// knows of. Passes over those that hold nothing.
    #[inline]
    fn complete(&mut self) -> Option<u32> {
        while self.position != self.limit {
            let header = self.header().load(Ordering::Acquire);
            if header & BUSY != 0 {
                return None;
            }
            if header & DISCARDED == 0 {
                return Some(header);
            }
            self.pass(header);
        }
        None
    }

    /// The bytes of the record at the position, which has this header.
    ///
    /// # Safety
    /// The record must be complete, and the bytes must not be used after the next `release`.
    #[inline]
    unsafe fn bytes<'r>(&self, header: u32) -> &'r [u8] {
        let offset = (self.position & self.mask) as usize;
        // SAFETY: contiguous through the double mapping; the kernel does not write there until our
        // position passes it, which `release` does.
        unsafe {
            let bytes = self.data.add(offset + HEADER as usize);
            std::slice::from_raw_parts(bytes.as_ptr(), header as usize)
        }
    }

    /// Gives the space of everything read back to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        // Release: our reads are done before the kernel may overwrite.
        self.reader_position().store(self.position, Ordering::Release);
        self.released = self.position;
    }

    /// The same once it has become a 64th of the ring. For readers that take a few records at a time: the
    /// writer looks at this word for every record, and loses it from its cache when it changes.
    #[inline]
    pub(super) fn release_much(&mut self) {
        if self.position - self.released > self.mask / 64 {
            self.release();
        }
    }

    /// Bytes of data.
    pub(super) fn capacity(&self) -> usize {
        self.mask as usize + 1
    }

    /// Bytes between the two positions.
    pub(super) fn pending(&self) -> usize {
        (self.writer_position().load(Ordering::Acquire) - self.position) as usize
    }

    fn reader_position(&self) -> &AtomicU64 {
        // SAFETY: the first word of a page that lives as long as `self`.
        unsafe { self.reader.as_ptr().cast().as_ref() }
    }

    fn writer_position(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { self.writer.as_ptr().cast().as_ref() }
    }
}

/// `struct tee_reader`: the reader says that it sleeps, so that the program wakes it then and only
/// then; and that it wants no more.
#[derive(Debug)]
pub(super) struct Reader(SharedMapping);

// SAFETY: the mapping belongs to this value and is touched through an atomic only.
unsafe impl Send for Reader {}

impl Reader {
    pub(super) fn map(map: BorrowedFd<'_>) -> Result<Self> {
        let page = page_size();
        SharedMapping::new(map, page, 0, ProtFlags::READ | ProtFlags::WRITE)
            .map(Self)
            .map_err(|error| Error::system("map the state of the tee's reader", error))
    }

    /// Call it before the last check of the ring. The fence pairs with the full barrier of the program's
    /// submit: either the program sees the word, or we see its record.
    pub(super) fn announce_sleep(&self) {
        self.waiting().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub(super) fn cancel_sleep(&self) {
        self.waiting().store(0, Ordering::Relaxed);
    }

    /// Programs that start from now on copy nothing; those that run may still.
    pub(super) fn stop(&self) {
        // Release: never after the wait for running programs.
        self.stopping().store(1, Ordering::Release);
    }

    /// Whether a taking program passes on what it copies.
    pub(super) fn set_passing(&self, passing: bool) {
        // SAFETY: the third word of the page.
        let pass: &AtomicU32 = unsafe { self.0.as_ptr().byte_add(PASS).cast().as_ref() };
        pass.store(passing.into(), Ordering::Relaxed);
    }

    fn waiting(&self) -> &AtomicU32 {
        // SAFETY: the first word of a page that lives as long as `self`.
        unsafe { self.0.as_ptr().cast().as_ref() }
    }

    fn stopping(&self) -> &AtomicU32 {
        // SAFETY: the second word of that page.
        unsafe { self.0.as_ptr().cast::<AtomicU32>().add(1).as_ref() }
    }
}
