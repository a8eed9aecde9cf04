//! [`Exporter`]: a thread that writes the records of several meters.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::file::{Files, FilesOptions, FilesStatistics};
use crate::meter::{Flow, Meter, MeterOptions, MeterStatistics, MeteredPacket};
use crate::{FlowRecord, Result};

/// Flows that a meter sends at once.
const BATCH: usize = 1024;

/// Batches on their way. A meter that finds no room for another one waits.
const QUEUE: usize = 64;

/// How often files are looked at.
const MAINTENANCE: Duration = Duration::from_millis(500);

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
    Flows(Vec<Flow>),
}

/// What was metered and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportStatistics {
    /// The sum of all meters.
    pub meter: MeterStatistics,
    /// What is in whole files.
    pub files: FilesStatistics,
}

/// What meters and the thread share.
#[derive(Default)]
struct Shared {
    meters: Mutex<Vec<MeterStatistics>>,
    files: Mutex<FilesStatistics>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the records of meters to files.
pub struct Exporter {
    thread: JoinHandle<Result<()>>,
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
}

impl Exporter {
    /// Prepares the folder and starts the thread, which first calls `prepare_thread`. Each record says that flows are
    /// metered with this probability.
    ///
    /// # Errors
    ///
    /// As [`Files::new`]; [`crate::Error::Io`] if no thread can be started.
    pub fn start(
        options: FilesOptions,
        interfaces: Vec<InterfaceName>,
        sampling_probability: f64,
        prepare_thread: fn(),
    ) -> Result<Self> {
        let folder = options.folder.clone();
        let files = Files::new(options)?;
        let shared = Arc::new(Shared::default());
        *lock(&shared.files) = files.statistics();
        let (sender, receiver) = sync_channel(QUEUE);
        let worker =
            Worker { files, interfaces, sampling_probability, shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new().name("flows".into());
        let thread = thread
            .spawn(move || {
                prepare_thread();
                worker.run(&receiver)
            })
            .map_err(crate::Error::io("start a thread for", folder))?;
        Ok(Self { thread, sender, shared })
    }

    /// A meter whose flows this thread writes.
    pub fn meter(&self, options: &MeterOptions) -> ExportingMeter {
        let mut meters = lock(&self.shared.meters);
        meters.push(MeterStatistics::default());
        ExportingMeter {
            meter: Meter::new(options),
            batch: Vec::with_capacity(BATCH),
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
        let meters = lock(&self.shared.meters);
        let meter = meters.iter().copied().fold(MeterStatistics::default(), MeterStatistics::plus);
        ExportStatistics { meter, files: *lock(&self.shared.files) }
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
        let meters = lock(&shared.meters);
        let meter = meters.iter().copied().fold(MeterStatistics::default(), MeterStatistics::plus);
        (ExportStatistics { meter, files: *lock(&shared.files) }, outcome)
    }
}

/// A meter of one thread. Its drop ends all flows.
pub struct ExportingMeter {
    meter: Meter,
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
    /// Counts a packet. If the records before it are not written yet, and the queue is full, this waits.
    #[inline]
    pub fn packet(&mut self, packet: &MeteredPacket<'_>) {
        let batch = &mut self.batch;
        self.meter.packet(packet, |flow| batch.push(*flow));
        if self.batch.len() >= BATCH {
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
        if now.duration_since(self.sent) >= MAINTENANCE || self.batch.len() >= BATCH {
            self.send();
        }
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
            let full = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
            self.closed |= self.sender.send(Message::Flows(full)).is_err();
            self.waited += self.sent.elapsed();
        }
    }
}

impl Drop for ExportingMeter {
    fn drop(&mut self) {
        let Self { meter, batch, .. } = self;
        meter.finish(|flow| batch.push(*flow));
        self.send();
    }
}

struct Worker {
    files: Files,
    interfaces: Vec<InterfaceName>,
    sampling_probability: f64,
    shared: Arc<Shared>,
}

impl Worker {
    fn run(mut self, receiver: &Receiver<Message>) -> Result<()> {
        loop {
            match receiver.recv_timeout(MAINTENANCE) {
                Ok(Message::Interface(interface)) => self.interfaces.push(interface),
                Ok(Message::Flows(flows)) => {
                    for flow in &flows {
                        let record = self.record(flow);
                        self.files.push(record)?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.files.maintain(Instant::now())?;
            *lock(&self.shared.files) = self.files.statistics();
        }
        let shared = self.shared;
        *lock(&shared.files) = self.files.finish()?;
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
