use std::process::Command;
use std::time::SystemTime;

use super::*;

/// Three files that have ended, the oldest first.
fn finished(folder: &Path) -> (FinishedFiles, [PathBuf; 3]) {
    let mut files = FinishedFiles::default();
    let paths = ["a", "b", "c"].map(|name| folder.join(name));
    for path in &paths {
        std::fs::write(path, [1; 100]).expect("a file");
        files.add(0, path);
    }
    (files, paths)
}

#[test]
fn the_oldest_file_goes_that_nobody_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut files, [a, b, c]) = finished(folder.path());
    let reader = File::open(&a).expect("a file");
    flock(&reader, FlockOperation::LockShared).expect("a lock");
    assert!(matches!(files.delete_oldest(Duration::ZERO, None), Some(Deletion::Deleted(_))));
    assert!(a.exists() && !b.exists() && c.exists());
    assert_eq!(files.holder().map(|process| process.id), Some(std::process::id()));
    assert_eq!(files.delete_oldest(Duration::from_secs(3600), None), None);
    drop(reader);
    assert!(files.delete_oldest(Duration::ZERO, None).is_some() && !a.exists());
    std::fs::remove_file(&c).expect("it is there");
    assert_eq!(
        (files.delete_oldest(Duration::ZERO, None), files.len(0)),
        (Some(Deletion::Gone), 0)
    );
    assert_eq!(files.delete_oldest(Duration::ZERO, None), None);
}

/// One that was moved away is one less: the next is not deleted for it.
#[test]
fn a_file_that_is_not_ours_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut files, [a, b, c]) = finished(folder.path());
    // Both exist at once, so the other has another inode.
    let other = folder.path().join("other");
    std::fs::write(&other, "somebody's").expect("a file");
    std::fs::rename(&other, &a).expect("renamed");
    assert_eq!(files.delete_oldest(Duration::ZERO, None), Some(Deletion::Gone));
    assert!(a.exists() && b.exists() && files.len(0) == 2);
    // A ring of names has come back to it.
    files.forget(&b);
    assert!(matches!(files.delete_oldest(Duration::ZERO, None), Some(Deletion::Deleted(_))));
    assert!(b.exists() && !c.exists());
}

#[test]
fn what_a_compressor_made_of_a_file_goes_in_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut files, [a, b, _]) = finished(folder.path());
    let gzip = Command::new("gzip").arg(&a).spawn().expect("gzip runs");
    files.add_child(&a, gzip);
    // While it runs, or when it has ended: the file itself, or what became of it.
    for (_, mut child) in files.take_children() {
        assert!(child.wait().expect("it ends").success());
    }
    let compressed = folder.path().join("a.gz");
    assert!(!a.exists() && compressed.exists());
    // Somebody else's file at the place of another.
    std::fs::remove_file(&b).expect("it is there");
    let other = folder.path().join("b.gz");
    let others = File::create(&other).expect("a file");
    others.set_modified(SystemTime::UNIX_EPOCH).expect("a time");
    let deleted = files.delete_oldest(Duration::ZERO, None);
    assert!(matches!(deleted, Some(Deletion::Deleted(1..))) && !compressed.exists());
    assert_eq!(files.delete_oldest(Duration::ZERO, None), Some(Deletion::Gone));
    assert!(other.exists());
}

#[test]
fn a_file_that_a_program_handles_stays_until_it_has_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut files, [a, b, _]) = finished(folder.path());
    let mut program = Command::new("sleep");
    files.add_child(&a, program.arg("60").spawn().expect("sleep runs"));
    assert!(matches!(files.delete_oldest(Duration::ZERO, None), Some(Deletion::Deleted(_))));
    assert!(a.exists() && !b.exists());
    for (_, mut child) in files.take_children() {
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }
    assert!(files.delete_oldest(Duration::ZERO, None).is_some() && !a.exists());
}

#[test]
fn writers_that_share_a_list_delete_for_each_other_and_count_for_themselves() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut files = FinishedFiles::default();
    let writers = [files.add_writer(), files.add_writer()];
    let paths = ["a", "b"].map(|name| folder.path().join(name));
    for (writer, path) in writers.iter().zip(&paths) {
        std::fs::write(path, [1; 100]).expect("a file");
        files.add(*writer, path);
    }
    assert_eq!((files.writers(), files.len(writers[0]), files.len(writers[1])), (2, 1, 1));
    let own = files.delete_oldest(Duration::ZERO, Some(writers[1]));
    assert!(matches!(own, Some(Deletion::Deleted(_))) && paths[0].exists());
    assert_eq!(files.delete_oldest(Duration::ZERO, Some(writers[1])), None);
    assert!(files.delete_oldest(Duration::ZERO, None).is_some() && !paths[0].exists());
}
