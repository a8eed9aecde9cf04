//! [`Extents`]: which bytes of a reader are in which file, and at which offset. Flow records tell it.
//!
//! An extent is a range of a reader's bytes that is in a file, as in a file system. Extents with records of other
//! readers between them may be merged. Such an extent says only between which offsets its records are.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use linerate_flow::export::PacketLocator;
use linerate_pcapfile::{ByteRange, PacketLocation};

/// The most extents of a reader.
const MAX_EXTENTS: usize = 1 << 14;

/// Extents with records of other readers between them are merged up to this length in the file. To read less than
/// that saves no time.
const MAX_MERGED_LEN: u64 = 64 << 10;

/// The name of a packet file in flow records; `None` for what can be read only once: pipes, standard input and output.
pub(crate) fn file_name(path: &Path) -> Option<Arc<str>> {
    let path = Some(path).filter(|path| *path != Path::new("-") && path.is_file())?;
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Some(path.to_string_lossy().into())
}

/// The extents of all readers of a writer.
#[derive(Default)]
pub(super) struct Extents {
    /// A locator reads them.
    enabled: AtomicBool,
    table: Mutex<ExtentTable>,
}

#[derive(Default)]
pub(super) struct ExtentTable {
    readers: Vec<ReaderExtents>,
    /// The writer has ended.
    ended: bool,
}

#[derive(Default)]
struct ReaderExtents {
    extents: VecDeque<Extent>,
    /// The writer has written or discarded everything before this position.
    done: u64,
}

/// Consecutive records of a reader.
struct Extent {
    /// Their range in all bytes of the reader.
    byte_range: ByteRange,
    /// Where they begin and end in files, without the compression.
    first: (Arc<str>, u64),
    last: (Arc<str>, u64),
}

impl Extent {
    fn has_one_file(&self) -> bool {
        // Files of a ring may have the same name.
        Arc::ptr_eq(&self.first.0, &self.last.0)
    }

    /// Whether no other records are between these.
    fn is_contiguous(&self) -> bool {
        let ByteRange { begin, end } = self.byte_range;
        self.has_one_file() && self.last.1 - self.first.1 == end - begin
    }

    /// Whether `next` can be merged into this extent.
    fn accepts(&self, next: &Self) -> bool {
        let adjacent = self.byte_range.end == next.byte_range.begin
            && self.has_one_file()
            && Arc::ptr_eq(&self.last.0, &next.first.0);
        let contiguous =
            self.last.1 == next.first.1 && self.is_contiguous() && next.is_contiguous();
        adjacent && (contiguous || next.last.1 - self.first.1 <= MAX_MERGED_LEN)
    }

    /// Merges the extent that follows.
    fn extend(&mut self, next: Self) {
        self.byte_range.end = next.byte_range.end;
        self.last = next.last;
    }

    /// An offset in the file of its first record, at or before this position.
    fn at_or_before(&self, position: u64) -> u64 {
        let within = position.saturating_sub(self.byte_range.begin);
        self.first.1 + if self.is_contiguous() { within } else { 0 }
    }

    /// An offset in the file of its last record, at or after this position.
    fn at_or_after(&self, position: u64) -> u64 {
        let behind = self.byte_range.end.saturating_sub(position);
        self.last.1 - if self.is_contiguous() { behind } else { 0 }
    }
}

impl Extents {
    /// Whether a locator reads them.
    pub(super) fn is_enabled(&self) -> bool {
        self.enabled.load(Relaxed)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ExtentTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExtentTable {
    /// Records of a reader were written to `file` from the offset `first` on.
    pub(super) fn add(
        &mut self,
        reader: usize,
        byte_range: ByteRange,
        file: &Arc<str>,
        first: u64,
    ) {
        let last = first + (byte_range.end - byte_range.begin);
        let [first, last] = [first, last].map(|offset| (Arc::clone(file), offset));
        let extent = Extent { byte_range, first, last };
        let extents = &mut self.reader(reader).extents;
        match extents.back_mut() {
            Some(before) if before.accepts(&extent) => before.extend(extent),
            _ => extents.push_back(extent),
        }
        if extents.len() > MAX_EXTENTS {
            merge_pairs(extents);
        }
    }

    /// The writer has written or discarded everything of a reader before this position.
    pub(super) fn set_done(&mut self, reader: usize, position: u64) {
        let done = &mut self.reader(reader).done;
        *done = position.max(*done);
    }

    /// The writer has ended.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    fn reader(&mut self, reader: usize) -> &mut ReaderExtents {
        if self.readers.len() <= reader {
            self.readers.resize_with(reader + 1, ReaderExtents::default);
        }
        &mut self.readers[reader]
    }

    fn locate(&mut self, reader: usize, byte_range: ByteRange) -> Poll<Option<PacketLocation>> {
        let ended = self.ended;
        let ReaderExtents { extents, done } = self.reader(reader);
        if *done < byte_range.end && !ended {
            return Poll::Pending;
        }
        let from = extents.partition_point(|extent| extent.byte_range.end <= byte_range.begin);
        let to = extents.partition_point(|extent| extent.byte_range.begin < byte_range.end);
        if from >= to {
            return Poll::Ready(None);
        }
        let (first, last) = (&extents[from], &extents[to - 1]);
        let (file, later) = (&first.first.0, &last.last.0);
        Poll::Ready(Some(PacketLocation {
            file: Arc::clone(file),
            first: first.at_or_before(byte_range.begin),
            end: Arc::ptr_eq(file, later).then(|| last.at_or_after(byte_range.end)),
        }))
    }
}

/// Merges every two extents. The oldest ones become coarse first, because every call merges them again.
#[cold]
fn merge_pairs(extents: &mut VecDeque<Extent>) {
    let mut rest = std::mem::take(extents).into_iter();
    while let Some(mut extent) = rest.next() {
        if let Some(next) = rest.next() {
            extent.extend(next);
        }
        extents.push_back(extent);
    }
}

/// Locates the packets of one reader.
pub(super) struct ReaderLocator {
    extents: Arc<Extents>,
    reader: usize,
}

impl ReaderLocator {
    /// Must be called before the reader's first packet.
    pub(super) fn new(extents: Arc<Extents>, reader: usize) -> Self {
        extents.enabled.store(true, Relaxed);
        Self { extents, reader }
    }
}

impl PacketLocator for ReaderLocator {
    fn locate(&self, byte_range: ByteRange) -> Poll<Option<PacketLocation>> {
        self.extents.lock().locate(self.reader, byte_range)
    }
}

#[cfg(test)]
mod tests;
