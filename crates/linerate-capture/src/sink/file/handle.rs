//! [`FileSinkHandle`]: a reader's end of the writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Release};
use std::time::{Duration, Instant};

use linerate_flow::export::PacketLocator;
use linerate_pcapfile::ByteRange;
use linerate_pcapfile::write::EncodedRecord;
use linerate_pcapfile::{Encoder, Format, InterfaceDescription, Record};
use linerate_ring::Frame;

use super::chunk::{CAPACITY, Chunk, ReaderRun};
use super::extents::ReaderLocator;
use super::merge::ReaderState;
use super::pool::{BlockPlace, Message, Pool};

/// One reader's handle of the writer: encodes packets into a buffer and sends the buffer when it is full.
///
/// Dropping it sends what is left.
pub struct FileSinkHandle {
    pool: Arc<Pool>,
    encoder: Encoder,
    /// The interface that its packets count for.
    interface: u32,
    reader: usize,
    state: Arc<AtomicU64>,
    chunk: Chunk,
    /// Bytes of the buffers before this one.
    sent: u64,
    /// Where the packets of `interface` begin: packets of the buffer before them, and all bytes.
    run: (u64, u64),
    /// When the first record came into the buffer, as far as that was noticed.
    since: Option<Instant>,
    /// Time spent waiting for an empty buffer.
    waited: Duration,
}

impl FileSinkHandle {
    pub(super) fn new(pool: Arc<Pool>, encoder: Encoder, interface: u32) -> Self {
        let (reader, state) = pool.add_reader();
        let (chunk, _) = pool.take_empty();
        let waited = Duration::ZERO;
        let (sent, run, since) = (0, (0, 0), None);
        Self { pool, encoder, interface, reader, state, chunk, sent, run, since, waited }
    }

    /// The format that packets are encoded in.
    pub(crate) fn format(&self) -> Format {
        self.encoder.format
    }

    /// Locates its packets in the files.
    pub(crate) fn packet_locator(&self) -> Arc<dyn PacketLocator> {
        Arc::new(ReaderLocator::new(Arc::clone(&self.pool.extents), self.reader))
    }

    /// Packets pushed from now on count for this interface.
    pub(crate) fn set_interface(&mut self, interface: u32) {
        self.end_run();
        self.interface = interface;
    }

    fn end_run(&mut self) {
        let byte_range = ByteRange { begin: self.run.1, end: self.position() };
        let frames = self.chunk.frames - self.run.0;
        if frames > 0 {
            let Self { reader, interface, .. } = *self;
            self.chunk.runs.push(ReaderRun { reader, interface, frames, byte_range });
        }
        self.run = (self.chunk.frames, byte_range.end);
    }

    /// All bytes pushed so far.
    pub(crate) fn position(&self) -> u64 {
        self.sent + self.chunk.bytes.len() as u64
    }

    /// Encodes one packet. When the buffer is full this waits for an empty one: until then the caller's ring
    /// holds what arrives, and the kernel counts what does not fit.
    #[inline(always)]
    pub fn push(&mut self, record: &Record<'_>) {
        let needed = self.encoder.max_len(record);
        if self.chunk.bytes.len() + needed > CAPACITY && self.chunk.frames > 0 {
            self.exchange();
        }
        let chunk = &mut self.chunk;
        self.encoder.encode(&mut chunk.bytes, record);
        chunk.frames += 1;
        chunk.last = chunk.last.max(record.frame.timestamp.unwrap_or_default());
    }

    /// As [`FileSinkHandle::push`], for the record of `frame` that `put` appends, `len` bytes long.
    pub(crate) fn push_copy(
        &mut self,
        frame: &Frame<'_>,
        len: usize,
        put: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.chunk.bytes.len() + len > CAPACITY && self.chunk.frames > 0 {
            self.exchange();
        }
        let chunk = &mut self.chunk;
        put(&mut chunk.bytes);
        chunk.frames += 1;
        let timestamp = frame.timestamp.unwrap_or_default();
        chunk.last = chunk.last.max(timestamp);
        let (end, wire_len) = (chunk.bytes.len(), frame.wire_len);
        chunk.copied.push(EncodedRecord { end, timestamp, wire_len });
    }

