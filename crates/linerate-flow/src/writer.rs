//! [`Writer`]: the thread that writes records to files, and sends them to collectors.
//!
//! What waits for it is a [`Backlog`]: the flows of a capture wait until their packets are written, the sessions of an
//! accelerator until a batch of them is complete and can be committed.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::outputs::{OutputOptions, OutputStatistics, Outputs};
use crate::{Error, Result};

/// What is left to collectors of the end, at least, when the backlog is written.
const MIN_COLLECTOR_TIMEOUT: Duration = Duration::from_secs(5);

/// What waits to be written.
pub trait Backlog: Send + 'static {
    /// What is sent to the thread.
    type Message: Send + 'static;

    /// Adds a message.
    fn add(&mut self, message: Self::Message);

    /// Whether nothing waits.
    fn is_empty(&self) -> bool;

    /// Whether messages have to wait in the queue. It does not matter at the end.
    fn is_full(&self) -> bool {
        false
    }

    /// The time between two calls of [`Backlog::write`], at most.
    fn interval(&self) -> Duration;

    /// Outputs what need not wait any longer. `has_ended` says that no message follows.
    fn write(&mut self, outputs: &mut Outputs, end: &End, has_ended: bool);
}

/// Until when the end waits for collectors.
#[derive(Debug, Default)]
pub struct End(Mutex<Option<Instant>>);

impl End {
    /// The end has begun, and waits as long as this.
    pub fn begin(&self, timeout: Duration) {
        *lock(&self.0) = Some(Instant::now() + timeout);
    }

    /// How long it still waits; `None` before the end.
    pub fn time_left(&self) -> Option<Duration> {
        lock(&self.0).map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Whether no time is left.
    pub fn is_over(&self) -> bool {
        self.time_left().is_some_and(|left| left.is_zero())
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread, and the queue of messages to it.
#[derive(Debug)]
pub struct Writer<M> {
    thread: JoinHandle<Result<()>>,
    queue: SyncSender<M>,
    output: Arc<Mutex<OutputStatistics>>,
    end: Arc<End>,
}

impl<M: Send + 'static> Writer<M> {
    /// Prepares the outputs and starts their threads, which first call `prepare_thread`. The queue has room for this
    /// many messages. `warn` gets a warning for each collector that cannot be reached at the start.
    ///
    /// # Errors
    /// As [`Outputs::open`]; [`Error::Thread`].
    pub fn start(
        options: &OutputOptions,
        backlog: impl Backlog<Message = M>,
        queue_messages: usize,
        prepare_thread: fn(),
        warn: fn(&str),
    ) -> Result<Self> {
        let outputs = Outputs::open(options, prepare_thread)?;
        let output = Arc::new(Mutex::new(outputs.statistics()));
        let (queue, received) = sync_channel(queue_messages);
        let end = Arc::<End>::default();
        let worker =
            Worker { backlog, outputs, output: Arc::clone(&output), end: Arc::clone(&end), warn };
        let run = move || {
            prepare_thread();
            worker.run(&received)
        };
        let thread = std::thread::Builder::new().name("flows".into()).spawn(run);
        Ok(Self { thread: thread.map_err(Error::Thread)?, queue, output, end })
    }

    /// The queue. The thread ends when all its senders are dropped.
    pub fn queue(&self) -> SyncSender<M> {
        SyncSender::clone(&self.queue)
    }

    /// The end of this thread.
    pub fn end(&self) -> &Arc<End> {
        &self.end
    }

    /// The counts now.
    pub fn statistics(&self) -> OutputStatistics {
        lock(&self.output).clone()
    }

    /// Waits until everything is written. The other senders of the queue are dropped before.
    ///
    /// # Errors
    /// That of the last files.
    pub fn finish(self) -> (OutputStatistics, Result<()>) {
        let Self { thread, queue, output, .. } = self;
        drop(queue);
        let outcome = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let statistics = lock(&output).clone();
        (statistics, outcome)
    }
}

struct Worker<B> {
    backlog: B,
    outputs: Outputs,
    output: Arc<Mutex<OutputStatistics>>,
    end: Arc<End>,
    warn: fn(&str),
}

impl<B: Backlog> Worker<B> {
    fn run(mut self, received: &Receiver<B::Message>) -> Result<()> {
        let mut has_ended = false;
        while !has_ended || !self.backlog.is_empty() {
            let interval = self.backlog.interval();
            if has_ended || self.backlog.is_full() && self.end.time_left().is_none() {
                std::thread::sleep(interval);
            } else {
                match received.recv_timeout(interval) {
                    Ok(message) => self.backlog.add(message),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => has_ended = true,
                }
            }
            self.backlog.write(&mut self.outputs, &self.end, has_ended);
            self.outputs.maintain(Instant::now());
            self.outputs.take_warnings().iter().for_each(|warning| (self.warn)(warning));
            *lock(&self.output) = self.outputs.statistics();
        }
        // Nothing is left for a later warning.
        self.outputs.take_failure().iter().for_each(|warning| (self.warn)(warning));
        let timeout = self.end.time_left().unwrap_or_default().max(MIN_COLLECTOR_TIMEOUT);
        let (statistics, outcome) = self.outputs.finish(timeout);
        *lock(&self.output) = statistics;
        outcome
    }
}
