//! Writing a running capture into files without delaying the readers.
//!
//! A reader encodes frames straight from the ring into a large buffer of its [`FileSinkHandle`]. A full
//! buffer goes to the thread of the [`FileSink`], which writes it with one system call and returns it
//! empty. Nothing is allocated and no lock is taken for a packet. Rotation, size limits and truncation
//! after a full disk are the work of that thread: it finds record boundaries by scanning the encoded
//! bytes, and only in the one buffer where a boundary matters.

mod chunk;
mod extents;
mod handle;
mod merge;
mod options;
mod pool;
mod progress;
mod retention;
mod rotation;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use linerate_pcapfile::Encoder;
use linerate_ring::Timestamp;

pub(crate) use extents::file_name;
pub use handle::FileSinkHandle;
pub use merge::ReaderState;
pub use options::{FileSinkOptions, StatisticsSource};
pub(crate) use pool::BlockPlace;
use pool::{Message, Pool, SenderGuard};
pub use progress::{FileSinkCounts, FileSinkProgress, FileSinkReport, InterfaceOutcome};
pub(crate) use retention::FinishedFiles;
pub use retention::Retention;
pub use rotation::{Naming, Rotation};
use writer::Writer;

use crate::{Error, Result};

/// A thread that writes the packets of all readers into files.
pub struct FileSink {
    thread: JoinHandle<FileSinkReport>,
    pool: Arc<Pool>,
    progress: Arc<FileSinkProgress>,
    encoder: Encoder,
    guard: SenderGuard,
}

impl FileSink {
    /// Opens the first file, writes its header and starts the thread.
    ///
    /// # Errors
    ///
    /// [`Error::File`] and [`Error::Thread`].
    pub fn start(options: FileSinkOptions) -> Result<Self> {
        Self::start_beside(options, Arc::default())
    }

    /// As [`FileSink::start`], beside other writers of the same capture: each deletes the oldest of all their files.
    pub(crate) fn start_beside(
        options: FileSinkOptions,
        finished: Arc<Mutex<FinishedFiles>>,
    ) -> Result<Self> {
        if options.rotation.seconds.is_some()
            && options.rotation.naming == Naming::Tcpdump
            && !rotation::is_format(&options.path)
        {
            let what =
                "the name is not a format for strftime(3), which has the time; write %% for %";
            let source = io::Error::new(io::ErrorKind::InvalidInput, what);
            let path = options.path;
            return Err(linerate_pcapfile::Error::Create { path, source }.into());
        }
        let pool = Pool::new(options.buffers.max(2));
        let progress = Arc::new(FileSinkProgress::default());
        let encoder = options.encoder;
        let writer = Writer::new(options, Arc::clone(&pool), Arc::clone(&progress), finished)?;
        let guard = SenderGuard::new(&pool);
        let thread = std::thread::Builder::new()
            .name("writer".into())
            .spawn(move || writer.run())
            .map_err(|source| Error::Thread { source })?;
        Ok(Self { thread, pool, progress, encoder, guard })
    }

    /// A handle for one more reader, whose packets count for this interface.
    pub fn handle(&self, interface: u32) -> FileSinkHandle {
        FileSinkHandle::new(Arc::clone(&self.pool), self.encoder, interface)
    }

    /// How far it is.
    pub fn progress(&self) -> Arc<FileSinkProgress> {
        Arc::clone(&self.progress)
    }

    /// Starts another file for the packets from `time` on.
    pub fn rotate(&self, time: Timestamp) {
        self.pool.send(Message::Rotate(time));
    }

    /// The share of buffers that wait to be written, 0 to 1.
    pub fn fill_level(&self) -> f32 {
        self.pool.fill_level()
    }

    /// Waits until every handle is dropped and its packets are in the file, and closes the file.
    pub fn finish(self) -> FileSinkReport {
        drop(self.guard);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}