    /// Whether the buffer has packets that were not sent to the writer.
    pub fn has_pending(&self) -> bool {
        self.chunk.frames > 0
    }

    /// Says what the caller does now. When packets of several readers are put in order, the writer does not
    /// wait for a reader that is idle and has nothing pending.
    pub fn set_state(&self, state: ReaderState) {
        let state = if self.has_pending() { ReaderState::Busy } else { state };
        // Release: a thread that sees the state also sees what was sent before.
        self.state.store(state.into(), Release);
    }

    /// Sends the pending packets if they are older than `age`; to be called between batches.
    pub fn flush_older_than(&mut self, age: Duration, now: Instant) {
        if self.chunk.frames == 0 {
            self.since = None;
            return;
        }
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) >= age {
            self.flush();
        }
    }

    /// Sends the pending packets to the writer.
    pub fn flush(&mut self) {
        if self.chunk.frames > 0 {
            self.exchange();
        }
    }

    /// Removes the partial record that a panic left after the whole ones.
    pub(crate) fn discard_partial_record(&mut self) {
        let whole = self.chunk.records(self.encoder.format, 0);
        let end = whole.take(self.chunk.frames as usize).last().map_or(0, |record| record.end);
        self.chunk.bytes.truncate(end);
    }

    /// Describes one more interface, after everything pushed so far.
    pub fn describe(&mut self, interface: InterfaceDescription) {
        let mut bytes = Vec::new();
        self.encoder.encode_interface(&mut bytes, &interface);
        self.put_block(bytes, BlockPlace::EachFile);
    }

    /// Puts bytes that are no packet behind everything pushed so far.
    pub(crate) fn put_block(&mut self, bytes: Vec<u8>, place: BlockPlace) {
        self.flush();
        self.pool.send(Message::Block(bytes, place));
    }

    /// Whether the writer accepts no more, because a limit is reached or the file failed. Packets pushed
    /// after that count as unwritten.
    pub fn is_closed(&self) -> bool {
        self.pool.is_closed()
    }

    /// How long this reader has waited for the writer since the last call.
    pub fn take_wait_time(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    #[cold]
    fn exchange(&mut self) {
        let chunk = self.filled();
        self.pool.send(Message::Write(chunk));
        self.since = None;
        let (chunk, waited) = self.pool.take_empty();
        self.waited += waited;
        self.chunk = chunk;
    }

    /// The buffer with everything that was pushed.
    fn filled(&mut self) -> Chunk {
        self.end_run();
        self.sent = self.position();
        self.run = (0, self.sent);
        let mut chunk = std::mem::take(&mut self.chunk);
        (chunk.reader, chunk.sent) = (self.reader, Some(Instant::now()));
        chunk
    }
}

impl Drop for FileSinkHandle {
    fn drop(&mut self) {
        let rest = self.filled();
        let rest = (rest.frames > 0).then_some(Message::Write(rest));
        self.pool.remove_sender(rest.into_iter().chain([Message::End(self.reader)]));
    }
}

#[cfg(test)]
mod tests {
    use linerate_pcapfile::PacketOptions;
    use linerate_ring::Frame;

    use super::*;

    #[test]
    fn half_a_record_is_cut_off() {
        for format in [Format::Pcapng, Format::Pcap { nanoseconds: true }] {
            let encoder = Encoder { format, snaplen: 100, options: PacketOptions::default() };
            let mut handle = FileSinkHandle::new(Pool::new(2), encoder, 0);
            let record = Record { frame: Frame::new(b"twelve bytes"), interface: 0, comment: None };
            handle.discard_partial_record();
            assert!(handle.chunk.bytes.is_empty());
            handle.push(&record);
            handle.push(&record);
            let whole = handle.chunk.bytes.clone();
            // What is there of a third one when encoding it panics.
            handle.chunk.bytes.extend_from_slice(&whole[..21]);
            handle.discard_partial_record();
            assert_eq!(handle.chunk.bytes, whole, "{format:?}");
        }
    }
}
