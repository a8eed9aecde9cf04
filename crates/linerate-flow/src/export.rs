//! [`RecordWriter`]: the records of several meters, on their way to files and collectors.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use linerate_pcapfile::{ByteRange, PacketLocation};
use serde::Serialize;

use crate::meter::{Flow, Meter, MeterOptions, MeterStatistics, MeteredPacket};
use crate::outputs::{OutputOptions, OutputStatistics, Outputs};
use crate::writer::{Backlog, End, Writer, lock};
use crate::{FlowRecord, Result};

/// Flows that a meter sends at once.
const BATCH_FLOWS: usize = 1024;

/// Batches in the queue of the thread. A meter that finds it full waits.
const QUEUE_BATCHES: usize = 64;

/// Sweeps pause while this many flows are queued. The rest of the queue is for flows that packets end.
const SWEEP_LIMIT: usize = QUEUE_BATCHES * BATCH_FLOWS / 2;

/// The most flows that wait for collectors. More than these do not wait, so memory is bounded.
const MAX_WAITING_FLOWS: usize = QUEUE_BATCHES * BATCH_FLOWS;

/// How long a meter that ends waits for the queue, if the thread writes nothing: longer than it waits for a collector.
const STALL_TIMEOUT: Duration = Duration::from_secs(7);

/// How long the end of a meter waits for collectors that make progress.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// How often the thread checks whether files are due.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(500);

/// How often the thread looks for packets that are not written yet, and whether collectors can take more.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// How often a meter that ends looks at the queue.
const QUEUE_INTERVAL: Duration = Duration::from_millis(1);

/// The end of a flow's packets is rounded up to a multiple of this many bytes. This makes the files of records
/// smaller, and a disk reads whole pages anyway.
const END_ALIGNMENT: u64 = 4096;

/// Locates packets in packet files, by the positions that the meter was given.
pub trait PacketLocator: Send + Sync {
    /// The file of the first packet, or an earlier file. `None` if none of them is in a file; pending until they are
    /// written.
    fn locate(&self, byte_range: ByteRange) -> Poll<Option<PacketLocation>>;
}

/// Locates the packets of one meter, if they are in files.
type Locator = Option<Arc<dyn PacketLocator>>;

/// An interface that packets are metered at.
#[derive(Clone, Debug, Default)]
pub struct InterfaceName {
    /// Its name.
    pub name: Option<Arc<str>>,
    /// Its index.
    pub index: Option<u32>,
}

/// What meters send.
enum Message {
    /// The interface of the next number.
    Interface(InterfaceName),
    Flows(Locator, Vec<Flow>),
}

/// What was metered, written and sent; serialises to the command's JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportStatistics {
    /// The sum of all meters.
    #[serde(flatten)]
    pub meter: MeterStatistics,
    /// The sum of all files, and each collector.
    #[serde(flatten)]
    pub output: OutputStatistics,
}

/// What meters and the thread share.
#[derive(Default)]
struct Shared {
    meters: Mutex<Vec<MeterStatistics>>,
    /// Meters wait for collectors: they read a file.
    blocking: AtomicBool,
    /// Flows that meters submitted to the thread, and those that it has output.
    submitted: AtomicUsize,
    completed: AtomicUsize,
    /// [`SWEEP_LIMIT`], and a batch for each meter.
    sweep_limit: AtomicUsize,
}

impl Shared {
    fn statistics(&self, output: OutputStatistics) -> ExportStatistics {
        let meters = lock(&self.meters);
        let meter = meters.iter().copied().fold(MeterStatistics::default(), MeterStatistics::plus);
        ExportStatistics { meter, output }
    }

    /// Whether flows that need not be exported now should wait.
    fn is_congested(&self) -> bool {
        let completed = self.completed.load(Relaxed);
        let queued = self.submitted.load(Relaxed).saturating_sub(completed);
        queued >= self.sweep_limit.load(Relaxed) && !self.blocking.load(Relaxed)
    }
}

/// Writes the records of meters to files, and sends them to collectors.
pub struct RecordWriter {
    writer: Writer<Message>,
    shared: Arc<Shared>,
}

