//! [`Files`] with Parquet.

mod columns;
mod retention;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use linerate_pcapfile::{UserGroup, create_own, refuse_foreign};

use columns::Writer;

use super::{FilesOptions, FilesStatistics};
use crate::{Error, FlowRecord, Result};

/// Records of a row group. Enough for good compression; few enough to keep.
const ROW_GROUP_RECORDS: usize = 1 << 16;

/// Files that are written at one time. Records of many hours have a file each, and a process may open few files.
const MAX_OPEN_FILES: usize = 32;

/// How often [`Files::delete_old`] looks for files.
const RETENTION_INTERVAL: Duration = Duration::from_secs(10);

/// The start of hidden names.
const HIDDEN: &str = ".";

/// The suffix of files that are not complete.
const PARTIAL: &str = ".partial";

/// The suffix of files that are sealed and not published; the batch number follows.
const SEALED: &str = ".sealed-";

/// Nanoseconds of an hour.
const HOUR: u64 = 3_600_000_000_000;

/// A file that is not complete.
struct Open {
    path: PathBuf,
    partial: PathBuf,
    writer: Writer,
    records: u64,
    /// The number of its last row group.
    written: u64,
}

impl Open {
    /// Writes the end of the file. After an error, the file is removed.
    fn close(self) -> Result<Closed> {
        let Self { path, partial, writer, records, .. } = self;
        let close = || {
            let file = writer.finish().map_err(Error::parquet(&path))?;
            file.sync_all().map_err(Error::io("write", &partial))?;
            let metadata = file.metadata().map_err(Error::io("read the size of", &partial))?;
            Ok(metadata.len())
        };
        match close() {
            Ok(bytes) => Ok(Closed { path, hidden: partial, bytes, records, is_named: false }),
            Err(error) => {
                let _ = fs::remove_file(&partial);
                Err(error)
            }
        }
    }
}

/// A file that is complete and not published.
struct Closed {
    path: PathBuf,
    hidden: PathBuf,
    bytes: u64,
    records: u64,
    /// It has its name, which may not be on the disk.
    is_named: bool,
}

impl Closed {
    /// Gives the file its name.
    fn publish(&mut self) -> Result<()> {
        if !self.is_named {
            fs::rename(&self.hidden, &self.path).map_err(Error::io("rename", &self.hidden))?;
            self.is_named = true;
        }
        sync_folder(&self.path)
    }
}

/// Writes records. Dropping it loses the records that are in no complete file; [`Files::finish`] completes them.
pub struct Files {
    options: FilesOptions,
    properties: columns::Properties,
    /// Records for the next row group.
    pending: Vec<FlowRecord>,
    /// By the hour since 1970 in which their records begin.
    open: BTreeMap<u64, Open>,
    /// Row groups so far.
    row_groups: u64,
    /// Files that gave up their place in `open`, and are not sealed.
    closed: Vec<Closed>,
    /// Files of the batch that is not published.
    sealed: Vec<Closed>,
    /// Files of earlier batches that could not get their names.
    unpublished: Vec<Closed>,
    /// Hidden files that could not be removed. The next meter would publish them with a batch of their number.
    discarded: Vec<PathBuf>,
    /// When the oldest record came that is in no complete file.
    since: Option<Instant>,
    /// Records since [`Files::publish`] was called.
    unsealed: u64,
    /// A number for the next file of this meter.
    next: u64,
    /// Folders that did not exist, the innermost first.
    created: Vec<PathBuf>,
    /// Whether there were records that a kill would have lost.
    is_used: bool,
    /// When old files were deleted last.
    deleted_at: Option<Instant>,
    /// Locked while this meter lives.
    _state: File,
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
    /// [`Error::Sensor`], [`Error::InUse`], [`Error::Io`].
    pub fn new(options: FilesOptions) -> Result<Self> {
        if !is_sensor(&options.sensor) {
            return Err(Error::Sensor(options.sensor));
        }
        let properties = columns::properties();
        let folder = &options.folder;
        let created = missing(folder);
        let path = state_path(folder, &options.sensor);
        let exists = path.exists();
        let state = create_folder(folder, options.group)
            .map_err(Error::io("create the folder", folder))
            .and_then(|()| create_file(&path, None).map_err(Error::io("create", &path)))
            .inspect_err(|_| remove_folders(&created))?;
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
            properties,
            pending: Vec::new(),
            open: BTreeMap::new(),
            row_groups: 0,
            closed: Vec::new(),
            sealed: Vec::new(),
            unpublished: Vec::new(),
            discarded: Vec::new(),
            since: None,
            unsealed: 0,
            next: 0,
            created,
            is_used: false,
            deleted_at: None,
            _state: state,
            statistics,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.options.folder
    }

