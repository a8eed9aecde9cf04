//! The reader's loop: from the ring to the output, without a system call or an allocation a packet.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use linerate_flow::export::ExportingMeter;
use linerate_flow::meter::MeteredPacket;
use linerate_net::cpu;
use linerate_pcapfile::{ByteRange, Record};
use linerate_ring::{Drained, Frame, Ring as _, Timestamp};

use super::cutoff::Cutoff;
use super::processes::Processes;
use super::router::Router;
use super::sample::Sample;
use super::shared::{Event, Shared};
use crate::annotate::Annotator;
use crate::filter::Filter;
use crate::sink::Sink;
use crate::sink::file::{FileSinkHandle, ReaderState};
use crate::source::{Source, SourceStatistics, StopOutcome};
use crate::split::LiveSplitter;
use crate::statistics::{Drops, InterfaceCounters, QueueCounts, ReaderCounters};
use crate::{Error, clock};

/// How long packets may wait in a buffer that is not full before they go to the file.
pub(super) const MAX_BUFFER_AGE: Duration = Duration::from_millis(100);

/// The same where there are several readers: the writer waits for the slowest to put packets in order.
pub(super) const MAX_BUFFER_AGE_OF_SEVERAL: Duration = Duration::from_millis(20);

/// The longest wait for packets. This bounds how fast a reader notices the end of the capture.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// The same after [`WAITS_UNTIL_IDLE`] waits without a packet. Rings poll for a while before they sleep in
/// the kernel, in each wait: an idle capture that costs nothing must wait rarely.
const MAX_IDLE_WAIT: Duration = Duration::from_millis(400);

/// Waits without a packet after which a reader is idle: all its packets are in the file by then.
const WAITS_UNTIL_IDLE: u32 = 6;

/// The same after the end was requested: the last packets come soon.
const MAX_LAST_WAIT: Duration = Duration::from_millis(5);

/// How often the kernel's counters are read while packets come.
const COUNTERS_INTERVAL: Duration = Duration::from_millis(200);

/// Batches between two reads of the clock.
const BATCHES_PER_ROUND: usize = 8;

/// How long a source that cannot be stopped is read after the end was requested: longer than it takes to
/// empty any buffer.
const MAX_DRAIN_TIME: Duration = Duration::from_millis(500);

/// How long a packet ring may take to retire its last block: two block timeouts.
const LAST_BLOCK_TIME: Duration = Duration::from_millis(60);

/// What happens to each frame: the filter in user space, the limit, and the sink.
pub(super) struct PacketPath {
    pub(super) sink: Sink<FileSinkHandle>,
    /// The filter, if it runs in user space.
    pub(super) filter: Option<Arc<Filter>>,
    pub(super) sample: Option<Sample>,
    /// Finds whose packets they are.
    pub(super) processes: Option<Processes>,
    pub(super) cutoff: Option<Cutoff>,
    /// Finds the interface of each frame, where the source has those of all.
    pub(super) router: Option<Box<Router>>,
    /// The counters of the interface.
    pub(super) counters: Arc<InterfaceCounters>,
    /// The number of the reader there.
    pub(super) reader: usize,
    pub(super) interface: u32,
    pub(super) linktype: u16,
    pub(super) shared: Arc<Shared>,
    /// Meters the flows of the frames that are output, and of those after the cutoff.
    pub(super) meter: Option<ExportingMeter>,
    /// Says why the kernel dropped a packet, if the source tells that.
    pub(super) annotator: Option<Annotator>,
}

/// The counts of a round of batches. Its drop adds them to the reader's counters, also after a panic.
struct Round {
    counters: Arc<InterfaceCounters>,
    reader: usize,
    captured: u64,
    bytes: u64,
    /// Frames that the filter in user space rejected.
    rejected: u64,
    /// Frames of flows that are not in the sample.
    sampled: u64,
    /// Frames of no known process.
    unattributed: u64,
    /// Frames whose processes are not selected.
    not_selected: u64,
    /// Frames after the cutoff of their flows.
    cutoff: u64,
    /// The time of the frames that the source does not stamp.
    timestamp: Option<Timestamp>,
}

impl Round {
    fn new(path: &PacketPath) -> Self {
        Self {
            counters: Arc::clone(&path.counters),
            reader: path.reader,
            captured: 0,
            bytes: 0,
            rejected: 0,
            sampled: 0,
            unattributed: 0,
            not_selected: 0,
            cutoff: 0,
            timestamp: None,
        }
    }

    /// When the frame arrived.
    #[inline(always)]
    fn time(&mut self, frame: &Frame<'_>) -> Timestamp {
        frame.timestamp.unwrap_or_else(|| *self.timestamp.get_or_insert_with(clock::now))
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        let Self { captured, bytes, rejected, sampled, cutoff, .. } = *self;
        let reader = &self.counters.readers[self.reader];
        reader.add(captured, bytes, rejected, sampled, cutoff);
        if self.unattributed + self.not_selected > 0 {
            reader.add_processes(self.unattributed, self.not_selected);
        }
    }
}

