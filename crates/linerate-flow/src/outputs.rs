//! [`Outputs`]: the files and collectors that records go to.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

use linerate_pcapfile::UserGroup;
use serde::{Serialize, Serializer};

use crate::file::{Files, FilesOptions, FilesStatistics, Retention};
use crate::ipfix::{self, Target, is_ipfix};
use crate::schema::Groups;
use crate::{Error, FlowRecord, Result};

/// The most records in a file.
const MAX_RECORDS: u64 = 1 << 22;

/// A destination of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Parquet files below this folder.
    Folder(PathBuf),
    /// A collector.
    Collector(Target),
}

impl FromStr for Destination {
    type Err = Error;

    /// A folder, or the URL of a collector. A name that may be meant as an address is refused; such a folder can be
    /// written as `./NAME`.
    fn from_str(text: &str) -> Result<Self> {
        if Target::is_one(text) {
            return Ok(Self::Collector(text.parse()?));
        }
        let unsupported = || cfg!(not(feature = "parquet")).then(|| NO_PARQUET.to_owned());
        match mistake(text).or_else(unsupported) {
            Some(reason) => Err(Error::Destination { text: text.to_owned(), reason }),
            None => Ok(Self::Folder(text.into())),
        }
    }
}

/// Why no folder is one, in a build without Parquet.
const NO_PARQUET: &str =
    "this program was built without Parquet files: name a collector as ipfix://HOST";

/// Why this is probably not meant as a folder.
fn mistake(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("it is empty: name a folder, or a collector as ipfix://HOST".into());
    }
    if text == "-" {
        return Some("Parquet files cannot go to standard output: name a folder".into());
    }
    // What has a slash first is a path: `./a:1`.
    let name = text.split_once("//").map_or(text, |(before, _)| before);
    let (scheme, rest) = name.split_once(':').filter(|(scheme, _)| !scheme.contains('/'))?;
    if text[scheme.len()..].starts_with("://") {
        let address = &text[scheme.len() + 3..];
        return Some(match scheme.to_ascii_lowercase().as_str() {
            "s3" | "s3a" | "gs" | "az" | "abfs" | "abfss" | "http" | "https" => {
                "write to a folder; `linerate flows ship` sends its files to object storage".into()
            }
            "file" => format!("write the path of a folder without the scheme: {address}"),
            "udp" | "netflow" => format!("write ipfix://{address} for IPFIX over UDP"),
            "tcp" => format!("write ipfix+tcp://{address} for IPFIX over TCP"),
            "tls" => format!("write ipfix+tls://{address} for IPFIX over TLS"),
            _ => "the schemes are ipfix (UDP), ipfix+tcp and ipfix+tls".into(),
        });
    }
    if is_ipfix(scheme) {
        let address = rest.trim_start_matches('/');
        return Some(format!(
            "write {scheme}://{address} for a collector, or ./{text} for a folder"
        ));
    }
    let is_address = text.parse::<SocketAddr>().is_ok()
        || text.rsplit_once(':').is_some_and(|(host, port)| {
            !host.contains([':', '/']) && !host.is_empty() && port.parse::<u16>().is_ok()
        });
    is_address.then(|| format!("write ipfix://{text} for a collector, or ./{text} for a folder"))
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::Collector(target) => target.fmt(f),
        }
    }
}

/// The least time between two warnings of one collector.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Where records go, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct OutputOptions {
    /// All of these.
    pub destinations: Vec<Destination>,
    /// The name of this meter in files; `None` for the host's name.
    pub sensor: Option<String>,
    /// A group that may read the files.
    pub group: Option<UserGroup>,
    /// A file is complete at the latest after this time.
    pub max_age: Duration,
    /// Which complete files are deleted, in each folder.
    pub retention: Retention,
    /// The fields that records have on request.
    pub groups: Groups,
    /// As [`FilesOptions::sealed`].
    pub sealed: Option<u64>,
}

/// What was written and sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutputStatistics {
    /// The counts of complete files.
    #[serde(flatten)]
    pub files: FilesStatistics,
    /// Records that could not be written to files.
    pub not_written: u64,
    /// What was sent to each collector.
    #[serde(serialize_with = "collectors", skip_serializing_if = "Vec::is_empty")]
    pub collectors: Vec<(Target, ipfix::Statistics)>,
}

