use std::fs::{self, File};

use linerate_testkit::{Namespace, probe_or_skip, root_or_skip};

use super::*;

#[test]
fn a_change_of_tables_is_found_once() {
    root_or_skip!();
    let router = Namespace::create("tables").unwrap();
    let add = || {
        let mut command = router.command("iptables-legacy");
        let output = command.args(["-w", "-A", "FORWARD", "-j", "ACCEPT"]).output().unwrap();
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    probe_or_skip!(add());
    let tables = router.run(Tables::read).unwrap();
    let other = tables.clone();
    let look = |tables: &Tables| router.run(|| tables.have_changed()).unwrap();
    assert!(!look(&tables));
    assert_eq!(add(), None);
    assert!(look(&tables) && !look(&other) && !look(&tables));
    assert_eq!(add(), None);
    assert!(look(&other) && !look(&tables));
}

#[test]
fn a_lock_that_is_closed_was_held() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("xtables.lock");
    let mut lock = Lock::watch_file(&file).unwrap();
    assert!(!lock.seen && !lock.was_held());
    fs::write(folder.path().join("other"), "").unwrap();
    assert!(!lock.was_held(), "another file");
    let first = File::create(&file).unwrap();
    assert!(lock.was_held() && lock.seen, "it was made");
    assert!(!lock.was_held());
    drop(first);
    assert!(lock.was_held());
    let second = File::open(&file).unwrap();
    assert!(!lock.was_held(), "only held yet");
    drop(second);
    assert!(lock.was_held());
    assert!(!lock.was_held());
    fs::remove_file(&file).unwrap();
    let _ = lock.was_held();
    drop(File::create(&file).unwrap());
    assert!(lock.was_held());
    drop(File::open(&file).unwrap());
    assert!(lock.was_held(), "the new one is looked at");
}