    /// The counts of complete files.
    pub fn statistics(&self) -> FilesStatistics {
        self.statistics
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Parquet`] of the file that gets a row group.
    pub fn push(&mut self, record: FlowRecord) -> Result<()> {
        self.since.get_or_insert_with(Instant::now);
        self.is_used = true;
        self.unsealed += 1;
        self.pending.push(record);
        let max_records = self.options.max_records;
        if self.pending.len() < ROW_GROUP_RECORDS.min(max_records as usize) {
            return Ok(());
        }
        self.write_row_groups()?;
        let open = self.open.values().map(|open| open.records);
        let closed = self.closed.iter().map(|closed| closed.records);
        if open.chain(closed).sum::<u64>() >= max_records {
            return self.complete();
        }
        Ok(())
    }

    /// Completes files that are old enough; to be called now and then.
    ///
    /// # Errors
    /// As [`Files::push`].
    pub fn maintain(&mut self, now: Instant) -> Result<()> {
        match self.since {
            Some(since) if now.duration_since(since) >= self.options.max_age => self.complete(),
            _ => Ok(()),
        }
    }

    /// Deletes complete files that need not be kept ([`Retention`](super::Retention)); to be called now and then.
    ///
    /// # Errors
    /// [`Error::Io`] of a folder that cannot be read, or a file that cannot be deleted.
    pub fn delete_old(&mut self, now: Instant) -> Result<()> {
        if self.deleted_at.is_some_and(|last| now.duration_since(last) < RETENTION_INTERVAL) {
            return Ok(());
        }
        self.deleted_at = Some(now);
        let FilesOptions { folder, sensor, retention, .. } = &self.options;
        retention.apply(folder, sensor, SystemTime::now(), &mut self.statistics.deleted)
    }

    /// Gives all files their names.
    ///
    /// # Errors
    /// As [`Files::push`].
    pub fn complete(&mut self) -> Result<()> {
        self.seal(0)?;
        self.publish()
    }

    /// Writes all records to the disk, in files that [`Files::publish`] names. If this process is killed before that,
    /// the next meter names them if its [`FilesOptions::sealed`] is this number.
    ///
    /// # Errors
    /// As [`Files::push`].
    pub fn seal(&mut self, number: u64) -> Result<()> {
        self.remove_discarded()?;
        self.write_row_groups()?;
        self.since = None;
        while let Some((_, open)) = self.open.pop_first() {
            self.closed.push(open.close()?);
        }
        // In the order of their hours: who is killed while it publishes them leaves no gap before a file with a name.
        while let Some(closed) = self.closed.first() {
            let sealed = hidden(&closed.path, &format!("{SEALED}{number}"));
            fs::rename(&closed.hidden, &sealed).map_err(Error::io("rename", &closed.hidden))?;
            let closed = self.closed.remove(0);
            self.sealed.push(Closed { hidden: sealed, ..closed });
        }
        Ok(())
    }

    /// Gives sealed files their names. A file that cannot get its name gets it when this is called again, or from the
    /// next meter.
    ///
    /// # Errors
    /// [`Error::Io`] of the first file without its name.
    pub fn publish(&mut self) -> Result<()> {
        self.unpublished.append(&mut self.sealed);
        self.unsealed = 0;
        let mut outcome = Ok(());
        for mut file in std::mem::take(&mut self.unpublished) {
            match file.publish() {
                Ok(()) => {
                    self.statistics.files += 1;
                    self.statistics.bytes += file.bytes;
                    self.statistics.records += file.records;
                }
                Err(error) => {
                    self.unpublished.push(file);
                    outcome = outcome.and(Err(error));
                }
            }
        }
        outcome
    }

    /// Discards the records that were pushed or sealed since [`Files::publish`] was called, after an error. Returns how
    /// many there were.
    pub fn discard(&mut self) -> u64 {
        self.pending.clear();
        self.since = None;
        let open = std::mem::take(&mut self.open).into_values().map(|open| open.partial);
        let closed = self.closed.drain(..).chain(self.sealed.drain(..)).map(|closed| closed.hidden);
        self.discarded.extend(open.chain(closed));
        // Files that are left are removed before the next batch is sealed, or by the next meter.
        let _ = self.remove_discarded();
        std::mem::take(&mut self.unsealed)
    }

    fn remove_discarded(&mut self) -> Result<()> {
        while let Some(path) = self.discarded.last() {
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::io("remove", path)(error));
                }
                _ => self.discarded.pop(),
            };
        }
        Ok(())
    }

    /// Completes all files, and says that this meter was not interrupted.
    ///
    /// # Errors
    /// As [`Files::push`].
    pub fn finish(mut self) -> Result<FilesStatistics> {
        self.complete()?;
        self.remove_discarded()?;
        let path = self.state_path();
        fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        // The drop has nothing to remove.
        self.is_used = true;
        Ok(self.statistics)
    }

    fn state_path(&self) -> PathBuf {
        state_path(&self.options.folder, &self.options.sensor)
    }

    /// Writes the pending records, a row group for each hour.
    fn write_row_groups(&mut self) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|record| record.start);
        for records in pending.chunk_by(|a, b| a.start / HOUR == b.start / HOUR) {
            self.row_groups += 1;
            let number = self.row_groups;
            let open = self.open(records[0].start / HOUR)?;
            open.written = number;
            open.writer.write(records).map_err(Error::parquet(&open.path))?;
            open.records += records.len() as u64;
        }
        pending.clear();
        self.pending = pending;
        Ok(())
    }

    /// The file of this hour.
    fn open(&mut self, hour: u64) -> Result<&mut Open> {
        if !self.open.contains_key(&hour) {
            if self.open.len() >= MAX_OPEN_FILES {
                self.close_oldest()?;
            }
            let folder = self.options.folder.join(partition(hour, &self.options.sensor));
            let group = self.options.group;
            let (path, partial) = self.names(&folder);
            let create = || {
                let date = folder.ancestors().nth(2).unwrap_or(&folder);
                refuse_foreign(date).map_err(Error::io("write into", date))?;
                create_folder(&folder, group).map_err(Error::io("create the folder", &folder))?;
                create_file(&partial, group).map_err(Error::io("create", &partial))
            };
            // Who moves files away may remove the empty folder in between.
            let file = create().or_else(|_| create())?;
            let writer = Writer::new(file, &self.properties, self.options.groups)
                .map_err(Error::parquet(&path))?;
            self.open.insert(hour, Open { path, partial, writer, records: 0, written: 0 });
        }
        Ok(self.open.get_mut(&hour).expect("it was inserted"))
    }

    /// Closes the file that was written longest ago.
    fn close_oldest(&mut self) -> Result<()> {
        let oldest = self.open.iter().min_by_key(|(_, open)| open.written).map(|(hour, _)| *hour);
        if let Some(open) = oldest.and_then(|hour| self.open.remove(&hour)) {
            self.closed.push(open.close()?);
        }
        Ok(())
    }

    /// Names that no file of this folder has: complete, and until then.
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

impl Drop for Files {
    /// Without records nothing was interrupted: the capture or daemon could not start.
    fn drop(&mut self) {
        if !self.is_used && self.statistics.interruptions == 0 {
            let _ = fs::remove_file(self.state_path());
            remove_folders(&self.created);
        }
    }
}

/// The state file of a sensor.
fn state_path(folder: &Path, sensor: &str) -> PathBuf {
    folder.join(format!("{HIDDEN}sensor={sensor}"))
}

/// Creates a file that only its owner and this group can read, or opens it. Nobody else could lock it, either.
fn create_file(path: &Path, group: Option<UserGroup>) -> io::Result<File> {
    let file = create_own(path, OpenOptions::new().append(true))?;
    group.map_or(Ok(()), |group| group.share(&file))?;
    Ok(file)
}

/// Creates the folders that are missing up to this one, which the group can enter.
fn create_folder(path: &Path, group: Option<UserGroup>) -> io::Result<()> {
    let Some(group) = group else { return fs::create_dir_all(path) };
    for folder in missing(path).into_iter().rev() {
        DirBuilder::new().recursive(true).create(&folder)?;
        group.share(&File::open(&folder)?)?;
    }
    Ok(())
}

/// The folders up to this one that do not exist, the innermost first.
fn missing(path: &Path) -> Vec<PathBuf> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    path.ancestors().take_while(is_missing).map(Path::to_path_buf).collect()
}

/// Removes folders that were created and are empty.
fn remove_folders(created: &[PathBuf]) {
    for folder in created {
        let _ = fs::remove_dir(folder);
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

/// Makes the name of a file durable: fsync(2) of its folder.
fn sync_folder(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(Error::io("write the folder", folder))
}

/// Publishes the files that an interrupted meter sealed with numbers up to this one, and removes its other hidden files.
fn recover(folder: &Path, sensor: &str, sealed: Option<u64>) -> Result<()> {
    let is_committed =
        |number: &str| number.parse().is_ok_and(|number: u64| number <= sealed.unwrap_or(0));
    for folder in partitions(folder, sensor) {
        let folder = folder?;
        for path in list(&folder)? {
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(name) = name.and_then(|name| name.strip_prefix(HIDDEN)) else { continue };
            match name.split_once(SEALED) {
                Some((name, number)) if is_committed(number) => {
                    let name = folder.join(name);
                    fs::rename(&path, &name).map_err(Error::io("rename", &path))?;
                    sync_folder(&name)?;
                }
                None if !name.ends_with(PARTIAL) => {}
                _ => fs::remove_file(&path).map_err(Error::io("remove", &path))?,
            }
        }
    }
    Ok(())
}

/// What is in a folder, in the order of names. One that was removed in the meantime is empty.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = match fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries.into_iter().map(|entry| entry.path()).collect::<Vec<_>>(),
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Error::io("read the folder", folder)(error)),
    };
    paths.sort();
    Ok(paths)
}

/// The folders of a sensor, the oldest hour first. They are read when they are asked for.
fn partitions(folder: &Path, sensor: &str) -> impl Iterator<Item = Result<PathBuf>> {
    let below = |folder: &Path, start: &'static str| {
        let (paths, error) = match list(folder) {
            Ok(paths) => (paths, None),
            Err(error) => (Vec::new(), Some(Err(error))),
        };
        let is_of = move |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            // In a shared folder a link of another user could lead anywhere.
            let is_foreign = start == "date=" && refuse_foreign(path).is_err();
            name.starts_with(start.as_bytes()) && path.is_dir() && !is_foreign
        };
        paths.into_iter().filter(is_of).map(Ok).chain(error)
    };
    let name = format!("sensor={sensor}");
    below(folder, "date=")
        .flat_map(move |date| match date {
            Ok(date) => below(&date, "hour=").collect(),
            Err(error) => vec![Err(error)],
        })
        .map(move |hour| hour.map(|hour| hour.join(&name)))
        .filter(|folder| folder.as_ref().is_ok_and(|path| path.is_dir()) || folder.is_err())
}

#[cfg(test)]
mod tests;
