//! [`Places`]: in which files the records of each reader are, and where, for flow records.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use linerate_flow::PacketLocation;
use linerate_flow::export::PacketFiles;
use linerate_flow::meter::Position;

/// The most pieces that are remembered of a reader.
const MAX_PIECES: usize = 1 << 14;

/// Pieces with records of other readers between them become one up to this length in the file. It is not worth while
/// to look for packets in smaller parts.
const MAX_PIECE_LEN: u64 = 64 << 10;

/// The name of a packet file in flow records; `None` for what cannot be read again: pipes, standard input and output.
pub(crate) fn file_name(path: &Path) -> Option<Arc<str>> {
    let path = Some(path).filter(|path| *path != Path::new("-") && path.is_file())?;
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Some(path.to_string_lossy().into())
}

/// Where the records of all readers of a writer are.
#[derive(Default)]
pub(super) struct Places {
    /// Somebody asks for them.
    wanted: AtomicBool,
    all: Mutex<All>,
}

#[derive(Default)]
pub(super) struct All {
    readers: Vec<ReaderPlaces>,
    /// The writer has ended.
    ended: bool,
}

#[derive(Default)]
struct ReaderPlaces {
    pieces: VecDeque<Piece>,
    /// What is before this position has been written, or never will be.
    done: u64,
}

/// Consecutive records of a reader.
struct Piece {
    /// Their position among all bytes of the reader.
    position: Position,
    /// Where they begin and end in files, without the compression.
    first: (Arc<str>, u64),
    last: (Arc<str>, u64),
}

impl Piece {
    fn has_one_file(&self) -> bool {
        // Files of a ring may have the same name.
        Arc::ptr_eq(&self.first.0, &self.last.0)
    }

    /// Whether no other records are between these.
    fn is_contiguous(&self) -> bool {
        let Position { begin, end } = self.position;
        self.has_one_file() && self.last.1 - self.first.1 == end - begin
    }

    /// Whether a longer piece, with `next`, is as good.
    fn accepts(&self, next: &Self) -> bool {
        let adjacent = self.position.end == next.position.begin
            && self.has_one_file()
            && Arc::ptr_eq(&self.last.0, &next.first.0);
        let contiguous =
            self.last.1 == next.first.1 && self.is_contiguous() && next.is_contiguous();
        adjacent && (contiguous || next.last.1 - self.first.1 <= MAX_PIECE_LEN)
    }

    /// Becomes longer by the piece that follows.
    fn extend(&mut self, next: Self) {
        self.position.end = next.position.end;
        self.last = next.last;
    }

    /// A place in its file at or before this position.
    fn at_or_before(&self, position: u64) -> u64 {
        let within = position.saturating_sub(self.position.begin);
        self.first.1 + if self.is_contiguous() { within } else { 0 }
    }

    /// The last place up to this position, or a later one.
    fn at_or_after(&self, position: u64) -> u64 {
        let behind = self.position.end.saturating_sub(position);
        self.last.1 - if self.is_contiguous() { behind } else { 0 }
    }
}

impl Places {
    /// Whether somebody asks for them.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Relaxed)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    /// Records of a reader were written to `file` from the offset `first` on.
    pub(super) fn add(&mut self, reader: usize, position: Position, file: &Arc<str>, first: u64) {
        let last = first + (position.end - position.begin);
        let [first, last] = [first, last].map(|offset| (Arc::clone(file), offset));
        let piece = Piece { position, first, last };
        let pieces = &mut self.reader(reader).pieces;
        match pieces.back_mut() {
            Some(before) if before.accepts(&piece) => before.extend(piece),
            _ => pieces.push_back(piece),
        }
        if pieces.len() > MAX_PIECES {
            thin(pieces);
        }
    }

    /// Everything of a reader up to this position was written, or never will be.
    pub(super) fn set_done(&mut self, reader: usize, position: u64) {
        let done = &mut self.reader(reader).done;
        *done = position.max(*done);
    }

    /// Nothing is written any more.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    fn reader(&mut self, reader: usize) -> &mut ReaderPlaces {
        if self.readers.len() <= reader {
            self.readers.resize_with(reader + 1, ReaderPlaces::default);
        }
        &mut self.readers[reader]
    }

    fn locate(&mut self, reader: usize, position: Position) -> Poll<Option<PacketLocation>> {
        let ended = self.ended;
        let ReaderPlaces { pieces, done } = self.reader(reader);
        if *done < position.end && !ended {
            return Poll::Pending;
        }
        let from = pieces.partition_point(|piece| piece.position.end <= position.begin);
        let to = pieces.partition_point(|piece| piece.position.begin < position.end);
        if from >= to {
            return Poll::Ready(None);
        }
        let (first, last) = (&pieces[from], &pieces[to - 1]);
        let (file, later) = (&first.first.0, &last.last.0);
        Poll::Ready(Some(PacketLocation {
            file: Arc::clone(file),
            first: first.at_or_before(position.begin),
            end: Arc::ptr_eq(file, later).then(|| last.at_or_after(position.end)),
        }))
    }
}

