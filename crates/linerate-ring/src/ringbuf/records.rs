//! [`Records`]: a BPF ring buffer, read in place; and [`ReaderState`], which tells the program whether readers
//! sleep.
//!
//! The ring is one page with the reader's position, one with the writer's, and the data, mapped
//! twice in a row by the kernel so that no record is ever split (`kernel/bpf/ringbuf.c`). A record
//! is an eight-byte header and its bytes. The writer reserves it with the busy bit set, fills it,
//! and clears the bit; the reader takes records in order until it meets the writer's position or a
//! busy one, and moves its own position when it is done with their bytes, not before.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use linerate_bpf::map::{MappedArray, ProtFlags, SharedMapping};
use linerate_bpf::tee::{Action, PASS};
use rustix::param::page_size;

use crate::{Error, Result};

/// The record is being written.
const BUSY: u32 = 1 << 31;
/// The record holds nothing.
const DISCARDED: u32 = 1 << 30;
/// Bytes of the header before each record.
const HEADER: u64 = 8;

/// What is at the reader's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// Nothing that [`Records::look`] has found.
    Empty,
    /// A record that is being written.
    Busy,
    /// A complete one with this stamp.
    Stamp(u64),
}

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
    /// Empty records that were passed over: each carried a wake-up.
    wakeups: u64,
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
        let mut records = Self {
            reader,
            writer,
            data,
            mask,
            position: 0,
            limit: 0,
            released: 0,
            looks: 0,
            wakeups: 0,
        };
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
        self.look();
        self.position != self.limit
    }

    /// Looks at the writer's position.
    #[inline]
    pub(super) fn look(&mut self) {
        // Acquire: the headers of the records below are initialised.
        self.limit = self.writer_position().load(Ordering::Acquire);
        self.looks += 1;
    }

    /// What comes next, of what the last look has found.
    #[inline]
    pub(super) fn head(&mut self) -> Head {
        match self.complete() {
            // SAFETY: a complete record; its bytes are not used after this call.
            Some(header) => match unsafe { self.bytes(header) }.first_chunk() {
                // A record of these programs begins with the stamp.
                Some(stamp) => Head::Stamp(u64::from_ne_bytes(*stamp)),
                None => Head::Empty,
            },
            None if self.position == self.limit => Head::Empty,
            None => Head::Busy,
        }
    }

    /// How often the writer's position was looked at: while it is the same, no time has passed for the reader.
    #[inline]
    pub(super) fn looks(&self) -> u64 {
        self.looks
    }

    /// Wake-up records that the reader has passed.
    #[inline]
    pub(super) fn wakeups(&self) -> u64 {
        self.wakeups
    }

    /// Whether the next record is complete and has bytes. Passes over those that hold nothing.
    #[inline]
    pub(super) fn has_frame(&mut self) -> bool {
        while self.ready() {
            let header = self.header().load(Ordering::Acquire);
            if header & DISCARDED == 0 {
                return header & BUSY == 0;
            }
            self.wakeups += 1;
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
            self.wakeups += 1;
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

/// The array of `struct tee_reader`, one for each ring: the reader says that it sleeps, so that the program wakes
/// it then and only then; and that it wants no more.
#[derive(Debug)]
pub(crate) struct ReaderState(MappedArray);

/// Offsets of the words of `struct tee_reader`.
const WAITING: usize = 0;
const STOP: usize = 4;

impl ReaderState {
    pub(crate) fn map(map: BorrowedFd<'_>) -> Result<Self> {
        Ok(Self(MappedArray::new(map)?))
    }

    /// Call it before the last check of the rings. The fence pairs with the full barrier of the program's
    /// submit: either the program sees the word, or we see its record.
    pub(super) fn set_waiting(&self, rings: impl Iterator<Item = usize>) {
        rings.for_each(|ring| self.word(ring, WAITING).store(1, Ordering::Relaxed));
        fence(Ordering::SeqCst);
    }

    pub(super) fn clear_waiting(&self, ring: usize) {
        self.word(ring, WAITING).store(0, Ordering::Relaxed);
    }

    /// Programs that start from now on copy nothing into this ring; those that run may still.
    pub(super) fn stop(&self, ring: usize) {
        // Release: never after the wait for running programs.
        self.word(ring, STOP).store(1, Ordering::Release);
    }

    /// What becomes of frames that a program for [`Action::Redirect`] has copied into any ring.
    pub(crate) fn set_action(&self, action: Action) {
        let passing = action != Action::Redirect;
        let words = (0..self.0.max_entries()).map(|ring| self.word(ring, PASS));
        words.for_each(|word| word.store(passing.into(), Ordering::Relaxed));
    }

    fn word(&self, ring: usize, offset: usize) -> &AtomicU32 {
        self.0.atomic(ring, offset)
    }
}
