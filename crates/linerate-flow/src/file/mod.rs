//! [`Files`]: records in Parquet files, `date=YYYY-MM-DD/hour=HH/sensor=NAME/` below one folder.
//!
//! A file gets its name when it is complete and on the disk. Until then its name is hidden. So readers see only
//! complete files, even if the meter is killed.
//!
//! A caller may have to know which records are in files, even if it is killed at any time. It completes files in two
//! steps. [`Files::seal`] writes them to the disk under a hidden name with a batch number. The caller stores this
//! number (it commits the batch). Then [`Files::publish`] gives the files their names. After a kill, the next meter
//! publishes the sealed files of the committed batch.
//!
//! A state file says that a meter runs. A meter that finds the state file of a dead meter removes the hidden files, and
//! counts an interruption.

mod columns;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::SerializedFileWriter;

use crate::{Error, FlowRecord, Result, schema};

/// Where and how records are written.
#[derive(Clone, Debug)]
pub struct FilesOptions {
    /// The folder.
    pub folder: PathBuf,
    /// The name of this meter: letters, digits, dots, dashes and underscores.
    pub sensor: String,
    /// A file gets its name at the latest after this time.
    pub max_age: Duration,
    /// A file gets its name at the latest with this many records.
    pub max_records: u64,
    /// The last committed batch: files that an interrupted meter sealed with this number are published.
    pub sealed: Option<u64>,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesStatistics {
    /// Files that have their name.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Records in these files.
    pub records: u64,
    /// Earlier meters of this name that did not end, but were ended: 0 or 1. Their last files were not whole, and are
    /// removed.
    pub interruptions: u64,
}

impl FilesStatistics {
    /// The sum of two.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            bytes: self.bytes + other.bytes,
            records: self.records + other.records,
            interruptions: self.interruptions + other.interruptions,
        }
    }
}

/// Records of a row group. Enough for good compression; few enough to keep.
const ROW_GROUP_RECORDS: usize = 1 << 16;

/// The start of hidden names.
const HIDDEN: &str = ".";

/// The suffix of files that are not complete.
const PARTIAL: &str = ".partial";

/// The suffix of files that are sealed and not published; the batch number follows.
const SEALED: &str = ".sealed-";

/// Nanoseconds of an hour.
const HOUR: u64 = 3_600_000_000_000;

/// A file that is not whole.
struct Open {
    path: PathBuf,
    partial: PathBuf,
    writer: SerializedFileWriter<File>,
    records: u64,
}

/// A file that is complete and not published.
struct Sealed {
    path: PathBuf,
    hidden: PathBuf,
    bytes: u64,
    records: u64,
}

/// Writes records. Dropping it loses the records that are in no complete file; [`Files::finish`] completes them.
pub struct Files {
    options: FilesOptions,
    properties: WriterPropertiesPtr,
    /// Records for the next row group.
    pending: Vec<FlowRecord>,
    /// By the hour since 1970 in which their records begin.
    open: BTreeMap<u64, Open>,
    sealed: Vec<Sealed>,
    /// When the oldest record came that is in no complete file.
    since: Option<Instant>,
    /// A number for the next file of this meter.
    next: u64,
    /// Locked while this meter lives.
    state: File,
    statistics: FilesStatistics,
}

/// Whether this can be the name of a sensor.
fn is_sensor(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric();
    name.starts_with(letter) && name.chars().all(|c| letter(c) || "._-".contains(c))
}

impl Files {
    /// Prepares the folder.
    ///
    /// # Errors
    ///
    /// [`Error::Sensor`], [`Error::InUse`], [`Error::Io`].
    pub fn new(options: FilesOptions) -> Result<Self> {
        if !is_sensor(&options.sensor) {
            return Err(Error::Sensor(options.sensor));
        }
        let folder = &options.folder;
        fs::create_dir_all(folder).map_err(Error::io("create the folder", folder))?;
        let path = folder.join(format!("{HIDDEN}sensor={}", options.sensor));
        let exists = path.exists();
        let state = File::options().create(true).append(true).open(&path);
        let state = state.map_err(Error::io("create", &path))?;
        if state.try_lock().is_err() {
            return Err(Error::InUse { path: folder.clone(), sensor: options.sensor });
        }
        let mut statistics = FilesStatistics::default();
        if exists {
            statistics.interruptions = 1;
            recover(folder, &options.sensor, options.sealed)?;
        }
        Ok(Self {
            options,
            properties: Arc::new(columns::properties()),
            pending: Vec::new(),
            open: BTreeMap::new(),
            sealed: Vec::new(),
            since: None,
            next: 0,
            state,
            statistics,
        })
    }

