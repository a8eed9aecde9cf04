//! [`Files`]: the frames of capture files.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use linerate_pcapfile::{Error as FileError, Reader};

use super::{ETHERNET, FrameSource, RecordedFrame};
use crate::{Error, Result};

/// The frames of several capture files, read one file after the other.
pub struct Files<'a> {
    paths: &'a [PathBuf],
    stop: &'a Arc<AtomicBool>,
    /// Index of the file to open next.
    next: usize,
    open: Option<Reader>,
    /// Time of the frame before, in this file.
    before: Option<u64>,
    /// The frame that is lent.
    frame: Vec<u8>,
}

impl<'a> Files<'a> {
    /// The files of these paths; setting `stop` ends the wait for a pipe.
    pub fn new(paths: &'a [PathBuf], stop: &'a Arc<AtomicBool>) -> Self {
        Self { paths, stop, next: 0, open: None, before: None, frame: Vec::new() }
    }

    /// Opens the next file if none is open.
    fn open_next(&mut self) -> linerate_pcapfile::Result<()> {
        if self.open.is_none()
            && let Some(path) = self.paths.get(self.next)
        {
            self.open = Some(Reader::open_until(path, self.stop)?);
            self.next += 1;
            self.before = None;
        }
        Ok(())
    }
}

impl FrameSource for Files<'_> {
    type Error = Error;

    fn next(&mut self) -> Result<Option<RecordedFrame<'_>>> {
        let (time, cut, interface) = loop {
            match self.open_next() {
                Err(FileError::Cancelled { .. }) => return Ok(None),
                opened => opened?,
            }
            let Some(reader) = &mut self.open else { return Ok(None) };
            let record = match reader.next() {
                Err(FileError::Cancelled { .. }) => return Ok(None),
                record => record?,
            };
            if let Some(record) = record {
                let frame = record.frame;
                self.frame.clear();
                self.frame.extend_from_slice(frame.head());
                frame.tail().iter().for_each(|piece| self.frame.extend_from_slice(piece));
                let cut = frame.wire_len as usize > frame.len();
                break (frame.timestamp.map(|time| time.0), cut, record.interface as usize);
            }
            self.open = None;
        };
        let linktype = self
            .open
            .as_ref()
            .and_then(|reader| reader.interfaces().get(interface))
            .map_or(ETHERNET, |interface| interface.linktype);
        let gap = match (self.before, time) {
            (Some(before), Some(time)) => time.saturating_sub(before),
            _ => 0,
        };
        // A frame with an earlier time does not set the clock back for later frames.
        self.before = self.before.max(time);
        Ok(Some(RecordedFrame { bytes: &self.frame, linktype, gap, cut }))
    }

    fn rewind(&mut self) -> Result<()> {
        (self.next, self.open, self.before) = (0, None, None);
        Ok(())
    }
}