impl OutputStatistics {
    /// Whether files lack records, or a collector could not be reached at last and lacks some.
    pub fn has_lost_records(&self) -> bool {
        let is_unreachable =
            |one: &ipfix::Statistics| one.not_sent_flows > 0 && one.error.is_some();
        self.not_written > 0 || self.collectors.iter().any(|(_, one)| is_unreachable(one))
    }
}

/// An object for each collector: its address, and what was sent there.
fn collectors<S: Serializer>(
    collectors: &[(Target, ipfix::Statistics)],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Object<'a> {
        collector: String,
        #[serde(flatten)]
        sent: &'a ipfix::Statistics,
    }
    serializer.collect_seq(
        collectors.iter().map(|(target, sent)| Object { collector: target.to_string(), sent }),
    )
}

/// Files and collectors. The caller waits for files; it waits for collectors only on request. [`Outputs::is_ready`]
/// says whether it would have to. Each fails alone.
pub struct Outputs {
    files: Vec<Files>,
    /// Records that could not be written to files.
    not_written: u64,
    /// The last error of files that was not reported, and when the last report was.
    failure: Option<Error>,
    reported: Option<Instant>,
    collectors: Vec<ipfix::Exporter>,
    /// When the last warning of each collector was given, and whether it still holds.
    warned: Vec<Option<(Instant, bool)>>,
}

impl Outputs {
    /// Prepares folders, and starts the threads of collectors, which first call `prepare_thread`.
    ///
    /// # Errors
    /// As [`Files::new`]; [`crate::Error::Ipfix`].
    pub fn open(options: &OutputOptions, prepare_thread: fn()) -> Result<Self> {
        let (mut files, mut collectors) = (Vec::new(), Vec::new());
        for destination in &options.destinations {
            match destination {
                Destination::Folder(folder) if is_open(&files, folder) => {
                    return Err(Error::Twice { path: folder.clone() });
                }
                Destination::Folder(folder) => files.push(Files::new(FilesOptions {
                    folder: folder.clone(),
                    sensor: options.sensor.clone().unwrap_or_else(host_name),
                    group: options.group,
                    max_age: options.max_age,
                    max_records: MAX_RECORDS,
                    retention: options.retention,
                    groups: options.groups,
                    sealed: options.sealed,
                })?),
                Destination::Collector(target) => {
                    let options = ipfix::Options::default();
                    let target = target.clone();
                    collectors.push(ipfix::Exporter::start(target, &options, prepare_thread)?);
                }
            }
        }
        let warned = vec![None; collectors.len()];
        Ok(Self { files, not_written: 0, failure: None, reported: None, collectors, warned })
    }

    /// Whether a record finds room in the queue of each collector. A full queue from which no message was sent for five
    /// seconds does not count: its records are counted as not sent.
    pub fn is_ready(&self) -> bool {
        // Each collector has to be asked: the time without a message begins when it is.
        self.collectors.iter().filter(|one| !one.is_ready()).count() == 0
    }

    /// Adds a record. If `blocking`, this waits for slow collectors.
    pub fn push(&mut self, record: &FlowRecord, blocking: bool) {
        self.send(record, blocking);
        self.write(|files| files.push(record.clone()));
    }

    /// Writes to all files. After an error, the records that are in no complete file are lost, and counted.
    fn write(&mut self, write: impl Fn(&mut Files) -> Result<()>) {
        for files in &mut self.files {
            if let Err(error) = write(files) {
                self.not_written += files.discard();
                self.failure = Some(error);
            }
        }
    }

    fn send(&self, record: &FlowRecord, blocking: bool) {
        for collector in &self.collectors {
            if blocking {
                collector.send(record.clone());
            } else {
                collector.try_send(record.clone());
            }
        }
    }