    /// The counts of complete files.
    pub fn statistics(&self) -> FilesStatistics {
        self.statistics
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::Parquet`] of the file that gets a row group.
    pub fn push(&mut self, record: FlowRecord) -> Result<()> {
        self.since.get_or_insert_with(Instant::now);
        self.pending.push(record);
        let max_records = self.options.max_records;
        if self.pending.len() < ROW_GROUP_RECORDS.min(max_records as usize) {
            return Ok(());
        }
        self.write_row_groups()?;
        if self.open.values().map(|open| open.records).sum::<u64>() >= max_records {
            return self.complete();
        }
        Ok(())
    }

    /// Completes files that are old enough; to be called now and then.
    ///
    /// # Errors
    ///
    /// As [`Files::push`].
    pub fn maintain(&mut self, now: Instant) -> Result<()> {
        match self.since {
            Some(since) if now.duration_since(since) >= self.options.max_age => self.complete(),
            _ => Ok(()),
        }
    }

    /// Gives all files their names.
    ///
    /// # Errors
    ///
    /// As [`Files::push`].
    pub fn complete(&mut self) -> Result<()> {
        self.seal(0)?;
        self.publish()
    }

    /// Writes all records to the disk, in files that [`Files::publish`] names. If this process is killed before that,
    /// the next meter names them if its [`FilesOptions::sealed`] is this number.
    ///
    /// # Errors
    ///
    /// As [`Files::push`].
    pub fn seal(&mut self, number: u64) -> Result<()> {
        self.write_row_groups()?;
        self.since = None;
        while let Some((_, open)) = self.open.pop_first() {
            let Open { path, partial, writer, records } = open;
            let failed = |source| Error::Parquet { path: path.clone(), source };
            let file = writer.into_inner().map_err(failed)?;
            file.sync_all().map_err(Error::io("write", &partial))?;
            let bytes = file.metadata().map_err(Error::io("read the size of", &partial))?.len();
            let hidden = hidden(&path, &format!("{SEALED}{number}"));
            fs::rename(&partial, &hidden).map_err(Error::io("rename", &partial))?;
            self.sealed.push(Sealed { path, hidden, bytes, records });
        }
        Ok(())
    }

    /// Gives sealed files their names.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn publish(&mut self) -> Result<()> {
        for Sealed { path, hidden, bytes, records } in self.sealed.drain(..) {
            publish(&hidden, &path)?;
            self.statistics.files += 1;
            self.statistics.bytes += bytes;
            self.statistics.records += records;
        }
        Ok(())
    }

    /// Discards all records that are not published, after an error.
    pub fn discard(&mut self) {
        self.pending.clear();
        self.since = None;
        let open = std::mem::take(&mut self.open).into_values().map(|open| open.partial);
        for path in open.chain(self.sealed.drain(..).map(|sealed| sealed.hidden)) {
            // The next meter removes what is left.
            let _ = fs::remove_file(path);
        }
    }

    /// Completes all files, and says that this meter was not interrupted.
    ///
    /// # Errors
    ///
    /// As [`Files::push`].
    pub fn finish(mut self) -> Result<FilesStatistics> {
        self.complete()?;
        let path = self.options.folder.join(format!("{HIDDEN}sensor={}", self.options.sensor));
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        drop(self.state);
        Ok(self.statistics)
    }

    /// Writes the pending records, a row group for each hour.
    fn write_row_groups(&mut self) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|record| record.start);
        for records in pending.chunk_by(|a, b| a.start / HOUR == b.start / HOUR) {
            let open = self.open(records[0].start / HOUR)?;
            let written = columns::write(&mut open.writer, records);
            written.map_err(|source| Error::Parquet { path: open.path.clone(), source })?;
            open.records += records.len() as u64;
        }
        pending.clear();
        self.pending = pending;
        Ok(())
    }

    /// The file of this hour.
    fn open(&mut self, hour: u64) -> Result<&mut Open> {
        if !self.open.contains_key(&hour) {
            let folder = self.options.folder.join(partition(hour, &self.options.sensor));
            fs::create_dir_all(&folder).map_err(Error::io("create the folder", &folder))?;
            let (path, partial) = self.names(&folder);
            let file = File::create(&partial).map_err(Error::io("create", &partial))?;
            let writer =
                SerializedFileWriter::new(file, schema::parquet(), Arc::clone(&self.properties));
            let writer = writer.map_err(|source| Error::Parquet { path: path.clone(), source })?;
            self.open.insert(hour, Open { path, partial, writer, records: 0 });
        }
        Ok(self.open.get_mut(&hour).expect("it was inserted"))
    }

    /// Names that no file of this folder has: whole, and until then.
    fn names(&mut self, folder: &Path) -> (PathBuf, PathBuf) {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        loop {
            let name = format!("flows-{now}-{}.parquet", self.next);
            self.next += 1;
            let path = folder.join(&name);
            let partial = hidden(&path, PARTIAL);
            if !path.exists() && !partial.exists() {
                return (path, partial);
            }
        }
    }
}

/// The folder of an hour since 1970.
fn partition(hour: u64, sensor: &str) -> PathBuf {
    let hour = jiff::Timestamp::from_second(hour as i64 * 3600).unwrap_or(jiff::Timestamp::MAX);
    PathBuf::from(format!("{}/sensor={sensor}", hour.strftime("date=%Y-%m-%d/hour=%H")))
}

/// The hidden name of a file, with this suffix.
fn hidden(path: &Path, end: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{HIDDEN}{name}{end}"))
}

/// Gives a file its name.
fn publish(hidden: &Path, path: &Path) -> Result<()> {
    fs::rename(hidden, path).map_err(Error::io("rename", hidden))?;
    // fsync(2) of the directory makes the name durable.
    let folder = path.parent().unwrap_or(path);
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(Error::io("write the folder", folder))
}

/// Publishes the files that an interrupted meter sealed with this number, and removes its other hidden files.
fn recover(folder: &Path, sensor: &str, sealed: Option<u64>) -> Result<()> {
    let list = |folder: &Path| {
        let entries = fs::read_dir(folder).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        entries.map_err(Error::io("read the folder", folder))
    };
    let below = |folder: &Path, start: &str| -> Result<Vec<PathBuf>> {
        let entries = list(folder)?.into_iter();
        let of = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
        Ok(of.map(|entry| entry.path()).filter(|path| path.is_dir()).collect())
    };
    for date in below(folder, "date=")? {
        for hour in below(&date, "hour=")? {
            let folder = hour.join(format!("sensor={sensor}"));
            if !folder.is_dir() {
                continue;
            }
            for entry in list(&folder)? {
                let (name, path) = (entry.file_name(), entry.path());
                let Some(name) = name.to_str().and_then(|name| name.strip_prefix(HIDDEN)) else {
                    continue;
                };
                match name.split_once(SEALED) {
                    Some((name, number)) if number.parse().ok() == sealed && sealed.is_some() => {
                        publish(&path, &folder.join(name))?;
                    }
                    None if !name.ends_with(PARTIAL) => {}
                    _ => fs::remove_file(&path).map_err(Error::io("remove", &path))?,
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_hour_in_utc() {
        let path = partition(20_454 * 24 + 7, "edge-1");
        assert_eq!(path, Path::new("date=2026-01-01/hour=07/sensor=edge-1"));
        // The last hour that nanoseconds in 64 bits can say.
        assert!(partition(u64::MAX / HOUR, "a").starts_with("date=2554-07-21"));
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
}
