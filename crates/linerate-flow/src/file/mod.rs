//! [`Files`]: records in Parquet files, `date=YYYY-MM-DD/hour=HH/sensor=NAME/` below one folder.
//!
//! A file gets its name when it is complete and on the disk. Until then its name is hidden. So readers see only
//! complete files, even if the meter is killed.
//!
//! A caller may have to know which records are in files, even if it is killed at any time. It completes files in two
//! steps. [`Files::seal`] writes them to the disk under a hidden name with a batch number. The caller stores this
//! number (it commits the batch). Then [`Files::publish`] gives the files their names. After a kill, the next meter
//! publishes the sealed files of committed batches.
//!
//! A state file says that a meter runs. A meter that finds the state file of a dead meter removes the other hidden
//! files, and counts an interruption.

#[cfg_attr(not(feature = "parquet"), path = "no_files.rs")]
mod files;

use std::path::PathBuf;
use std::time::Duration;

pub use linerate_pcapfile::KeepFree;
use linerate_pcapfile::UserGroup;

pub use files::Files;

use crate::schema::Groups;

/// Where and how records are written.
#[derive(Clone, Debug)]
pub struct FilesOptions {
    /// The folder.
    pub folder: PathBuf,
    /// The name of this meter: letters, digits, dots, dashes and underscores.
    pub sensor: String,
    /// A group that may read the files.
    pub group: Option<UserGroup>,
    /// A file gets its name at the latest after this time.
    pub max_age: Duration,
    /// A file gets its name at the latest with this many records.
    pub max_records: u64,
    /// Which complete files are deleted.
    pub retention: Retention,
    /// The fields that they have on request.
    pub groups: Groups,
    /// The last committed batch: files that an interrupted meter sealed with this number or a lower one are published.
    /// Files with the number 0 are published in any case.
    pub sealed: Option<u64>,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct FilesStatistics {
    /// Records in files that have their name.
    pub records: u64,
    /// These files.
    pub files: u64,
    /// Their bytes.
    #[serde(rename = "file_bytes")]
    pub bytes: u64,
    /// Complete files that were deleted ([`Retention`]).
    #[serde(rename = "deleted_files")]
    pub deleted: u64,
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
            deleted: self.deleted + other.deleted,
            interruptions: self.interruptions + other.interruptions,
        }
    }
}

/// Which complete files of a sensor are deleted, those of the oldest hour first. They may be of earlier meters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Retention {
    /// Those of records whose hour ended so long ago.
    pub keep: Option<Duration>,
    /// As many as it takes to keep this free on the file system.
    pub keep_free: Option<KeepFree>,
}
