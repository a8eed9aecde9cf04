use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use super::*;

#[test]
fn a_reader_never_keeps_half_of_a_change() {
    const WORDS: usize = 16;
    let version = AtomicU32::new(u32::MAX - 1001);
    let guarded: [AtomicU64; WORDS] = std::array::from_fn(|_| AtomicU64::new(0));
    let done = AtomicU32::new(0);
    let (version, guarded, done) = (&version, &guarded, &done);
    thread::scope(|scope| {
        for writer in 1..=2u64 {
            scope.spawn(move || {
                let mut written = 0u64;
                while written < 20_000 {
                    let Some(_guard) =
                        WriteGuard::try_lock_at_version(version, version.load(Relaxed))
                    else {
                        thread::yield_now();
                        continue;
                    };
                    written += 1;
                    let value = writer << 32 | written;
                    guarded.iter().for_each(|word| word.store(value, Relaxed));
                }
                done.fetch_add(1, SeqCst);
            });
        }
        let (mut kept, mut before) = (0u64, [0u64; 3]);
        while done.load(SeqCst) < 2 || kept == 0 {
            let copy = || Some(guarded.each_ref().map(|word| word.load(Relaxed)));
            let Some((_, words)) = read(version, 100, copy) else { continue };
            kept += 1;
            assert!(words.iter().all(|word| *word == words[0]), "{words:x?}");
            let (writer, written) = ((words[0] >> 32) as usize, words[0] & 0xffff_ffff);
            assert!(before[writer] <= written, "writer {writer} went back");
            before[writer] = written;
        }
    });
    // Forty thousand writers later, past the end of the numbers.
    assert_eq!(version.load(SeqCst), (u32::MAX - 1001).wrapping_add(80_000));
}

#[test]
fn one_writer_at_a_time_and_no_reader_meanwhile() {
    let version = AtomicU32::new(4);
    assert!(WriteGuard::try_lock_at_version(&version, 2).is_none(), "another version");
    let guard = WriteGuard::try_lock_at_version(&version, 4).unwrap();
    assert!(
        WriteGuard::try_lock_at_version(&version, 4).is_none()
            && WriteGuard::try_lock_at_version(&version, 5).is_none()
    );
    assert_eq!(read(&version, 3, || Some(())), None);
    drop(guard);
    assert_eq!(read(&version, 1, || Some(7)), Some((6, 7)));
    assert_eq!(read(&version, 1, || None::<()>), None);
}

#[test]
fn the_lock_of_a_dead_writer_is_taken_once() {
    let version = AtomicU32::new(9);
    assert!(WriteGuard::take_over(&version, 7).is_none(), "not the number that was left");
    let guard = WriteGuard::take_over(&version, 9).unwrap();
    assert!(WriteGuard::take_over(&version, 9).is_none());
    drop(guard);
    assert_eq!(version.load(SeqCst), 12);
    assert!(WriteGuard::take_over(&version, 12).is_none());
}