impl RecordWriter {
    /// Starts the writer, as [`Writer::start`]. Each record has this sampling probability.
    ///
    /// # Errors
    /// As [`Writer::start`].
    pub fn start(
        options: &OutputOptions,
        interfaces: Vec<InterfaceName>,
        sampling_probability: f64,
        prepare_thread: fn(),
        warn: fn(&str),
    ) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let backlog = WaitingFlows {
            interfaces,
            sampling_probability,
            #[cfg(feature = "parquet")]
            has_community_ids: options.groups.contains(crate::schema::Group::CommunityId),
            shared: Arc::clone(&shared),
            batches: VecDeque::new(),
            flows: 0,
        };
        let writer = Writer::start(options, backlog, QUEUE_BATCHES, prepare_thread, warn)?;
        Ok(Self { writer, shared })
    }

    /// From now on meters wait for slow collectors, as they can when packets come from a file.
    pub fn set_blocking(&self) {
        self.shared.blocking.store(true, Relaxed);
    }

    /// A meter whose flows this thread exports. `packet_locator` locates their packets.
    pub fn meter(
        &self,
        options: &MeterOptions,
        packet_locator: Option<Arc<dyn PacketLocator>>,
    ) -> ExportingMeter {
        let mut meters = lock(&self.shared.meters);
        meters.push(MeterStatistics::default());
        let number = meters.len() - 1;
        self.shared.sweep_limit.store(SWEEP_LIMIT + meters.len() * BATCH_FLOWS, Relaxed);
        let mut meter = Meter::new(options);
        let shared = Arc::clone(&self.shared);
        meter.pause_sweeps_while(move || shared.is_congested());
        ExportingMeter {
            meter,
            queue: Queue {
                packet_locator,
                batch: Vec::with_capacity(BATCH_FLOWS),
                sender: self.writer.queue(),
                end: Arc::clone(self.writer.end()),
                shared: Arc::clone(&self.shared),
                waited: Duration::ZERO,
                closed: false,
            },
            number,
            published: Instant::now(),
            latest: None,
        }
    }

    /// The counts now.
    pub fn statistics(&self) -> ExportStatistics {
        self.shared.statistics(self.writer.statistics())
    }

    /// Waits until everything is written. All meters have ended before.
    ///
    /// # Errors
    /// As [`Writer::finish`].
    pub fn finish(self) -> (ExportStatistics, Result<()>) {
        let (output, outcome) = self.writer.finish();
        (self.shared.statistics(output), outcome)
    }
}

/// A meter of one thread. Its drop ends all flows. It waits for slow collectors, at most 20 seconds.
pub struct ExportingMeter {
    meter: Meter,
    queue: Queue,
    number: usize,
    /// When the counts were published last.
    published: Instant,
    /// The time of the packets when it was looked at, and when that was.
    latest: Option<(u64, Instant)>,
}

/// From a meter to the thread.
struct Queue {
    packet_locator: Locator,
    batch: Vec<Flow>,
    sender: SyncSender<Message>,
    end: Arc<End>,
    shared: Arc<Shared>,
    waited: Duration,
    /// The thread has ended.
    closed: bool,
}

impl Queue {
    fn push(&mut self, flow: &Flow) {
        self.shared.submitted.fetch_add(1, Relaxed);
        self.batch.push(flow.clone());
        if self.batch.len() >= BATCH_FLOWS {
            self.send();
        }
    }

    #[cold]
    fn send(&mut self) {
        if !self.batch.is_empty() {
            let mut full = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_FLOWS));
            if full.len() < BATCH_FLOWS / 2 {
                // Many small batches wait when a meter ends and collectors are slow.
                full.shrink_to_fit();
            }
            let message = Message::Flows(self.packet_locator.clone(), full);
            match self.sender.try_send(message) {
                Ok(()) => {}
                Err(TrySendError::Disconnected(_)) => self.closed = true,
                Err(TrySendError::Full(message)) => {
                    let since = Instant::now();
                    self.closed |= self.sender.send(message).is_err();
                    self.waited += since.elapsed();
                }
            }
        }
    }

    /// Waits while the queue is congested. False if it still is at the deadline, or if the thread writes nothing for
    /// some time.
    fn wait_until_clear(&mut self, deadline: Instant) -> bool {
        let completed = |shared: &Shared| shared.completed.load(Relaxed);
        let (mut before, mut since) = (completed(&self.shared), Instant::now());
        while self.shared.is_congested() {
            // It may be these that congest it.
            self.send();
            let now = Instant::now();
            if completed(&self.shared) != before {
                (before, since) = (completed(&self.shared), now);
            }
            if self.closed || now >= deadline || now.duration_since(since) >= STALL_TIMEOUT {
                return false;
            }
            std::thread::sleep(QUEUE_INTERVAL);
        }
        true
    }
}

impl ExportingMeter {
    /// Counts a packet, at the latest when [`ExportingMeter::publish`] is called. If the records before it are not
    /// written yet, and the queue is full, this waits.
    #[inline]
    pub fn push(&mut self, packet: &MeteredPacket<'_>) {
        let queue = &mut self.queue;
        self.meter.push(packet, |flow| queue.push(flow));
    }

    /// Adds an interface of a file, after those that the record writer knows.
    pub fn add_interface(&mut self, interface: InterfaceName) {
        // An error means that the thread has ended, which the record writer tells.
        let _ = self.queue.sender.send(Message::Interface(interface));
    }