    /// Writes records into files, and [seals](Files::seal) them with this batch number. [`Outputs::publish`] gives them
    /// their names. After an error no file has any of these records.
    ///
    /// # Errors
    /// As [`Files::push`].
    pub fn seal<'r>(
        &mut self,
        records: impl Iterator<Item = &'r FlowRecord> + Clone,
        number: u64,
    ) -> Result<()> {
        let seal = |files: &mut Files| {
            records.clone().try_for_each(|record| files.push(record.clone()))?;
            files.seal(number)
        };
        let sealed = self.files.iter_mut().try_for_each(seal);
        if sealed.is_err() {
            self.files.iter_mut().for_each(|files| _ = files.discard());
        }
        sealed
    }

    /// Gives sealed files their names, and sends these records to collectors, even if a file cannot get its name. Waits
    /// for slow collectors while `may_wait` says so.
    ///
    /// # Errors
    /// As [`Files::publish`].
    pub fn publish<'r>(
        &mut self,
        records: impl Iterator<Item = &'r FlowRecord>,
        may_wait: impl Fn() -> bool,
    ) -> Result<()> {
        let published = self.files.iter_mut().map(Files::publish).fold(Ok(()), Result::and);
        records.for_each(|record| self.send(record, may_wait()));
        published
    }

    /// Completes files that are due, and deletes old ones. Must be called regularly.
    pub fn maintain(&mut self, now: Instant) {
        self.write(|files| files.maintain(now));
        for files in &mut self.files {
            // The reason why records are lost comes first.
            if let Err(error) = files.delete_old(now) {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// A warning that files cannot be written; one for each collector that records cannot be sent to, as by a name that
    /// cannot be resolved, and a message when they are sent again. Each has at most one warning a minute.
    pub fn take_warnings(&mut self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.reported.is_none_or(|since| since.elapsed() >= WARNING_INTERVAL) {
            warnings.extend(self.take_failure());
        }
        for (collector, warned) in self.collectors.iter().zip(&mut self.warned) {
            let ipfix::Statistics { messages, not_sent_flows, error, .. } = collector.statistics();
            let target = collector.target();
            match (error, *warned) {
                (Some(_), Some((_, true))) => {}
                (Some(_), Some((since, _))) if since.elapsed() < WARNING_INTERVAL => {}
                (Some(error), _) => {
                    let what = if messages == 0 { "connect" } else { "send flow records" };
                    *warned = Some((Instant::now(), true));
                    warnings.push(format!(
                        "cannot {what} to the collector {target}: {error}; it is tried again, and records that find no \
                         room until then are lost"
                    ));
                }
                (None, Some((since, true))) => {
                    *warned = Some((since, false));
                    warnings.push(format!(
                        "flow records are sent to the collector {target} again; not sent so far: {not_sent_flows}"
                    ));
                }
                (None, _) => {}
            }
        }
        warnings
    }

    /// The warning of the last error of files, if [`Outputs::take_warnings`] has not given it.
    pub fn take_failure(&mut self) -> Option<String> {
        let error = self.failure.take()?;
        self.reported = Some(Instant::now());
        let lost = self.not_written;
        Some(format!("{error}; flow records that are not written so far: {lost}"))
    }

    /// The counts now.
    pub fn statistics(&self) -> OutputStatistics {
        let sum = |sum: FilesStatistics, files: &Files| sum.plus(files.statistics());
        let sent = |one: &ipfix::Exporter| (one.target().clone(), one.statistics());
        OutputStatistics {
            files: self.files.iter().fold(FilesStatistics::default(), sum),
            not_written: self.not_written,
            collectors: self.collectors.iter().map(sent).collect(),
        }
    }

    /// Completes files, and then sends the remaining records to collectors. This waits for all collectors as long as
    /// `timeout`, and five seconds for one that makes no progress.
    ///
    /// # Errors
    /// As [`Files::push`]. The statistics are right even then.
    pub fn finish(self, timeout: Duration) -> (OutputStatistics, Result<()>) {
        let Self { files, not_written, collectors, .. } = self;
        let mut statistics = OutputStatistics { not_written, ..OutputStatistics::default() };
        let mut outcome = Ok(());
        for mut one in files {
            // Some files may get their names, and others not.
            let completed = one.complete().inspect_err(|_| statistics.not_written += one.discard());
            statistics.files = statistics.files.plus(one.statistics());
            outcome = outcome.and(completed.and_then(|()| one.finish().map(drop)));
        }
        statistics.collectors = std::thread::scope(|scope| {
            let finish = |one: ipfix::Exporter| {
                let target = one.target().clone();
                scope.spawn(move || (target, one.finish(timeout)))
            };
            let threads: Vec<_> = collectors.into_iter().map(finish).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        });
        (statistics, outcome)
    }
}

/// Whether one of these writes into this folder, perhaps by another path.
fn is_open(files: &[Files], folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    files.iter().any(|one| one.folder().canonicalize().is_ok_and(|other| other == folder))
}

/// The host's name.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
