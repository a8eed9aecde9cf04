//! `ship`: whole files of records to an object store.
//!
//! The folder is the spool: a file leaves it only when the store has it. A file has the same name there as in the
//! folder, and a store shows an object when all of it is there. So whatever is interrupted is done again, and nothing is
//! lost or double.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use object_store::buffered::BufWriter;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
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
    let (store, prefix) = object_store(options.url)?;
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
            done = round => done?,
        }
        if shown.as_ref() != Some(&shipper.report) {
            show(&shipper.report);
            shown = Some(shipper.report.clone());
        }
        let wait = match (shipper.report.waiting, options.follow) {
            (0, None) => break,
            (0, Some(interval)) => {
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

struct Shipper<'a> {
    store: Arc<dyn ObjectStore>,
    prefix: String,
    options: &'a Options<'a>,
    report: Report,
    /// Files that the store has, in order, where they stay in the folder.
    sent: Vec<PathBuf>,
}

impl Shipper<'_> {
    /// Ships all files that are there, the oldest first; ends at the first that the store does not take.
    async fn round(&mut self) -> Result<()> {
        let mut files = local_files(self.options.folder)?;
        self.sent.retain(|sent| files.binary_search(sent).is_ok());
        files.retain(|file| self.sent.binary_search(file).is_err());
        self.report.error = None;
        let size = |file: &PathBuf| file.metadata().map_or(0, |metadata| metadata.len());
        for (at, file) in files.iter().enumerate() {
            let rest = &files[at..];
            (self.report.waiting, self.report.waiting_bytes) =
                (rest.len() as u64, rest.iter().map(size).sum());
            if let Err(error) = self.ship(file).await {
                self.report.failures += 1;
                let (file, cause) = (file.display(), error.root_cause());
                self.report.error =
                    Some(format!("cannot ship {file} to {}: {cause}", self.options.url));
                return Ok(());
            }
        }
        (self.report.waiting, self.report.waiting_bytes) = (0, 0);
        Ok(())
    }

    async fn ship(&mut self, file: &Path) -> Result<()> {
        let key = self.key(file)?;
        let bytes =
            std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let length = bytes.len() as u64;
        let known = match self.store.head(&key).await {
            Ok(object) => object.size == length,
            Err(object_store::Error::NotFound { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        if known {
            self.report.known += 1;
        } else {
            let mut writer = BufWriter::new(Arc::clone(&self.store), key.clone());
            writer.write_all(&bytes).await.with_context(|| format!("cannot store {key}"))?;
            writer.shutdown().await.with_context(|| format!("cannot store {key}"))?;
            let stored = self.store.head(&key).await?.size;
            anyhow::ensure!(
                stored == length,
                "{key} has {stored} bytes in the store, {length} here"
            );
            self.report.files += 1;
            self.report.bytes += length;
        }
        if self.options.delete {
            std::fs::remove_file(file)
                .with_context(|| format!("cannot delete {}", file.display()))?;
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