impl PacketPath {
    /// Filters and outputs one frame; false if no more are wanted.
    // Always inlined, as is everything on the path of a frame: the frame then stays in registers and is
    // not written to memory and read again at each step.
    #[inline(always)]
    fn handle(&mut self, frame: &Frame<'_>, round: &mut Round, scratch: &mut Vec<u8>) -> bool {
        // One branch, which is always the same where there is no router.
        if self.router.as_ref().is_some_and(|router| router.current != frame.interface) {
            self.change_interface(frame.interface, round);
        }
        !self.accepts(frame, round, scratch) || self.output(frame, round)
    }

    /// The next frames are of the interface with this index. A change takes two look-ups and adds up the counts so far.
    /// The kernel handles up to 64 frames of an interface before those of another one (NAPI).
    #[inline(never)]
    fn change_interface(&mut self, index: u32, round: &mut Round) {
        let Some(router) = &mut self.router else { return };
        let route = router.route(index, &mut self.sink);
        (self.interface, self.linktype) = (route.number, route.linktype);
        self.counters = Arc::clone(&route.counters);
        if let Some(file) = self.sink.file() {
            file.set_interface(self.interface);
        }
        let mut next = Round::new(self);
        next.timestamp = round.timestamp;
        *round = next;
    }

    /// Whether the filter accepts the frame, its flow is in the sample, and its process is selected.
    #[inline(always)]
    fn accepts(&mut self, frame: &Frame<'_>, round: &mut Round, scratch: &mut Vec<u8>) -> bool {
        if let Some(filter) = &self.filter
            && !filter.matches(frame, frame.contiguous(scratch))
        {
            round.rejected += 1;
            return false;
        }
        if let Some(sample) = self.sample
            && !sample.has(frame.head(), self.linktype)
        {
            round.sampled += 1;
            return false;
        }
        if let Some(processes) = &mut self.processes {
            let verdict = processes.find(frame.head(), self.linktype, round.time(frame));
            round.unattributed += u64::from(!verdict.is_known);
            round.not_selected += u64::from(!verdict.is_selected);
            return verdict.is_selected;
        }
        true
    }

    /// Outputs one frame, if it is before the cutoff of its flow; false if no more are wanted.
    #[inline(always)]
    fn output(&mut self, frame: &Frame<'_>, round: &mut Round) -> bool {
        if let Self { cutoff: Some(cutoff), linktype, interface, .. } = self
            && !cutoff.keeps(frame.head(), frame.wire_len, *linktype, *interface, round.time(frame))
        {
            return self.skip_after_cutoff(frame, round);
        }
        if !self.shared.claim() {
            return false;
        }
        let begin = self.sink.position();
        let more = self.push(frame, round);
        if self.meter.is_some() {
            let end = self.sink.position();
            self.meter_frame(frame, round, (end > begin).then_some(ByteRange { begin, end }));
        }
        more
    }

    /// Counts and meters a frame after the cutoff of its flow; false if the capture is complete.
    fn skip_after_cutoff(&mut self, frame: &Frame<'_>, round: &mut Round) -> bool {
        if self.shared.is_complete() {
            return false;
        }
        round.cutoff += 1;
        self.meter_frame(frame, round, None);
        true
    }

    /// Meters a frame, which is at this range of the output.
    #[inline(always)]
    fn meter_frame(&mut self, frame: &Frame<'_>, round: &mut Round, byte_range: Option<ByteRange>) {
        let Some(meter) = &mut self.meter else { return };
        meter.push(&MeteredPacket {
            // All headers are in the first piece.
            frame: frame.head(),
            wire_len: frame.wire_len,
            linktype: self.linktype,
            interface: self.interface as u16,
            time: round.time(frame).0,
            byte_range,
            processes: self.processes.as_mut().and_then(Processes::fields),
        });
    }

    /// Pushes a frame into the sink; false if the sink wants no more.
    #[inline(always)]
    fn push(&mut self, frame: &Frame<'_>, round: &mut Round) -> bool {
        let wire_len = u64::from(frame.wire_len);
        let Self { interface, annotator, processes, .. } = self;
        let more = self.sink.push(self.linktype, || {
            let mut frame = *frame;
            let comment = annotator.as_mut().zip(frame.trace.as_ref());
            let comment = comment.and_then(|(annotator, event)| annotator.comment(event));
            let comment = match processes {
                Some(processes) => processes.comment(comment),
                None => comment,
            };
            frame.timestamp = Some(round.time(&frame));
            Record { frame, interface: *interface, comment }
        });
        if !more {
            // The other readers may wait for their next packet for a long time.
            self.shared.stop.store(true, Relaxed);
        }
        round.captured += 1;
        round.bytes += wire_len;
        more
    }
}

