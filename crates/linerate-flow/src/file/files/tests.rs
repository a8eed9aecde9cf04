use std::os::unix::fs::{PermissionsExt, lchown, symlink};

use super::*;

#[test]
fn a_folder_has_the_hour_in_utc() {
    let path = partition(20_454 * 24 + 7, "edge-1");
    assert_eq!(path, Path::new("date=2026-01-01/hour=07/sensor=edge-1"));
    // The last hour that nanoseconds in 64 bits can say.
    assert!(partition(u64::MAX / HOUR, "a").starts_with("date=2554-07-21"));
}

/// Deleting old records follows no link that somebody else has put into a shared folder.
#[test]
fn a_date_that_another_user_links_is_no_folder_of_the_sensor() {
    linerate_testkit::root_or_skip!();
    let folder = tempfile::tempdir().unwrap();
    let (shared, elsewhere) = (folder.path().join("shared"), folder.path().join("elsewhere"));
    for path in [shared.join("date=2026-01-01"), elsewhere.clone()] {
        fs::create_dir_all(path.join("hour=00/sensor=a")).unwrap();
    }
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    for (date, owner) in [("date=2026-01-02", 0), ("date=2026-01-03", 65_534)] {
        symlink(&elsewhere, shared.join(date)).unwrap();
        lchown(shared.join(date), Some(owner), None).unwrap();
    }
    let found: Vec<_> = partitions(&shared, "a").map(Result::unwrap).collect();
    let expected = ["date=2026-01-01", "date=2026-01-02"];
    assert_eq!(found, expected.map(|date| shared.join(date).join("hour=00/sensor=a")));
}

#[test]
fn a_sensor_is_a_part_of_a_path() {
    assert!(["a", "edge-1.example_net", "9"].into_iter().all(is_sensor));
    assert!(
        ["", ".", "..", "-a", "a/b", "a b", "ä", ".hidden"]
            .into_iter()
            .all(|name| !is_sensor(name))
    );
}