/// Makes one of every two pieces. Old ones become coarse first, because each time has all of them in it.
#[cold]
fn thin(pieces: &mut VecDeque<Piece>) {
    let mut rest = std::mem::take(pieces).into_iter();
    while let Some(mut piece) = rest.next() {
        if let Some(next) = rest.next() {
            piece.extend(next);
        }
        pieces.push_back(piece);
    }
}

/// The files of one reader.
pub(super) struct ReaderFiles {
    places: Arc<Places>,
    reader: usize,
}

impl ReaderFiles {
    /// To be made before the reader's first packet.
    pub(super) fn new(places: Arc<Places>, reader: usize) -> Self {
        places.wanted.store(true, Relaxed);
        Self { places, reader }
    }
}

impl PacketFiles for ReaderFiles {
    fn locate(&self, position: Position) -> Poll<Option<PacketLocation>> {
        self.places.lock().locate(self.reader, position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(begin: u64, end: u64) -> Position {
        Position { begin, end }
    }

    fn name(name: &str) -> Arc<str> {
        name.into()
    }

    fn located(all: &mut All, reader: usize, position: Position) -> (String, u64, Option<u64>) {
        match all.locate(reader, position) {
            Poll::Ready(Some(PacketLocation { file, first, end })) => {
                (file.to_string(), first, end)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn records_of_one_reader_are_found_to_the_byte() {
        let (mut all, a, b) = (All::default(), name("a"), name("b"));
        all.add(0, at(0, 1000), &a, 100);
        all.add(0, at(1000, 1500), &a, 1100);
        // Blocks of another kind are between them.
        all.add(0, at(1500, 1600), &a, 100_000);
        all.add(0, at(1600, 1700), &b, 50);
        assert_eq!(all.locate(0, at(10, 20)), Poll::Pending);
        all.set_done(0, 1700);
        assert_eq!(all.readers[0].pieces.len(), 3);
        assert_eq!(located(&mut all, 0, at(990, 1010)), ("a".into(), 1090, Some(1110)));
        assert_eq!(located(&mut all, 0, at(10, 1510)), ("a".into(), 110, Some(100_010)));
        assert_eq!(located(&mut all, 0, at(1500, 1600)), ("a".into(), 100_000, Some(100_100)));
        assert_eq!(located(&mut all, 0, at(1550, 1610)), ("a".into(), 100_050, None));
        assert_eq!(located(&mut all, 0, at(1600, 1700)), ("b".into(), 50, Some(150)));
    }

    #[test]
    fn what_was_never_written_has_no_place() {
        let (mut all, file) = (All::default(), name("a"));
        all.add(0, at(0, 100), &file, 0);
        all.set_done(0, 300);
        assert_eq!(all.locate(0, at(100, 200)), Poll::Ready(None));
        // Of these packets the first ones were written.
        assert_eq!(located(&mut all, 0, at(50, 200)), ("a".into(), 50, Some(100)));
        assert_eq!(all.locate(1, at(0, 1)), Poll::Pending);
        all.end();
        assert_eq!(all.locate(1, at(0, 1)), Poll::Ready(None));
    }

    #[test]
    fn a_place_among_records_of_other_readers_is_at_most_too_long() {
        let (mut all, file) = (All::default(), name("a"));
        // Two readers take turns, 100 bytes each.
        for turn in 0..10_000 {
            for reader in 0..2 {
                let position = at(turn * 100, turn * 100 + 100);
                all.add(reader, position, &file, turn * 200 + reader as u64 * 100);
                all.set_done(reader, position.end);
            }
        }
        assert!(all.readers[1].pieces.len() < 40);
        for turn in 0..10_000 {
            let (_, first, end) = located(&mut all, 1, at(turn * 100, turn * 100 + 100));
            let (begins, ends) = (turn * 200 + 100, turn * 200 + 200);
            assert!((begins.saturating_sub(MAX_PIECE_LEN)..=begins).contains(&first), "{turn}");
            assert!((ends..=ends + MAX_PIECE_LEN).contains(&end.unwrap()), "{turn}");
        }
    }

    #[test]
    fn many_files_take_bounded_memory_and_no_record_is_outside_its_place() {
        let mut all = All::default();
        let files = 5 * MAX_PIECES as u64;
        // A file for each record.
        for number in 0..files {
            all.add(0, at(number, number + 1), &name(&format!("{number:06}")), 7);
        }
        all.set_done(0, files);
        assert!(all.readers[0].pieces.len() <= MAX_PIECES);
        for number in (0..files).step_by(101) {
            let (file, first, end) = located(&mut all, 0, at(number, number + 1));
            assert!(file <= format!("{number:06}") && first == 7, "{number}: {file}");
            assert!(end.is_none() || end == Some(8) && file == format!("{number:06}"));
        }
        let (file, _, end) = located(&mut all, 0, at(files - 1, files));
        assert_eq!((file, end), (format!("{:06}", files - 1), Some(8)));
    }
}
