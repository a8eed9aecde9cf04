use super::*;

fn at(begin: u64, end: u64) -> ByteRange {
    ByteRange { begin, end }
}

fn name(name: &str) -> Arc<str> {
    name.into()
}

fn located(
    all: &mut ExtentTable,
    reader: usize,
    byte_range: ByteRange,
) -> (String, u64, Option<u64>) {
    match all.locate(reader, byte_range) {
        Poll::Ready(Some(PacketLocation { file, first, end })) => (file.to_string(), first, end),
        other => panic!("{other:?}"),
    }
}

#[test]
fn records_of_one_reader_are_found_to_the_byte() {
    let (mut all, a, b) = (ExtentTable::default(), name("a"), name("b"));
    all.add(0, at(0, 1000), &a, 100);
    all.add(0, at(1000, 1500), &a, 1100);
    // Blocks of another kind are between them.
    all.add(0, at(1500, 1600), &a, 100_000);
    all.add(0, at(1600, 1700), &b, 50);
    assert_eq!(all.locate(0, at(10, 20)), Poll::Pending);
    all.set_done(0, 1700);
    assert_eq!(all.readers[0].extents.len(), 3);
    assert_eq!(located(&mut all, 0, at(990, 1010)), ("a".into(), 1090, Some(1110)));
    assert_eq!(located(&mut all, 0, at(10, 1510)), ("a".into(), 110, Some(100_010)));
    assert_eq!(located(&mut all, 0, at(1500, 1600)), ("a".into(), 100_000, Some(100_100)));
    assert_eq!(located(&mut all, 0, at(1550, 1610)), ("a".into(), 100_050, None));
    assert_eq!(located(&mut all, 0, at(1600, 1700)), ("b".into(), 50, Some(150)));
}

#[test]
fn what_was_never_written_has_no_location() {
    let (mut all, file) = (ExtentTable::default(), name("a"));
    all.add(0, at(0, 100), &file, 0);
    all.set_done(0, 300);
    assert_eq!(all.locate(0, at(100, 200)), Poll::Ready(None));
    // Only the first of these packets were written.
    assert_eq!(located(&mut all, 0, at(50, 200)), ("a".into(), 50, Some(100)));
    assert_eq!(all.locate(1, at(0, 1)), Poll::Pending);
    all.end();
    assert_eq!(all.locate(1, at(0, 1)), Poll::Ready(None));
}

#[test]
fn a_merged_extent_contains_all_its_records() {
    let (mut all, file) = (ExtentTable::default(), name("a"));
    // Two readers take turns, 100 bytes each.
    for turn in 0..10_000 {
        for reader in 0..2 {
            let byte_range = at(turn * 100, turn * 100 + 100);
            all.add(reader, byte_range, &file, turn * 200 + reader as u64 * 100);
            all.set_done(reader, byte_range.end);
        }
    }
    assert!(all.readers[1].extents.len() < 40);
    for turn in 0..10_000 {
        let (_, first, end) = located(&mut all, 1, at(turn * 100, turn * 100 + 100));
        let (begins, ends) = (turn * 200 + 100, turn * 200 + 200);
        assert!((begins.saturating_sub(MAX_MERGED_LEN)..=begins).contains(&first), "{turn}");
        assert!((ends..=ends + MAX_MERGED_LEN).contains(&end.unwrap()), "{turn}");
    }
}

#[test]
fn many_files_take_bounded_memory_and_every_record_is_in_its_location() {
    let mut all = ExtentTable::default();
    let files = 5 * MAX_EXTENTS as u64;
    // A file for each record.
    for number in 0..files {
        all.add(0, at(number, number + 1), &name(&format!("{number:06}")), 7);
    }
    all.set_done(0, files);
    assert!(all.readers[0].extents.len() <= MAX_EXTENTS);
    for number in (0..files).step_by(101) {
        let (file, first, end) = located(&mut all, 0, at(number, number + 1));
        assert!(file <= format!("{number:06}") && first == 7, "{number}: {file}");
        assert!(end.is_none() || end == Some(8) && file == format!("{number:06}"));
    }
    let (file, _, end) = located(&mut all, 0, at(files - 1, files));
    assert_eq!((file, end), (format!("{:06}", files - 1), Some(8)));
}
