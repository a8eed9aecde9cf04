//! `ship`: whole files of records to an object store.
//!
//! The folder is the spool: a file leaves it only when the store has it. A file has the same name there as in the
//! folder, and a store shows an object when all of it is there. So whatever is interrupted is done again, and nothing is
//! lost or double.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use object_store::buffered::BufWriter;
use object_store::path::Path as Key;
use object_store::{Attribute, Attributes, GetOptions, ObjectStore, ObjectStoreExt, RetryConfig};
use ring::digest::{SHA256, digest};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::source::{local_files, object_store};

const MIN_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(30);
/// The longest time that a file waits which waits alone, and does not change.
const MAX_FILE_RETRY: Duration = Duration::from_secs(600);

/// Under this name an object has the SHA-256 of its content.
const CHECKSUM: Attribute = Attribute::Metadata(Cow::Borrowed("sha256"));

/// What to ship.
pub(crate) struct Options<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) url: &'a str,
    /// A file goes from the folder when the store has it.
    pub(crate) delete: bool,
    /// Look for new files this often, until the end of the process.
    pub(crate) follow: Option<Duration>,
    /// How long to try, without `follow`.
    pub(crate) retry_for: Duration,
}

/// What was shipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Files that the store had already.
    pub(crate) known: u64,
    /// Attempts that failed.
    pub(crate) failures: u64,
    /// Files that wait, and their bytes.
    pub(crate) waiting: u64,
    pub(crate) waiting_bytes: u64,
    pub(crate) error: Option<String>,
}

impl Report {
    /// Whether nothing waits, as far as the folders can be read.
    pub(crate) fn is_done(&self) -> bool {
        self.waiting == 0 && self.error.is_none()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        let Self { files, bytes, known, failures, waiting, waiting_bytes, error } = self;
        json!({
            "files": files, "bytes": bytes, "known": known, "failures": failures, "waiting": waiting,
            "waiting_bytes": waiting_bytes, "error": error,
        })
    }
}

/// Ships until the folder is empty, or, with `follow`, until `stop`. `show` gets the counts when they change.
pub(crate) async fn run(
    options: &Options<'_>,
    stop: impl Future<Output = ()>,
    mut show: impl FnMut(&Report),
) -> Result<Report> {
    fs::read_dir(options.folder)
        .with_context(|| format!("cannot read {}", options.folder.display()))?;
    // This tries again itself, and says so.
    let (store, prefix) =
        object_store(options.url, RetryConfig { max_retries: 0, ..RetryConfig::default() })?;
    let mut shipper = Shipper::new(store, prefix, options);
    let mut shown = None;
    let mut pause = MIN_RETRY;
    let start = Instant::now();
    tokio::pin!(stop);
    loop {
        let round = shipper.round();
        tokio::select! {
            biased;
            () = &mut stop => break,
            () = round => {}
        }
        if shown.as_ref() != Some(&shipper.report) {
            show(&shipper.report);
            shown = Some(shipper.report.clone());
        }
        let wait = match (shipper.is_store_away, options.follow) {
            // What waits alone waits for somebody.
            (false, None) => break,
            (false, Some(interval)) => {
                pause = MIN_RETRY;
                interval
            }
            (true, None) if start.elapsed() + pause >= options.retry_for => break,
            (true, _) => {
                pause = (pause * 2).min(MAX_RETRY);
                pause / 2
            }
        };
        tokio::select! {
            () = &mut stop => break,
            () = tokio::time::sleep(wait) => {}
        }
    }
    Ok(shipper.report)
}

/// The store has an object of this name, but another one.
#[derive(Debug)]
struct OtherContent;

impl fmt::Display for OtherContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the store has other content under its name")
    }
}

impl std::error::Error for OtherContent {}

/// Why a file is not shipped.
enum Fault {
    /// The others are.
    File(Error),
    /// Nor are the others.
    Store(Error),
}

impl Fault {
    fn context(self, what: String) -> Self {
        match self {
            Self::File(error) => Self::File(error.context(what)),
            Self::Store(error) => Self::Store(error.context(what)),
        }
    }
}

/// An error and its first cause.
fn reason(error: &Error) -> String {
    format!("{error}: {}", error.root_cause())
}

fn is_gone<T>(outcome: &io::Result<T>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// The version of a file: its size, and the time of its last change.
type Version = Option<(u64, i64, i64)>;

/// A file or folder that waits alone.
struct Faulty {
    version: Version,
    /// When it is tried again, if it does not change.
    next: Instant,
    pause: Duration,
    error: String,
}

struct Shipper<'a> {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    options: &'a Options<'a>,
    report: Report,
    /// The last round ended because the store failed.
    is_store_away: bool,
    faulty: BTreeMap<PathBuf, Faulty>,
    /// Files that the store has, in order, where they stay in the folder.
    sent: Vec<PathBuf>,
}

impl<'a> Shipper<'a> {
    fn new(store: Arc<dyn ObjectStore>, prefix: String, options: &'a Options<'a>) -> Self {
        let (report, faulty, sent) = (Report::default(), BTreeMap::new(), Vec::new());
        Self { store, prefix, options, report, is_store_away: false, faulty, sent }
    }

