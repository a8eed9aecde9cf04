//! [`Outputs`]: the files and collectors that records go to.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::file::{Files, FilesOptions, FilesStatistics};
use crate::ipfix::{self, Target};
use crate::{FlowRecord, Result};

/// The most records in a file.
const MAX_RECORDS: u64 = 1 << 22;

/// How long the end of a run waits for collectors that make progress.
pub(crate) const END_TIMEOUT: Duration = Duration::from_secs(20);

/// A destination of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Parquet files below this folder.
    Folder(PathBuf),
    /// A collector.
    Collector(Target),
}

impl FromStr for Destination {
    type Err = ipfix::Error;

    fn from_str(text: &str) -> std::result::Result<Self, ipfix::Error> {
        if Target::is_one(text) {
            return text.parse().map(Self::Collector);
        }
        let Ok(folder): std::result::Result<_, Infallible> = text.parse();
        Ok(Self::Folder(folder))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(folder) => folder.display().fmt(f),
            Self::Collector(target) => target.fmt(f),
        }
    }
}

/// Where records go, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputOptions {
    /// All of these.
    pub destinations: Vec<Destination>,
    /// The name of this meter in files; `None` for the host's name.
    pub sensor: Option<String>,
    /// A file is complete at the latest after this time.
    pub max_age: Duration,
    /// As [`FilesOptions::sealed`].
    pub sealed: Option<u64>,
}

/// What was written and sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputStatistics {
    /// The counts of complete files.
    pub files: FilesStatistics,
    /// What was sent to each collector.
    pub collectors: Vec<(Target, ipfix::Statistics)>,
}

/// Files and collectors. The caller waits for files; it waits for collectors only on request. [`Outputs::is_ready`]
/// says whether it would have to.
pub struct Outputs {
    files: Vec<Files>,
    collectors: Vec<ipfix::Exporter>,
}

impl Outputs {
    /// Prepares folders, and starts the threads of collectors, which first call `prepare_thread`.
    ///
    /// # Errors
    ///
    /// As [`Files::new`]; [`crate::Error::Ipfix`].
    pub fn open(options: &OutputOptions, prepare_thread: fn()) -> Result<Self> {
        let (mut files, mut collectors) = (Vec::new(), Vec::new());
        for destination in &options.destinations {
            match destination {
                Destination::Folder(folder) => files.push(Files::new(FilesOptions {
                    folder: folder.clone(),
                    sensor: options.sensor.clone().unwrap_or_else(host_name),
                    max_age: options.max_age,
                    max_records: MAX_RECORDS,
                    sealed: options.sealed,
                })?),
                Destination::Collector(target) => {
                    let options = ipfix::Options::default();
                    let target = target.clone();
                    collectors.push(ipfix::Exporter::start(target, &options, prepare_thread)?);
                }
            }
        }
        Ok(Self { files, collectors })
    }

    /// Whether a record finds room in the queue of each collector. A full queue from which no message was sent for five
    /// seconds does not count: its records are counted as not sent.
    pub fn is_ready(&self) -> bool {
        // Each collector has to be asked: the time without a message begins when it is.
        self.collectors.iter().filter(|one| !one.is_ready()).count() == 0
    }

    /// Adds a record. If `blocking`, this waits for slow collectors.
    ///
    /// # Errors
    ///
    /// As [`Files::push`].
    pub fn push(&mut self, record: &FlowRecord, blocking: bool) -> Result<()> {
        self.send(record, blocking);
        self.files.iter_mut().try_for_each(|files| files.push(record.clone()))
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
    ///
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
            self.files.iter_mut().for_each(Files::discard);
        }
        sealed
    }

    /// Gives sealed files their names, and sends these records to collectors. Waits for slow collectors while
    /// `may_wait` says so.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Io`].
    pub fn publish<'r>(
        &mut self,
        records: impl Iterator<Item = &'r FlowRecord>,
        may_wait: impl Fn() -> bool,
    ) -> Result<()> {
        self.files.iter_mut().try_for_each(Files::publish)?;
        records.for_each(|record| self.send(record, may_wait()));
        Ok(())
    }

    /// Whether there are files.
    pub fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Completes files that are due. Must be called regularly.
    ///
    /// # Errors
    ///
    /// As [`Files::push`].
    pub fn maintain(&mut self, now: Instant) -> Result<()> {
        self.files.iter_mut().try_for_each(|files| files.maintain(now))
    }

    /// The counts now.
    pub fn statistics(&self) -> OutputStatistics {
        let sum = |sum: FilesStatistics, files: &Files| sum.plus(files.statistics());
        let sent = |one: &ipfix::Exporter| (one.target().clone(), one.statistics());
        OutputStatistics {
            files: self.files.iter().fold(FilesStatistics::default(), sum),
            collectors: self.collectors.iter().map(sent).collect(),
        }
    }

    /// Completes files, and then sends the remaining records to collectors. This waits for all collectors as long as
    /// `timeout`, and five seconds for one that makes no progress.
    ///
    /// # Errors
    ///
    /// As [`Files::push`]. The statistics are right even then.
    pub fn finish(self, timeout: Duration) -> (OutputStatistics, Result<()>) {
        let Self { files, collectors } = self;
        let mut statistics = OutputStatistics::default();
        let mut outcome = Ok(());
        for one in files {
            let before = one.statistics();
            match one.finish() {
                Ok(written) => statistics.files = statistics.files.plus(written),
                Err(error) => {
                    statistics.files = statistics.files.plus(before);
                    outcome = outcome.and(Err(error));
                }
            }
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

/// The host's name.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
