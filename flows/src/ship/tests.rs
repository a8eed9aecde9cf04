use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use object_store::memory::InMemory;

use super::*;

fn shipper<'a>(options: &'a Options<'a>) -> Shipper<'a> {
    Shipper::new(Arc::new(InMemory::new()), "site".to_owned(), options)
}

#[tokio::test]
async fn a_faulty_file_waits_alone_and_empty_folders_go() {
    let top = tempfile::tempdir().unwrap();
    let (folder, elsewhere) = (top.path().join("flows"), top.path().join("elsewhere"));
    let (first, linked) = (folder.join("date=1/hour=1"), folder.join("date=2"));
    fs::create_dir_all(&first).unwrap();
    fs::create_dir_all(&elsewhere).unwrap();
    symlink(&elsewhere, &linked).unwrap();
    // A link back is no folder without end.
    symlink(&folder, elsewhere.join("back")).unwrap();
    fs::write(first.join("b.parquet"), "one").unwrap();
    fs::write(elsewhere.join("c.parquet"), "two").unwrap();
    fs::write(folder.join("z.parquet"), "new").unwrap();
    // These come first: a dangling link, one to itself, a name that no object can have.
    symlink("nowhere", folder.join("a1.parquet")).unwrap();
    symlink("a2.parquet", folder.join("a2.parquet")).unwrap();
    fs::write(folder.join(OsStr::from_bytes(b"a3\xff.parquet")), "odd").unwrap();
    let options = Options {
        folder: &folder,
        url: "s3://bucket/site",
        delete: true,
        follow: None,
        retry_for: Duration::ZERO,
    };
    let mut shipper = shipper(&options);
    // The store has as many bytes under this name, but others.
    let other = Key::from("site/z.parquet");
    shipper.store.put(&other, "old".into()).await.unwrap();
    // This was shipped, and not deleted.
    shipper.store.put(&Key::from("site/date=2/c.parquet"), "two".into()).await.unwrap();
    shipper.round().await;
    let Report { files, known, failures, waiting, error, .. } = shipper.report.clone();
    assert_eq!((files, known, failures, waiting), (1, 1, 4, 4), "{error:?}");
    assert!(
        error
            .unwrap()
            .ends_with("z.parquet to s3://bucket/site: the store has other content under its name")
    );
    let stored = |key: Key| {
        let store = Arc::clone(&shipper.store);
        async move { store.get(&key).await.unwrap().bytes().await.unwrap() }
    };
    assert_eq!(stored(Key::from("site/date=1/hour=1/b.parquet")).await, "one");
    assert_eq!(stored(other).await, "old");
    assert!(folder.join("z.parquet").exists(), "it is not deleted");
    assert!(!folder.join("date=1").exists(), "it is empty");
    assert!(linked.exists() && !elsewhere.join("c.parquet").exists());

    // A folder that vanishes and comes back does not end it.
    fs::rename(&folder, top.path().join("away")).unwrap();
    shipper.round().await;
    assert!(!shipper.report.is_done());
    assert!(shipper.report.error.as_ref().unwrap().starts_with("cannot read "));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("d.parquet"), "three").unwrap();
    shipper.round().await;
    assert!(shipper.report.is_done(), "{:?}", shipper.report);
    assert_eq!(shipper.report.files, 2);
}

#[tokio::test]
async fn a_faulty_file_rests_until_it_changes_and_other_content_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let options = Options {
        folder,
        url: "s3://bucket/site",
        delete: false,
        follow: None,
        retry_for: Duration::from_secs(60),
    };
    let mut shipper = shipper(&options);
    let (faulty, fine) = (folder.join("a.parquet"), folder.join("b.parquet"));
    symlink("nowhere", &faulty).unwrap();
    fs::write(&fine, "two").unwrap();
    shipper.round().await;
    shipper.round().await;
    let Report { files, failures, waiting, .. } = shipper.report.clone();
    assert_eq!((files, failures, waiting), (1, 1, 1), "it is not tried in each round");
    assert!(!shipper.is_store_away, "the next round comes as soon as without it");
    assert!(shipper.report.error.as_ref().unwrap().contains("a.parquet"), "it is said");
    fs::remove_file(&faulty).unwrap();
    fs::write(&faulty, "one").unwrap();
    shipper.round().await;
    assert!(shipper.report.is_done(), "{:?}", shipper.report);
    assert_eq!(shipper.report.files, 2);

    // As another process, which has not shipped them. Both objects have as many bytes.
    let mut again = Shipper::new(Arc::clone(&shipper.store), "site".to_owned(), &options);
    fs::write(&fine, "TWO").unwrap();
    again.round().await;
    let Report { known, waiting, error, .. } = again.report.clone();
    assert_eq!((known, waiting), (1, 1));
    assert!(error.unwrap().ends_with("the store has other content under its name"));

    // A file that vanishes is no failure.
    let failures = again.report.failures;
    assert!(again.ship(&folder.join("gone.parquet")).await.is_ok());
    assert_eq!(again.report.failures, failures);
}

#[test]
fn files_behind_links_have_the_names_of_their_folder() {
    let top = tempfile::tempdir().unwrap();
    // The link is the first name, and the folder behind another one is elsewhere.
    let (folder, elsewhere) = (top.path().join("flows"), top.path().join("elsewhere"));
    for folder in [folder.join("date=2/hour=1"), elsewhere.join("hour=2")] {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.parquet"), "one").unwrap();
    }
    symlink(folder.join("date=2"), folder.join("date=1")).unwrap();
    symlink(&elsewhere, folder.join("date=4")).unwrap();
    symlink(&elsewhere, folder.join("date=3")).unwrap();
    let (files, faults) = local_files(&folder);
    assert!(faults.is_empty());
    let expected = ["date=2/hour=1/a.parquet", "date=3/hour=2/a.parquet"];
    assert_eq!(files, expected.map(|name| folder.join(name)));
}
