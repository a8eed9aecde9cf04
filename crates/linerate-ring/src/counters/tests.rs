use super::*;

#[test]
fn two_mappings_count_in_the_same_rows() {
    let (one, file) = SharedCounters::create().unwrap();
    let two = SharedCounters::open(&file).unwrap();
    drop(file);
    one.row("eth0 packet").unwrap()[3].fetch_add(5, Relaxed);
    two.row("eth0 packet").unwrap()[3].fetch_add(2, Relaxed);
    two.row("eth1 tee").unwrap()[26].fetch_add(1, Relaxed);
    let found: Vec<_> = one.read().map(|(label, counts)| (label, counts[3], counts[26])).collect();
    assert_eq!(found, [("eth0 packet".to_owned(), 7, 0), ("eth1 tee".to_owned(), 0, 1)]);
}

#[test]
fn a_label_without_a_row_is_counted() {
    let (counters, _) = SharedCounters::create().unwrap();
    for at in 0..ROWS {
        assert!(counters.row(&format!("row {at}")).is_some());
    }
    assert!(counters.row("row 62").is_some() && counters.row("row 63").is_none());
    assert_eq!((counters.read().count(), counters.refused()), (ROWS, 1));
}

#[test]
fn threads_that_claim_at_once_lose_no_count() {
    let (counters, file) = SharedCounters::create().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let own = SharedCounters::open(&file).unwrap();
                for at in 0..100 {
                    let row = own.row(&format!("row {}", at % 10)).unwrap();
                    row[0].fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(counters.read().map(|(_, counts)| counts[0]).sum::<u64>(), 400);
}

/// The number of a descriptor that a program closed may be that of another file.
#[test]
fn another_file_is_refused() {
    let plain = tempfile::tempfile().unwrap();
    plain.set_len(size_of::<Rows>() as u64).unwrap();
    let unsealed = fs::memfd_create(NAME, MemfdFlags::ALLOW_SEALING).unwrap();
    fs::ftruncate(&unsealed, size_of::<Rows>() as u64).unwrap();
    let empty = fs::memfd_create(NAME, MemfdFlags::ALLOW_SEALING).unwrap();
    fs::ftruncate(&empty, size_of::<Rows>() as u64).unwrap();
    fs::fcntl_add_seals(&empty, SEALS).unwrap();
    for file in [plain.into(), unsealed, empty] {
        let refused = SharedCounters::open(&file);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    }
}

/// What counts cannot take the memory away from what reads.
#[test]
fn nobody_can_shrink_the_file() {
    let (_counters, file) = SharedCounters::create().unwrap();
    assert!(fs::ftruncate(&file, 0).is_err() && fs::ftruncate(&file, 1 << 20).is_err());
}
