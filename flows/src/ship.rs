//! `ship`: whole files of records to an object store.
//!
//! The folder is the spool: a file leaves it only when the store has it. A file has the same name there as in the
//! folder, and a store shows an object when all of it is there. So whatever is interrupted is done again, and nothing is
//! lost or double.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result};
use object_store::buffered::BufWriter;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, RetryConfig};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::source::{local_files, object_store};

const MIN_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(30);

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
    let mut shipper =
        Shipper { store, prefix, options, report: Report::default(), sent: Vec::new() };
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
        let wait = match (shipper.report.is_done(), options.follow) {
            (true, None) => break,
            (true, Some(interval)) => {
                pause = MIN_RETRY;
                interval
            }
            (_, None) if start.elapsed() + pause >= options.retry_for => break,
            _ => {
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

struct Shipper<'a> {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    options: &'a Options<'a>,
    report: Report,
    /// Files that the store has, in order, where they stay in the folder.
    sent: Vec<PathBuf>,
}

impl Shipper<'_> {
    /// Ships all files that are there, the oldest first; ends when the store fails. A file that cannot be read, that no
    /// object can have the name of, or that the store has with other content, waits alone.
    async fn round(&mut self) {
        let (mut files, faults) = local_files(self.options.folder);
        self.report.error = None;
        faults.into_iter().for_each(|error| self.fail(error));
        self.sent.retain(|sent| files.binary_search(sent).is_ok());
        files.retain(|file| self.sent.binary_search(file).is_err());
        let size = |file: &PathBuf| file.metadata().map_or(0, |metadata| metadata.len());
        let sizes: Vec<_> = files.iter().map(size).collect();
        (self.report.waiting, self.report.waiting_bytes) = (files.len() as u64, sizes.iter().sum());
        for (file, size) in files.iter().zip(sizes) {
            let cannot_ship = || format!("cannot ship {} to {}", file.display(), self.options.url);
            let (outcome, is_alone) = match self.content(file) {
                Ok((key, bytes)) => match self.store(&key, bytes).await {
                    Ok(()) => (self.leave(file), true),
                    Err(error) => {
                        let is_alone = error.is::<OtherContent>();
                        (Err(error), is_alone)
                    }
                },
                Err(error) => (Err(error), true),
            };
            match outcome.with_context(cannot_ship) {
                Ok(()) => {
                    self.report.waiting -= 1;
                    self.report.waiting_bytes -= size;
                }
                Err(error) => {
                    self.fail(error);
                    if !is_alone {
                        return;
                    }
                }
            }
        }
    }

    fn fail(&mut self, error: Error) {
        self.report.failures += 1;
        self.report.error = Some(format!("{error}: {}", error.root_cause()));
    }

    /// The name of a file in the store, and its bytes.
    fn content(&self, file: &Path) -> Result<(Key, Vec<u8>)> {
        let key = self.key(file)?;
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok((key, bytes))
    }

    /// Stores these bytes, unless they are there.
    async fn store(&mut self, key: &Key, bytes: Vec<u8>) -> Result<()> {
        let length = bytes.len() as u64;
        let is_known = match self.store.head(key).await {
            // The names of two sensors may be the same.
            Ok(object) => {
                // Only what is going to be deleted here is read there.
                let is_same = object.size == length
                    && (!self.options.delete || self.store.get(key).await?.bytes().await? == bytes);
                anyhow::ensure!(is_same, OtherContent);
                true
            }
            Err(object_store::Error::NotFound { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        if is_known {
            self.report.known += 1;
            return Ok(());
        }
        let mut writer = BufWriter::new(Arc::clone(&self.store), key.clone());
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
            fs::remove_file(file).with_context(|| format!("cannot delete {}", file.display()))?;
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
