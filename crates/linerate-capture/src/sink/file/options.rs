//! What a [`FileSink`](super::FileSink) writes, and where.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linerate_pcapfile::{
    Compression, Encoder, InterfaceDescription, InterfaceStatistics, SectionHeader, UserGroup,
};
use linerate_ring::Timestamp;

use super::retention::Retention;
use super::rotation::Rotation;

/// Returns the statistics of every interface, for the end of a file.
pub type StatisticsSource = Box<dyn Fn() -> Vec<InterfaceStatistics> + Send>;

/// What to write and where.
pub struct FileSinkOptions {
    /// The file, `-` for standard output; with a rotation the stem of the names.
    pub path: PathBuf,
    /// The file that the packets come from, which the files must not overwrite; `-` for standard input.
    pub input: Option<PathBuf>,
    /// Format and contents of the records.
    pub encoder: Encoder,
    /// Compression.
    pub compression: Compression,
    /// A group that may read the files.
    pub group: Option<UserGroup>,
    /// When to start another file.
    pub rotation: Rotation,
    /// Which of the finished files are deleted.
    pub retention: Retention,
    /// Bytes after which the whole capture ends (`-a filesize:`).
    pub size_limit: Option<u64>,
    /// A program to run with the name of each finished file (`-z`).
    pub postrotate: Option<OsString>,
    /// A file that gets the name of each finished file (`-b printname:`).
    pub print_names: Option<PathBuf>,
    /// The capture ends after so many files (`-a files:`).
    pub file_limit: Option<u64>,
    /// What a pcapng file says about where it comes from. `None` where the reader copies the blocks of a file: then
    /// they are the header, too.
    pub section: Option<SectionHeader>,
    /// The interfaces, in the order of their numbers; classic pcap takes the first one's link type.
    pub interfaces: Vec<InterfaceDescription>,
    /// Buffers of 256 KiB between the readers and the file: one for each reader, and at least one more.
    pub buffers: usize,
    /// When the first period of `rotation.seconds` starts; `None` for the time of the first packet.
    pub start: Option<Timestamp>,
    /// The thread drops its capabilities, unless it will have to open more files.
    pub drop_privileges: bool,
    /// Writes the packets of several readers in the order of time. The writer waits at most a second for
    /// the slowest reader. The packets of one reader stay in their order.
    pub in_order: bool,
    /// Ends the wait for a reader of a named pipe.
    pub stop: Arc<AtomicBool>,
    /// The statistics for the end of each file.
    pub statistics: StatisticsSource,
}
