//! IPFIX export (RFC 7011): records to a collector, over UDP, TCP or TLS.
//!
//! A thread has the socket, so a slow or unreachable collector delays no meter. Records wait in a bounded queue.
//! Records that find it full are counted, and options records tell the collector these counts (RFC 7011 section 4). UDP
//! is paced, because a collector's socket buffer has room for only tens of messages.

mod message;
mod session;
mod target;
#[cfg(test)]
mod tests;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub(crate) use self::target::is_ipfix;
pub use self::target::{Target, TlsFiles, Transport};

use self::message::{Encoder, Message, directions};
use self::session::{SendOutcome, Session};
use crate::FlowRecord;

/// How long a record waits for others of its message.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Records that are encoded and not sent, before the thread takes no more from its queue.
const MAX_UNSENT: usize = 4096;
/// Records that the thread takes from its queue at once.
const BATCH_RECORDS: usize = 256;
/// How long records wait for a collector that makes no progress.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an exporter that is dropped tries to send what is queued.
const DROP_TIMEOUT: Duration = Duration::from_millis(200);

/// Errors of this module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of a collector cannot be read.
    #[error("`{text}` is not a collector: {reason}")]
    Target {
        /// What was given.
        text: String,
        /// What is wrong.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("cannot send flow records to {target} over TLS: {reason}")]
    Tls {
        /// The collector.
        target: Target,
        /// The file, and what is wrong with it.
        reason: String,
    },
    /// The thread cannot start.
    #[error("cannot start the thread that sends flow records to {target}: {source}")]
    Thread {
        /// The collector.
        target: Target,
        /// Why.
        source: io::Error,
    },
}

/// How to export.
#[derive(Clone, Debug)]
pub struct Options {
    /// Records that wait for the collector. More are dropped and counted, unless the caller waits for room.
    pub queue_records: usize,
    /// How often UDP sends the templates and the statistics again. TCP sends the statistics as often. The name of the
    /// collector is looked up as often.
    pub refresh: Duration,
    /// Messages after which UDP sends the templates again, if that is earlier.
    pub refresh_messages: u64,
}

impl Default for Options {
    /// Templates every minute, for a collector that starts later; 16,384 records.
    fn default() -> Self {
        let refresh = Duration::from_secs(60);
        Self { queue_records: 16 << 10, refresh, refresh_messages: 1000 }
    }
}

/// What was exported and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Statistics {
    /// Messages sent.
    pub messages: u64,
    /// Their octets.
    pub octets: u64,
    /// Flow records in them. A biflow counts twice where each direction is a record.
    #[serde(rename = "records")]
    pub flows: u64,
    /// Packets of these flows.
    #[serde(skip)]
    pub flow_packets: u64,
    /// Octets of these flows.
    #[serde(skip)]
    pub flow_octets: u64,
    /// Flow records that were not sent: the queue was full, or they could not be sent until the end.
    #[serde(rename = "not_sent")]
    pub not_sent_flows: u64,
    /// Packets of these flows.
    #[serde(skip)]
    pub not_sent_packets: u64,
    /// Octets of these flows.
    #[serde(skip)]
    pub not_sent_octets: u64,
    /// Messages that the collector's host refused, because no socket was open there (ICMP port unreachable), or that a
    /// firewall refused. This is a lower bound: hosts limit the rate of ICMP errors, and a socket keeps only the last one.
    /// These messages count as sent, too.
    pub refused: u64,
    /// Connections made. Each after the first may have lost what was in the socket's buffer.
    pub connections: u64,
    /// The last error, until a message is sent in a new session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The statistics while the thread runs.
#[derive(Default)]
struct Counters {
    /// Records in the queue.
    queued: AtomicUsize,
    sent: [AtomicU64; 5],
    not_sent: [AtomicU64; 3],
    refused: AtomicU64,
    connections: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Counters {
    fn sent(&self, message: &Message) {
        let Message { bytes, flows, packets, octets } = message;
        let counts = [1, bytes.len() as u64, *flows, *packets, *octets];
        self.sent.iter().zip(counts).for_each(|(counter, n)| _ = counter.fetch_add(n, Relaxed));
    }

    fn not_sent<'r>(&self, records: impl IntoIterator<Item = &'r FlowRecord>) {
        for record in records {
            let (forward, reverse) = (&record.forward, &record.reverse);
            let counts = [1, forward.packets + reverse.packets, forward.octets + reverse.octets];
            let counters = self.not_sent.iter().zip(counts);
            counters.for_each(|(counter, n)| _ = counter.fetch_add(n, Relaxed));
        }
    }

    /// Messages sent.
    fn messages(&self) -> u64 {
        self.sent[0].load(Relaxed)
    }