pub(super) struct Reader {
    pub(super) source: Source,
    pub(super) path: PacketPath,
    /// Splits super-packets behind the filter.
    pub(super) splitter: Option<LiveSplitter>,
    /// The name of the interface.
    pub(super) name: String,
    pub(super) counters: Arc<InterfaceCounters>,
    /// The number of this reader among those of the interface.
    pub(super) index: usize,
    pub(super) events: Sender<Event>,
    pub(super) max_age: Duration,
    /// Where it runs; empty leaves it to the kernel.
    pub(super) cpus: Vec<usize>,
    pub(super) outlive_interface: bool,
    pub(super) drop_privileges: bool,
}

impl Reader {
    /// Reads until the capture ends. A panic of one reader ends the others, too: otherwise they, and
    /// the thread that joins them, would wait forever.
    pub(super) fn run(mut self) {
        let all = Arc::clone(&self.counters);
        let counters = &all.readers[self.index];
        let mut ledger = Ledger::default();
        for step in [Self::read, Self::finish] {
            let done = catch_unwind(AssertUnwindSafe(|| step(&mut self, counters, &mut ledger)));
            if let Err(panic) = done {
                let thread = format!("reader of {}", self.name);
                self.path.shared.fail(Error::panicked(thread, &*panic));
                if let Some(file) = self.path.sink.file() {
                    file.discard_partial_record();
                }
            }
        }
    }

    fn read(&mut self, counters: &ReaderCounters, ledger: &mut Ledger) {
        self.prepare_thread();
        let mut scratch = Vec::new();
        let mut down = false;
        let mut flushed = 0;
        let mut empty_waits = 0_u32;
        let mut ending: Option<Ending> = None;
        loop {
            if ending.is_none() && self.path.shared.stop.load(Relaxed) {
                let stopped = self.source.end();
                ending = Some(Ending { stopped, since: Instant::now() });
            }
            let has_pending = self.path.sink.file().is_some_and(|file| file.has_pending());
            let timeout = match &ending {
                Some(_) => MAX_LAST_WAIT,
                None if empty_waits >= WAITS_UNTIL_IDLE => MAX_IDLE_WAIT,
                None if has_pending => MAX_WAIT.min(self.max_age),
                None => MAX_WAIT,
            };
            // The other sources do not tell.
            let empty_since = match &mut self.source {
                Source::Xdp(receiver) => receiver.empty_since(),
                Source::Packet(_) | Source::Trace(_) => None,
            };
            if let Some(file) = self.path.sink.file() {
                file.set_state(ReaderState::Idle(empty_since));
            }
            let waited = self.source.wait(timeout);
            if let Some(file) = self.path.sink.file() {
                file.set_state(ReaderState::Busy);
            }
            let ready = match waited {
                Ok(ready) => ready,
                Err(linerate_ring::Error::InterfaceDown(_)) => {
                    down = true;
                    let _ = self.events.send(Event::Down(self.name.clone()));
                    continue;
                }
                Err(linerate_ring::Error::InterfaceGone(_)) if self.outlive_interface => {
                    let _ = self.events.send(Event::Gone(self.name.clone()));
                    break;
                }
                Err(linerate_ring::Error::InterfaceGone(_)) => {
                    // This name includes the namespace.
                    let gone = linerate_ring::Error::InterfaceGone(self.name.clone());
                    self.path.shared.fail(gone.into());
                    break;
                }
                Err(error) => {
                    self.path.shared.fail(error.into());
                    break;
                }
            };
            if let Some(notice) = self.source.take_notice() {
                let _ = self.events.send(Event::Notice(self.name.clone(), notice));
            }
            empty_waits = if ready { 0 } else { empty_waits.saturating_add(1) };
            if ready && std::mem::take(&mut down) {
                let _ = self.events.send(Event::Up(self.name.clone()));
            }
            let enough = self.round(&mut Round::new(&self.path), &mut scratch);
            let now = Instant::now();
            self.maintain(ledger, counters, &mut flushed, now, !ready);
            if enough {
                break;
            }
            if let Some(ending) = &ending
                && ending.is_over(ready, now)
            {
                break;
            }
        }
    }

    /// The last counts of a source that is stopped.
    fn finish(&mut self, counters: &ReaderCounters, ledger: &mut Ledger) {
        self.source.end();
        self.add_split_statistics();
        if let Some(router) = &mut self.path.router {
            ledger.elsewhere = router.refresh();
        }
        let filtered_here = self.path.filter.is_some();
        ledger.refresh(&self.source, counters, filtered_here, Instant::now(), true);
    }

    fn add_split_statistics(&mut self) {
        if let Some(splitter) = &mut self.splitter {
            self.path.shared.add_split(&splitter.take_statistics());
        }
    }

