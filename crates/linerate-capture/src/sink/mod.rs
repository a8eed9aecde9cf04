//! Where the packets of a capture go. A new kind of sink is one variant of [`Sink`] and its arms here.

pub mod file;

use std::sync::{Arc, Mutex, PoisonError};

use linerate_pcapfile::Record;

use file::{FileSink, FileSinkHandle, FileSinkReport};

/// Is called for each packet with its link type (LINKTYPE registry); returns false to end the capture.
pub type PacketHandler = Box<dyn FnMut(&Record<'_>, u16) -> bool + Send>;

/// Where packets go. What a capture is given has the [`FileSink`]s themselves: one for all readers, or one for each.
/// Each reader gets a copy with its own handle of one.
pub enum Sink<F = Vec<FileSink>> {
    /// Nowhere: packets are counted.
    Discard,
    /// Into files.
    File(F),
    /// To a function, which one reader at a time calls.
    Call(Arc<Mutex<PacketHandler>>),
    /// Both.
    FileAndCall(F, Arc<Mutex<PacketHandler>>),
}

impl Sink {
    /// A sink that calls `handler`.
    pub fn call(handler: impl FnMut(&Record<'_>, u16) -> bool + Send + 'static) -> Self {
        Self::Call(Arc::new(Mutex::new(Box::new(handler))))
    }

    /// The same, and into these files.
    pub fn and_files(self, files: Vec<FileSink>) -> Self {
        match self {
            Self::Call(handler) | Self::FileAndCall(_, handler) => {
                Self::FileAndCall(files, handler)
            }
            Self::Discard | Self::File(_) => Self::File(files),
        }
    }

    /// For the reader of this number, whose packets count for the interface of that number.
    pub(crate) fn reader(&self, interface: u32, reader: usize) -> Sink<FileSinkHandle> {
        match self {
            Self::Discard => Sink::Discard,
            Self::File(files) => Sink::File(files[reader % files.len()].handle(interface)),
            Self::Call(handler) => Sink::Call(Arc::clone(handler)),
            Self::FileAndCall(files, handler) => Sink::FileAndCall(
                files[reader % files.len()].handle(interface),
                Arc::clone(handler),
            ),
        }
    }

    /// The writers, if it writes files.
    pub fn files(&self) -> &[FileSink] {
        match self {
            Self::File(files) | Self::FileAndCall(files, _) => files,
            Self::Discard | Self::Call(_) => &[],
        }
    }

    /// Waits for the writers, and adds up their reports.
    pub(crate) fn finish(self) -> FileSinkReport {
        match self {
            Self::File(files) | Self::FileAndCall(files, _) => files
                .into_iter()
                .map(FileSink::finish)
                .fold(FileSinkReport::default(), FileSinkReport::plus),
            Self::Discard | Self::Call(_) => FileSinkReport::default(),
        }
    }
}

impl Sink<FileSinkHandle> {
    /// Outputs one packet; false if the function wants no more. `record` is called only if
    /// the sink looks at the packet.
    #[inline(always)]
    pub(crate) fn push<'a>(&mut self, linktype: u16, record: impl FnOnce() -> Record<'a>) -> bool {
        match self {
            Self::Discard => true,
            Self::File(handle) => {
                handle.push(&record());
                true
            }
            Self::Call(handler) => {
                let record = record();
                (handler.lock().unwrap_or_else(PoisonError::into_inner))(&record, linktype)
            }
            Self::FileAndCall(handle, handler) => {
                let record = record();
                handle.push(&record);
                // The file goes on without the handler.
                (handler.lock().unwrap_or_else(PoisonError::into_inner))(&record, linktype);
                true
            }
        }
    }

    /// All bytes pushed into files so far.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        match self {
            Self::File(handle) | Self::FileAndCall(handle, _) => handle.position(),
            Self::Discard | Self::Call(_) => 0,
        }
    }

    /// The handle of the writer, if it writes files.
    pub(crate) fn file(&mut self) -> Option<&mut FileSinkHandle> {
        match self {
            Self::File(handle) | Self::FileAndCall(handle, _) => Some(handle),
            Self::Discard | Self::Call(_) => None,
        }
    }
}