    /// Ships all files that are there, the oldest first; ends when the store fails. A file that cannot be read, that no
    /// object can have the name of, or that the store has with other content, waits alone.
    async fn round(&mut self) {
        let (mut files, faults) = local_files(self.options.folder);
        self.sent.retain(|sent| files.binary_search(sent).is_ok());
        files.retain(|file| self.sent.binary_search(file).is_err());
        self.faulty.retain(|path, _| {
            files.binary_search(path).is_ok() || faults.iter().any(|(folder, _)| folder == path)
        });
        for (folder, error) in faults {
            if !self.rests(&folder, None) {
                self.wait_alone(folder, None, &error);
            }
        }
        let found: Vec<_> = files.iter().map(|file| file.metadata().ok()).collect();
        let sizes = found.iter().flatten().map(|found| found.len());
        (self.report.waiting, self.report.waiting_bytes) = (files.len() as u64, sizes.sum());
        self.is_store_away = false;
        self.report.error = None;
        for (file, found) in files.into_iter().zip(found) {
            let version = found.map(|found| (found.len(), found.ctime(), found.ctime_nsec()));
            if self.rests(&file, version) {
                continue;
            }
            let cannot_ship = || format!("cannot ship {} to {}", file.display(), self.options.url);
            match self.ship(&file).await.map_err(|fault| fault.context(cannot_ship())) {
                Ok(()) => {
                    self.faulty.remove(&file);
                    self.report.waiting -= 1;
                    self.report.waiting_bytes -= version.map_or(0, |(size, ..)| size);
                }
                Err(Fault::File(error)) => self.wait_alone(file, version, &error),
                Err(Fault::Store(error)) => {
                    self.report.failures += 1;
                    self.report.error = Some(reason(&error));
                    self.is_store_away = true;
                    break;
                }
            }
        }
        let waiting = self.faulty.values().next_back().map(|faulty| faulty.error.clone());
        self.report.error = self.report.error.take().or(waiting);
    }

    /// Whether this file or folder is not tried now: it has failed, and has not changed since.
    fn rests(&self, path: &Path, version: Version) -> bool {
        let faulty = self.faulty.get(path);
        faulty.is_some_and(|one| one.version == version && Instant::now() < one.next)
    }

    fn wait_alone(&mut self, path: PathBuf, version: Version, error: &Error) {
        self.report.failures += 1;
        let before = self.faulty.get(&path).filter(|before| before.version == version);
        let pause = before.map_or(MIN_RETRY, |before| (before.pause * 2).min(MAX_FILE_RETRY));
        let next = Instant::now() + pause;
        self.faulty.insert(path, Faulty { version, next, pause, error: reason(error) });
    }

    async fn ship(&mut self, file: &Path) -> Result<(), Fault> {
        let key = self.key(file).map_err(Fault::File)?;
        let bytes = match fs::read(file) {
            Ok(bytes) => bytes,
            // Somebody has moved it since the folder was read. A link that leads nowhere is there.
            Err(_) if is_gone(&file.symlink_metadata()) => return Ok(()),
            Err(error) => {
                let what = format!("cannot read {}", file.display());
                return Err(Fault::File(Error::from(error).context(what)));
            }
        };
        match self.store(&key, bytes).await {
            Ok(()) => self.leave(file).map_err(Fault::File),
            Err(error) if error.is::<OtherContent>() => Err(Fault::File(error)),
            Err(error) => Err(Fault::Store(error)),
        }
    }

    /// Stores these bytes, unless they are there.
    async fn store(&mut self, key: &Key, bytes: Vec<u8>) -> Result<()> {
        let length = bytes.len() as u64;
        let sum = digest(&SHA256, &bytes);
        let sum: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let head = GetOptions::new().with_head(true);
        match self.store.get_opts(key, head).await {
            // The names of two sensors may be the same.
            Ok(object) => {
                let is_same = object.meta.size == length
                    && match object.attributes.get(&CHECKSUM) {
                        Some(stored) => **stored == *sum,
                        // Another program has stored it.
                        None => self.store.get(key).await?.bytes().await? == bytes,
                    };
                anyhow::ensure!(is_same, OtherContent);
                self.report.known += 1;
                return Ok(());
            }
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let mut writer = BufWriter::new(Arc::clone(&self.store), key.clone())
            .with_attributes(Attributes::from_iter([(CHECKSUM, sum)]));
        writer.write_all(&bytes).await.with_context(|| format!("cannot store {key}"))?;
        writer.shutdown().await.with_context(|| format!("cannot store {key}"))?;
        let stored = self.store.head(key).await?.size;
        anyhow::ensure!(stored == length, "{key} has {stored} bytes in the store, {length} here");
        self.report.files += 1;
        self.report.bytes += length;
        Ok(())
    }

    /// Deletes a file that the store has, and the folders that are empty then, or remembers it.
    fn leave(&mut self, file: &Path) -> Result<()> {
        if self.options.delete {
            let removed = fs::remove_file(file);
            if !is_gone(&removed) {
                removed.with_context(|| format!("cannot delete {}", file.display()))?;
            }
            let folders = file.ancestors().skip(1);
            let below = folders.take_while(|folder| *folder != self.options.folder);
            // The first that is not empty ends this.
            let _ = below.map(fs::remove_dir).take_while(Result::is_ok).count();
        } else if let Err(at) = self.sent.binary_search_by(|sent| sent.as_path().cmp(file)) {
            self.sent.insert(at, file.to_owned());
        }
        Ok(())
    }

    /// The name of a file in the store: that below the folder, after the prefix.
    fn key(&self, file: &Path) -> Result<Key> {
        let below = file.strip_prefix(self.options.folder).unwrap_or(file);
        let below = below.to_str().with_context(|| format!("{} is not UTF-8", below.display()))?;
        let name = if self.prefix.is_empty() {
            below.to_owned()
        } else {
            format!("{}/{below}", self.prefix)
        };
        Key::parse(&name).with_context(|| format!("{name} is not a valid object name"))
    }
}

#[cfg(test)]
mod tests;