    /// Handles some batches; true if the capture is complete.
    fn round(&mut self, round: &mut Round, scratch: &mut Vec<u8>) -> bool {
        for _ in 0..BATCHES_PER_ROUND {
            let path = &mut self.path;
            // Decided once a batch, not for each frame.
            let drained = match &mut self.splitter {
                None => self.source.drain(|frame| path.handle(frame, round, scratch)),
                Some(splitter) => self.source.drain(|frame| {
                    !path.accepts(frame, round, scratch)
                        || splitter.split(frame, |segment| path.output(segment, round))
                }),
            };
            match drained {
                Drained::Nothing => return false,
                Drained::All(_) => {}
                Drained::Enough => return true,
            }
        }
        false
    }

    /// Between batches: sends old buffers to the writer and updates the counters.
    fn maintain(
        &mut self,
        ledger: &mut Ledger,
        counters: &ReaderCounters,
        flushed: &mut u64,
        now: Instant,
        idle: bool,
    ) {
        self.add_split_statistics();
        let PacketPath { sink, shared, filter, meter, router, .. } = &mut self.path;
        let requested = shared.flush.load(Relaxed);
        let max_age = if *flushed == requested { self.max_age } else { Duration::ZERO };
        *flushed = requested;
        let mut waited = Duration::ZERO;
        if let Some(file) = sink.file() {
            file.flush_older_than(max_age, now);
            waited = file.take_wait_time();
            if file.is_closed() {
                shared.stop.store(true, Relaxed);
            }
        }
        if let Some(meter) = meter {
            meter.maintain(now);
            waited += meter.take_wait_time();
            if meter.is_closed() {
                shared.stop.store(true, Relaxed);
            }
        }
        if !waited.is_zero() {
            ledger.attribute_to_writer();
        }
        let due = ledger.refreshed.is_none_or(|last| now.duration_since(last) >= COUNTERS_INTERVAL);
        if due {
            counters.set_fill(self.source.fill_level());
            if let Some(router) = router {
                ledger.elsewhere = router.refresh();
            }
        }
        if due || (idle && ledger.writer_since.is_some()) {
            ledger.refresh(&self.source, counters, filter.is_some(), now, idle);
        }
    }

    fn prepare_thread(&self) {
        if !self.cpus.is_empty()
            && let Err(error) = cpu::pin_to_any(&self.cpus)
        {
            tracing::warn!("cannot run a reader on the CPUs {:?}: {error}", self.cpus);
        }
        // Stopping an XDP source needs a new program at the end, and so the privilege; stopping a packet
        // socket does not.
        if self.drop_privileges && matches!(self.source, Source::Packet(_)) {
            crate::privilege::drop_all();
        }
    }
}

/// The end was requested.
struct Ending {
    stopped: StopOutcome,
    since: Instant,
}

impl Ending {
    fn is_over(&self, ready: bool, now: Instant) -> bool {
        let since = now.duration_since(self.since);
        match self.stopped {
            StopOutcome::Whole => !ready,
            // A packet ring retires its last block up to two timeouts later; `wait` then returns at once.
            StopOutcome::Late => !ready && since > LAST_BLOCK_TIME,
            StopOutcome::Open => !ready || since > MAX_DRAIN_TIME,
        }
    }
}

/// One reader's part of the drop ledger.
#[derive(Default)]
struct Ledger {
    refreshed: Option<Instant>,
    /// Frames of the source that count for other interfaces.
    elsewhere: u64,
    last: Drops,
    /// The losses before the reader had to wait for the writer.
    writer_since: Option<Drops>,
    /// The losses while it waited.
    moved: Drops,
}

impl Ledger {
    /// From the last refresh on, losses in the ring count for the writer.
    fn attribute_to_writer(&mut self) {
        self.writer_since.get_or_insert(self.last);
    }

    fn refresh(
        &mut self,
        source: &Source,
        counters: &ReaderCounters,
        filtered_here: bool,
        now: Instant,
        idle: bool,
    ) {
        self.refreshed = Some(now);
        let Ok(counts) = source.statistics() else { return };
        if let Some(before) = self.writer_since {
            self.moved = self.moved.plus(counts.drops.ring_losses_since(&before));
            // The ring is empty: later losses are not the writer's.
            self.writer_since = (!idle).then_some(counts.drops);
        }
        self.last = counts.drops;
        let drops = counts.drops.attributed_to_writer(&self.moved);
        counters.set(counts.received.saturating_sub(self.elsewhere), drops, filtered_here);
        if let Ok(queues) = source.queue_statistics() {
            let counts = |(queue, counts): (u32, SourceStatistics)| QueueCounts {
                queue,
                received: counts.received,
                drops: counts.drops,
            };
            counters.set_queues(queues.into_iter().map(counts).collect());
        }
    }
}