    /// Ends flows that were idle for long enough, and publishes the counts; to be called between batches of packets.
    pub fn maintain(&mut self, now: Instant) {
        self.flush();
        // The clock of the packets may be another one than the host's: that of a network card.
        let time = self.meter.time();
        if self.latest.is_none_or(|(latest, _)| latest != time) {
            self.latest = Some((time, now));
        } else if let Some((_, since)) = self.latest {
            let idle = now.duration_since(since).as_nanos() as u64;
            let queue = &mut self.queue;
            let time = time.saturating_add(idle);
            self.meter.advance(time, |flow| queue.push(flow));
            self.latest = Some((self.meter.time(), now));
        }
        self.publish(now);
    }

    /// Sends the flows that have ended, and publishes the counts, where the last time is long ago.
    pub fn publish(&mut self, now: Instant) {
        self.flush();
        if now.duration_since(self.published) >= MAINTENANCE_INTERVAL {
            self.published = now;
            self.send();
        }
    }

    fn flush(&mut self) {
        let queue = &mut self.queue;
        self.meter.flush(|flow| queue.push(flow));
    }

    fn send(&mut self) {
        lock(&self.queue.shared.meters)[self.number] = self.meter.statistics();
        self.queue.send();
    }

    /// Whether records cannot be written any more. The record writer tells why when it finishes.
    pub fn is_closed(&self) -> bool {
        self.queue.closed
    }

    /// How long it has waited for the thread since the last call.
    pub fn take_wait_time(&mut self) -> Duration {
        std::mem::take(&mut self.queue.waited)
    }
}

impl Drop for ExportingMeter {
    fn drop(&mut self) {
        let Self { meter, queue, .. } = self;
        let deadline = Instant::now() + END_TIMEOUT;
        // The last meter that ends extends the time.
        queue.end.begin(END_TIMEOUT);
        let mut may_wait = true;
        meter.finish(|flow| {
            may_wait = may_wait && queue.wait_until_clear(deadline);
            queue.push(flow);
        });
        self.send();
    }
}

/// Flows that wait for the queues of collectors, or until their packets are written. No more than
/// [`MAX_WAITING_FLOWS`] wait for collectors; the packet writer bounds the others.
struct WaitingFlows {
    interfaces: Vec<InterfaceName>,
    sampling_probability: f64,
    #[cfg(feature = "parquet")]
    has_community_ids: bool,
    shared: Arc<Shared>,
    batches: VecDeque<(Locator, std::vec::IntoIter<Flow>)>,
    flows: usize,
}

impl Drop for WaitingFlows {
    /// No meter waits for a thread that has ended.
    fn drop(&mut self) {
        self.shared.sweep_limit.store(usize::MAX, Relaxed);
    }
}

impl Backlog for WaitingFlows {
    type Message = Message;

    fn add(&mut self, message: Message) {
        match message {
            Message::Interface(interface) => self.interfaces.push(interface),
            Message::Flows(packet_locator, flows) => {
                self.flows += flows.len();
                self.batches.push_back((packet_locator, flows.into_iter()));
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    fn interval(&self) -> Duration {
        if self.is_empty() { MAINTENANCE_INTERVAL } else { RETRY_INTERVAL }
    }

    /// Outputs the records of flows up to the first whose packets are not written, or that waits for a collector. At
    /// last none waits for collectors.
    fn write(&mut self, outputs: &mut Outputs, end: &End, has_ended: bool) {
        let is_late = has_ended && end.time_left().unwrap_or_default().is_zero();
        let blocking = self.shared.blocking.load(Relaxed) && !is_late;
        while let Some((packet_locator, flows)) = self.batches.front_mut() {
            let Some(flow) = flows.as_slice().first() else {
                self.batches.pop_front();
                continue;
            };
            let interface = flow.interface();
            let located = packet_locator.as_ref().zip(flow.byte_range());
            let located = located.map(|(files, byte_range)| files.locate(byte_range));
            let Poll::Ready(packets) = located.unwrap_or(Poll::Ready(None)) else { break };
            let may_wait = !blocking && !is_late && self.flows <= MAX_WAITING_FLOWS;
            if may_wait && !outputs.is_ready() {
                break;
            }
            let packets = packets.map(|packets| PacketLocation {
                end: packets.end.map(|end| end.next_multiple_of(END_ALIGNMENT)),
                ..packets
            });
            let record = flow.record();
            flows.next();
            self.flows -= 1;
            let record = FlowRecord { packets, ..self.complete(interface, record) };
            outputs.push(&record, blocking);
            self.shared.completed.fetch_add(1, Relaxed);
        }
    }
}

impl WaitingFlows {
    /// The record with what the meter does not know.
    fn complete(&self, interface: u16, mut record: FlowRecord) -> FlowRecord {
        #[cfg(feature = "parquet")]
        if self.has_community_ids {
            record.details.community_id = crate::community_id::community_id(&record.key);
        }
        let interface = self.interfaces.get(usize::from(interface));
        record.ingress_interface = interface.and_then(|interface| interface.index);
        record.interface_name = interface.and_then(|interface| interface.name.clone());
        record.sampling_probability = self.sampling_probability;
        record
    }
}
