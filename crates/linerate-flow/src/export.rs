//! [`Exporter`]: a thread that writes the records of several meters to files, and sends them to collectors.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::meter::{ByteRange, Flow, Meter, MeterOptions, MeterStatistics, MeteredPacket};
use crate::outputs::{OutputOptions, OutputStatistics, Outputs};
use crate::{FlowRecord, PacketLocation, Result};

/// Flows that a meter sends at once.
const BATCH_FLOWS: usize = 1024;

/// Batches on their way. A meter that finds no room for another one waits.
const QUEUE_BATCHES: usize = 64;

/// How often the thread checks whether files are due.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(500);

/// How often the thread looks for packets that are not written yet.
const LOCATE_INTERVAL: Duration = Duration::from_millis(20);

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

/// What was metered, written and sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportStatistics {
    /// The sum of all meters.
    pub meter: MeterStatistics,
    /// The sum of all files, and each collector.
    pub output: OutputStatistics,
}

/// What meters and the thread share.
#[derive(Default)]
struct Shared {
    meters: Mutex<Vec<MeterStatistics>>,
    output: Mutex<OutputStatistics>,
    /// Meters wait for collectors: they read a file, or have ended.
    blocking: AtomicBool,
}

impl Shared {
    fn statistics(&self) -> ExportStatistics {
        let meters = lock(&self.meters);
        let meter = meters.iter().copied().fold(MeterStatistics::default(), MeterStatistics::plus);
        ExportStatistics { meter, output: lock(&self.output).clone() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the records of meters to files, and sends them to collectors.
pub struct Exporter {
    thread: JoinHandle<Result<()>>,
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
}

impl Exporter {
    /// Prepares the outputs and starts their threads, which first call `prepare_thread`. Each record has this sampling
    /// probability.
    ///
    /// # Errors
    ///
    /// As [`Outputs::open`]; [`crate::Error::Thread`].
    pub fn start(
        options: &OutputOptions,
        interfaces: Vec<InterfaceName>,
        sampling_probability: f64,
        prepare_thread: fn(),
    ) -> Result<Self> {
        let outputs = Outputs::open(options, prepare_thread)?;
        let shared = Arc::new(Shared::default());
        *lock(&shared.output) = outputs.statistics();
        let (sender, receiver) = sync_channel(QUEUE_BATCHES);
        let worker = Worker {
            outputs,
            interfaces,
            sampling_probability,
            shared: Arc::clone(&shared),
            waiting: VecDeque::new(),
        };
        let thread = std::thread::Builder::new().name("flows".into());
        let thread = thread
            .spawn(move || {
                prepare_thread();
                worker.run(&receiver)
            })
            .map_err(crate::Error::Thread)?;
        Ok(Self { thread, sender, shared })
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
        ExportingMeter {
            meter: Meter::new(options),
            packet_locator,
            batch: Vec::with_capacity(BATCH_FLOWS),
            sent: Instant::now(),
            sender: SyncSender::clone(&self.sender),
            shared: Arc::clone(&self.shared),
            number: meters.len() - 1,
            latest: None,
            waited: Duration::ZERO,
            closed: false,
        }
    }

    /// The counts now.
    pub fn statistics(&self) -> ExportStatistics {
        self.shared.statistics()
    }

    /// Waits until everything is written. All meters have ended before.
    ///
    /// # Errors
    ///
    /// The first that writing met; everything after it is not written.
    pub fn finish(self) -> (ExportStatistics, Result<()>) {
        let Self { thread, sender, shared } = self;
        drop(sender);
        let outcome = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (shared.statistics(), outcome)
    }
}

/// A meter of one thread. Its drop ends all flows.
pub struct ExportingMeter {
    meter: Meter,
    packet_locator: Locator,
    batch: Vec<Flow>,
    /// When the last batch was sent.
    sent: Instant,
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
    number: usize,
    /// The time of the packets when it was looked at, and when that was.
    latest: Option<(u64, Instant)>,
    waited: Duration,
    /// The thread has ended: it could not write.
    closed: bool,
}

impl ExportingMeter {
    /// Counts a packet, at the latest when [`ExportingMeter::publish`] is called. If the records before it are not
    /// written yet, and the queue is full, this waits.
    #[inline]
    pub fn packet(&mut self, packet: &MeteredPacket<'_>) {
        let batch = &mut self.batch;
        self.meter.push(packet, |flow| batch.push(*flow));
        if self.batch.len() >= BATCH_FLOWS {
            self.send();
        }
    }

    /// Adds an interface of a file, after those that the exporter knows.
    pub fn interface(&mut self, interface: InterfaceName) {
        // An error means that the thread has ended, which the exporter tells.
        let _ = self.sender.send(Message::Interface(interface));
    }

    /// Ends flows that were silent for long enough, and publishes the counts; to be called between batches of packets.
    pub fn maintain(&mut self, now: Instant) {
        self.flush();
        // The clock of the packets may be another one than the host's: that of a network card.
        let time = self.meter.time();
        if self.latest.is_none_or(|(latest, _)| latest != time) {
            self.latest = Some((time, now));
        } else if let Some((_, since)) = self.latest {
            let silent = now.duration_since(since).as_nanos() as u64;
            let batch = &mut self.batch;
            let time = time.saturating_add(silent);
            self.meter.advance(time, |flow| batch.push(*flow));
            self.latest = Some((self.meter.time(), now));
        }
        self.publish(now);
    }

    /// Sends the flows that have ended, and publishes the counts, where the last time is long ago.
    pub fn publish(&mut self, now: Instant) {
        self.flush();
        if now.duration_since(self.sent) >= MAINTENANCE_INTERVAL || self.batch.len() >= BATCH_FLOWS
        {
            self.send();
        }
    }

    fn flush(&mut self) {
        let batch = &mut self.batch;
        self.meter.flush(|flow| batch.push(*flow));
    }

    /// Whether records cannot be written any more. The exporter tells why when it finishes.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// How long it has waited for the thread since the last call.
    pub fn take_wait_time(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    #[cold]
    fn send(&mut self) {
        lock(&self.shared.meters)[self.number] = self.meter.statistics();
        self.sent = Instant::now();
        if !self.batch.is_empty() {
            let full = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_FLOWS));
            let message = Message::Flows(self.packet_locator.clone(), full);
            self.closed |= self.sender.send(message).is_err();
            self.waited += self.sent.elapsed();
        }
    }
}

impl Drop for ExportingMeter {
    fn drop(&mut self) {
        let Self { meter, batch, shared, .. } = self;
        shared.blocking.store(true, Relaxed);
        meter.finish(|flow| batch.push(*flow));
        self.send();
    }
}

struct Worker {
    outputs: Outputs,
    interfaces: Vec<InterfaceName>,
    sampling_probability: f64,
    shared: Arc<Shared>,
    /// Flows whose packets may not be written yet. Their number is bounded by what the packet writer holds back and
    /// what meters export meanwhile.
    waiting: VecDeque<(Locator, std::vec::IntoIter<Flow>)>,
}

impl Worker {
    fn run(mut self, receiver: &Receiver<Message>) -> Result<()> {
        let mut connected = true;
        while connected || !self.waiting.is_empty() {
            let interval =
                if self.waiting.is_empty() { MAINTENANCE_INTERVAL } else { LOCATE_INTERVAL };
            match receiver.recv_timeout(interval) {
                Ok(Message::Interface(interface)) => self.interfaces.push(interface),
                Ok(Message::Flows(packet_locator, flows)) => {
                    self.waiting.push_back((packet_locator, flows.into_iter()));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    if !std::mem::take(&mut connected) {
                        std::thread::sleep(LOCATE_INTERVAL);
                    }
                }
            }
            self.write()?;
            self.outputs.maintain(Instant::now())?;
            *lock(&self.shared.output) = self.outputs.statistics();
        }
        let (statistics, outcome) = self.outputs.finish();
        *lock(&self.shared.output) = statistics;
        outcome
    }

    /// Outputs the records of flows up to the first whose packets are not written.
    fn write(&mut self) -> Result<()> {
        while let Some((packet_locator, flows)) = self.waiting.front_mut() {
            let Some(flow) = flows.as_slice().first().copied() else {
                self.waiting.pop_front();
                continue;
            };
            let located = packet_locator.as_ref().zip(flow.byte_range());
            let located = located.map(|(files, byte_range)| files.locate(byte_range));
            let Poll::Ready(packets) = located.unwrap_or(Poll::Ready(None)) else { break };
            flows.next();
            let packets = packets.map(|packets| PacketLocation {
                end: packets.end.map(|end| end.next_multiple_of(END_ALIGNMENT)),
                ..packets
            });
            let record = FlowRecord { packets, ..self.record(&flow) };
            self.outputs.push(&record, self.shared.blocking.load(Relaxed))?;
        }
        Ok(())
    }

    fn record(&self, flow: &Flow) -> FlowRecord {
        let interface = self.interfaces.get(usize::from(flow.interface()));
        FlowRecord {
            ingress_interface: interface.and_then(|interface| interface.index),
            interface_name: interface.and_then(|interface| interface.name.clone()),
            sampling_probability: self.sampling_probability,
            ..flow.record()
        }
    }
}