    fn set_error(&self, error: Option<String>) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    fn statistics(&self) -> Statistics {
        let [messages, octets, flows, flow_packets, flow_octets] =
            self.sent.each_ref().map(|counter| counter.load(Relaxed));
        let [not_sent_flows, not_sent_packets, not_sent_octets] =
            self.not_sent.each_ref().map(|counter| counter.load(Relaxed));
        Statistics {
            messages,
            octets,
            flows,
            flow_packets,
            flow_octets,
            not_sent_flows,
            not_sent_packets,
            not_sent_octets,
            refused: self.refused.load(Relaxed),
            connections: self.connections.load(Relaxed),
            error: self.error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// Sends records to a collector.
pub struct Exporter {
    queue: Option<SyncSender<FlowRecord>>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
    /// When the thread gives up after [`Exporter::finish`].
    deadline: Arc<Mutex<Option<Instant>>>,
    target: Target,
    /// Records that fit into the queue.
    capacity: usize,
    /// Since when the queue is full and no message was sent, and the number of messages before.
    full: Mutex<Option<(Instant, u64)>>,
}

impl Exporter {
    /// Starts the thread, which first calls `prepare_thread`. The collector need not be there yet.
    ///
    /// # Errors
    /// [`Error::Thread`]; [`Error::Tls`] if a file is missing or has something else.
    pub fn start(target: Target, options: &Options, prepare_thread: fn()) -> Result<Self, Error> {
        let capacity = options.queue_records.max(1);
        let (queue, records) = sync_channel(capacity);
        let counters = Arc::<Counters>::default();
        let deadline = Arc::<Mutex<Option<Instant>>>::default();
        let worker = Worker {
            biflow: target.biflow,
            observation_domain_id: target.observation_domain_id,
            encoder: None,
            session: Session::new(target.clone(), options.refresh)?,
            is_failing: false,
            unsent: VecDeque::new(),
            counters: Arc::clone(&counters),
            deadline: Arc::clone(&deadline),
            options: options.clone(),
            refreshed: Instant::now(),
            refreshed_messages: 0,
        };
        let thread = thread::Builder::new().name("ipfix".into()).spawn(move || {
            prepare_thread();
            worker.run(&records);
        });
        let thread =
            Some(thread.map_err(|source| Error::Thread { target: target.clone(), source })?);
        let full = Mutex::default();
        Ok(Self { queue: Some(queue), counters, thread, deadline, target, capacity, full })
    }

    /// Queues a record without waiting. A record that finds the queue full is counted as not sent.
    pub fn try_send(&self, record: FlowRecord) {
        let Some(queue) = &self.queue else { return };
        self.counters.queued.fetch_add(1, Relaxed);
        if let Err(TrySendError::Full(record) | TrySendError::Disconnected(record)) =
            queue.try_send(record)
        {
            self.counters.queued.fetch_sub(1, Relaxed);
            self.counters.not_sent([&record]);
        }
    }

    /// Queues a record, and waits for room in the queue, if there is one caller at a time. If no message was sent for
    /// five seconds, records are counted as not sent until a message is sent again.
    pub fn send(&self, record: FlowRecord) {
        while !self.is_ready() {
            thread::sleep(Duration::from_millis(1));
        }
        self.try_send(record);
    }

    /// Whether the queue has room for a record. Also true if a caller has found it full for five seconds, and no
    /// message was sent: it is no use to wait.
    pub fn is_ready(&self) -> bool {
        let mut full = self.full.lock().unwrap_or_else(PoisonError::into_inner);
        if self.counters.queued.load(Relaxed) < self.capacity {
            *full = None;
            return true;
        }
        let sent = self.counters.messages();
        match *full {
            Some((since, before)) if before == sent => since.elapsed() >= STALL_TIMEOUT,
            _ => {
                *full = Some((Instant::now(), sent));
                false
            }
        }
    }

    /// The counts so far.
    pub fn statistics(&self) -> Statistics {
        self.counters.statistics()
    }

    /// The collector.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Sends the queued records and ends the session. Records that are not sent in `timeout`, or before five seconds
    /// pass without a message, count as not sent.
    pub fn finish(mut self, timeout: Duration) -> Statistics {
        self.end(timeout);
        self.counters.statistics()
    }

    fn end(&mut self, timeout: Duration) {
        let deadline = Instant::now().checked_add(timeout);
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.end(DROP_TIMEOUT);
    }
}

/// The thread.
struct Worker {
    biflow: bool,
    observation_domain_id: NonZeroU32,
    /// Of the session; `None` before the first.
    encoder: Option<Encoder>,
    session: Session,
    /// Records that are in no sent message, in the order of the encoder.
    unsent: VecDeque<FlowRecord>,
    counters: Arc<Counters>,
    deadline: Arc<Mutex<Option<Instant>>>,
    options: Options,
    refreshed: Instant,
    refreshed_messages: u64,
    /// No message was sent since an error.
    is_failing: bool,
}

impl Worker {
    fn run(mut self, records: &Receiver<FlowRecord>) {
        let mut flush = Instant::now() + MAX_WAIT;
        while !self.is_ending() {
            if !self.connect() && self.unsent.len() >= MAX_UNSENT {
                thread::sleep(self.session.wait().min(MAX_WAIT));
                continue;
            }
            let wait = flush.saturating_duration_since(Instant::now());
            let wait = if self.encoder.is_some() { wait } else { self.session.wait().min(wait) };
            match records.recv_timeout(wait) {
                Ok(record) => {
                    self.take(record);
                    records.try_iter().take(BATCH_RECORDS - 1).for_each(|record| self.take(record));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if Instant::now() >= flush {
                self.flush();
                if self.session.close_if_outdated() {
                    self.encoder = None;
                }
                flush = Instant::now() + MAX_WAIT;
            }
        }
        self.last(records);
    }

    /// What remains when the exporter ends: as much as the collector takes until the deadline.
    fn last(mut self, records: &Receiver<FlowRecord>) {
        let (mut sent, mut since) = (self.counters.messages(), Instant::now());
        loop {
            if self.connect() {
                while !self.is_over()
                    && let Ok(record) = records.try_recv()
                {
                    self.take(record);
                }
            }
            if self.encoder.is_some() && self.counters.queued.load(Relaxed) == 0 {
                self.flush();
                if self.unsent.is_empty() {
                    self.send_statistics();
                    return;
                }
            }
            if self.counters.messages() != sent {
                (sent, since) = (self.counters.messages(), Instant::now());
            }
            if self.is_over() || since.elapsed() >= STALL_TIMEOUT {
                break;
            }
            thread::sleep(self.session.wait().min(Duration::from_millis(100)));
        }
        self.counters.not_sent(&self.unsent);
        records.try_iter().for_each(|record| self.counters.not_sent([&record]));
    }

    fn deadline(&self) -> Option<Instant> {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_ending(&self) -> bool {
        self.deadline().is_some()
    }

    fn is_over(&self) -> bool {
        self.deadline().is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Makes sure that there is a session. A new one begins with the records that the last one did not send.
    fn connect(&mut self) -> bool {
        if self.encoder.is_none() && !self.session.wait().is_zero() {
            return false;
        }
        match self.session.connect() {
            Ok(false) => {}
            Ok(true) => {
                self.counters.connections.fetch_add(1, Relaxed);
                let max_len = self.session.max_message_len();
                self.encoder = Some(Encoder::new(self.observation_domain_id, max_len));
                (self.refreshed, self.refreshed_messages) = (Instant::now(), 0);
                for record in std::mem::take(&mut self.unsent) {
                    self.encode(record);
                }
            }
            Err(error) => self.fail(&error),
        }
        self.encoder.is_some()
    }

    /// Encodes a record, or one for each of its directions.
    fn take(&mut self, record: FlowRecord) {
        self.counters.queued.fetch_sub(1, Relaxed);
        if self.biflow {
            self.encode(record);
        } else {
            directions(&record).into_iter().flatten().for_each(|one| self.encode(one));
        }
    }

    /// Encodes a record; sends the message before it if that is full.
    fn encode(&mut self, record: FlowRecord) {
        let full = self.encoder.as_mut().and_then(|encoder| encoder.record(&record, now()));
        // The message has the records before this one.
        if let Some(message) = full {
            self.transmit(&message);
        }
        self.unsent.push_back(record);
    }

    /// Sends the queued records, and templates and statistics when they are due.
    fn flush(&mut self) {
        let due = self.refreshed.elapsed() >= self.options.refresh
            || self.refreshed_messages >= self.options.refresh_messages;
        let Some(encoder) = &mut self.encoder else { return };
        let (now, mut messages) = (now(), Vec::new());
        if due && !self.session.is_stream() {
            messages.extend(encoder.refresh(now));
        }
        messages.extend(encoder.finish(now));
        if due {
            // Before the templates leave: if they cannot be sent, they are due again.
            (self.refreshed, self.refreshed_messages) = (Instant::now(), 0);
        }
        messages.iter().for_each(|message| self.transmit(message));
        if due {
            self.send_statistics();
        }
    }

    fn send_statistics(&mut self) {
        let statistics = self.counters.statistics();
        let message =
            self.encoder.as_mut().and_then(|encoder| encoder.statistics(&statistics, now()));
        if let Some(message) = message {
            self.transmit(&message);
        }
    }

    fn transmit(&mut self, message: &Message) {
        if self.encoder.is_none() {
            // The session broke at an earlier message: the next one begins with these records.
            return;
        }
        let flows = message.flows as usize;
        match self.session.send(&message.bytes) {
            SendOutcome::Sent { refused } => {
                self.unsent.drain(..flows);
                self.counters.sent(message);
                self.refreshed_messages += 1;
                if std::mem::take(&mut self.is_failing) {
                    self.counters.set_error(None);
                }
                if let Some(error) = refused {
                    self.counters.refused.fetch_add(1, Relaxed);
                    self.counters.set_error(Some(error.to_string()));
                }
            }
            SendOutcome::Failed(error) => {
                if !self.session.is_stream() && error.kind() == io::ErrorKind::ConnectionRefused {
                    self.counters.refused.fetch_add(1, Relaxed);
                }
                self.fail(&error);
            }
        }
    }

    /// There is no session. The next one begins with the records that were not sent.
    fn fail(&mut self, error: &io::Error) {
        self.counters.set_error(Some(error.to_string()));
        (self.encoder, self.is_failing) = (None, true);
    }
}

/// Nanoseconds since 1970 (UTC).
fn now() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}
