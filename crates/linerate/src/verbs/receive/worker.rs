//! The threads that receive, and what each of them counts.

use crate::cli::stdio::plural;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use linerate_feed::moldudp64::MoldUdp64;
use linerate_feed::{Feed, Line, RequestStatistics};
use linerate_net::cpu;
use linerate_udp::pattern::{self, PayloadPattern};
use linerate_udp::{Batch, CalibrationRun, Drops, Message, Receiver};
use rustix::event::{PollFd, PollFlags};
use rustix::thread::set_current_timer_slack;
use rustix::time::{ClockId, clock_gettime};

use super::Arguments;
use super::requests::{MAX_WAIT_WITH_GAPS, Requests};
use super::stats::{Counts, Lost, Progress, ReceiveStats};
use crate::cli;
use crate::cli::json::Schema;
use crate::cli::metrics::Publisher;
use crate::cli::progress::{Meter, StatusLine};
use crate::cli::signals::Signals;

/// How often a waiting thread checks whether it is to end.
const MAX_WAIT: Duration = Duration::from_millis(50);
/// How often signals and limits are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Latencies above a minute count as a minute.
const MAX_LATENCY: u64 = 60_000_000_000;

/// The options of one thread.
#[derive(Clone, Copy, Debug)]
struct Task {
    check: Option<PayloadPattern>,
    /// The kernel's stamps are compared with the reader's clock.
    timestamps: bool,
    feed: bool,
    count: Option<u64>,
    cpu: Option<usize>,
}

/// What the threads share.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    messages: AtomicU64,
    counts_wanted: AtomicU64,
    /// What each thread counted when it was asked last, without `messages`.
    told: Vec<Mutex<Counts>>,
    /// Why a thread could not read its losses, the first time.
    losses_unread: OnceLock<String>,
}

/// The losses of two threads; `None` where those of one cannot be read. Threads share a socket, which counts its losses
/// once.
fn together(one: Option<Drops>, other: Option<Drops>) -> Option<Drops> {
    let (one, other) = one.zip(other)?;
    let mut most = if other.total() > one.total() { other } else { one };
    most.truncated = one.truncated + other.truncated;
    Some(most)
}

/// Numbers of checked payloads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    /// Payloads that were not what the sender wrote.
    pub(super) wrong: u64,
    pub(super) good: u64,
    pub(super) lowest: Option<u64>,
    pub(super) highest: Option<u64>,
    /// Numbers below one that had come before.
    pub(super) behind: u64,
}

impl Numbers {
    #[inline]
    fn take(&mut self, number: Option<u64>) {
        let Some(number) = number else {
            self.wrong += 1;
            return;
        };
        self.good += 1;
        self.behind += u64::from(self.highest.is_some_and(|highest| number < highest));
        self.lowest = Some(self.lowest.map_or(number, |lowest| lowest.min(number)));
        self.highest = self.highest.max(Some(number));
    }

    fn add(&mut self, other: Self) {
        self.wrong += other.wrong;
        self.good += other.good;
        self.behind += other.behind;
        self.lowest = self.lowest.into_iter().chain(other.lowest).min();
        self.highest = self.highest.max(other.highest);
    }
}

/// What one thread counted, or all together.
#[derive(Debug)]
pub(super) struct Statistics {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Messages that bypassed the stack, with xdp.
    pub(super) ring_messages: u64,
    /// `None` where they could not be read, or a failure came first.
    pub(super) losses: Option<Drops>,
    pub(super) calls: u64,
    pub(super) first: Option<Instant>,
    pub(super) last: Option<Instant>,
    pub(super) cpu_seconds: f64,
    pub(super) batches: Histogram<u32>,
    pub(super) latency: Histogram<u32>,
    pub(super) numbers: Numbers,
    pub(super) feed: Option<linerate_feed::Statistics>,
    pub(super) requests: Option<RequestStatistics>,
    pub(super) failure: Option<String>,
}

impl Statistics {
    fn new() -> Result<Self> {
        Ok(Self {
            messages: 0,
            bytes: 0,
            ring_messages: 0,
            losses: None,
            calls: 0,
            first: None,
            last: None,
            cpu_seconds: 0.0,
            batches: Histogram::new_with_max(1 << 21, 3).context("a histogram")?,
            latency: Histogram::new_with_max(MAX_LATENCY, 3).context("a histogram")?,
            numbers: Numbers::default(),
            feed: None,
            requests: None,
            failure: None,
        })
    }

    fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.ring_messages += other.ring_messages;
        self.calls += other.calls;
        self.first = self.first.into_iter().chain(other.first).min();
        self.last = self.last.max(other.last);
        self.cpu_seconds += other.cpu_seconds;
        // The two were made alike, so that nothing can be out of range.
        let _ = self.batches.add(&other.batches);
        let _ = self.latency.add(&other.latency);
        self.numbers.add(other.numbers);
        self.feed = self.feed.or(other.feed);
        self.requests = self.requests.or(other.requests);
        self.failure = self.failure.take().or(other.failure);
        self.losses = together(self.losses, other.losses);
    }
}

/// Threads at work.
pub(super) struct Running {
    threads: Vec<JoinHandle<Statistics>>,
    shared: Arc<Shared>,
    time: Option<Duration>,
    choice: Choice,
}

/// How messages are received, and why.
pub(super) struct Choice {
    pub(super) backend: String,
    pub(super) ring: Option<String>,
    pub(super) why: Vec<String>,
    pub(super) calibration_runs: Vec<CalibrationRun>,
}

/// The interface that xdp takes messages from, and how.
pub(super) fn ring_of(receiver: &Receiver) -> Option<String> {
    receiver.xdp_mode().map(|(interface, mode)| format!("{interface} ({mode})"))
}

/// Starts a thread for each receiver; one for both lines of a feed.
pub(super) fn start(
    receivers: Vec<Receiver>,
    mut requests: Option<Requests>,
    arguments: &Arguments,
) -> Result<Running> {
    let lines = if arguments.feed.is_some() { receivers.len() } else { 1 };
    let told = (0..receivers.len() / lines).map(|_| Mutex::new(Counts::none())).collect();
    let shared = Arc::new(Shared { told, ..Shared::default() });
    let choice = Choice {
        backend: receivers[0].backend().to_string(),
        ring: ring_of(&receivers[0]),
        why: receivers[0].selection_reasons().to_vec(),
        calibration_runs: receivers[0].calibration_runs().to_vec(),
    };
    let cpus = arguments.cpus();
    let mut threads = Vec::new();
    let mut receivers = receivers.into_iter().peekable();
    while receivers.peek().is_some() {
        let mine: Vec<_> = receivers.by_ref().take(lines).collect();
        let task = Task {
            check: arguments.check,
            timestamps: arguments.timestamps,
            feed: arguments.feed.is_some(),
            count: arguments.count,
            cpu: cpus.get(threads.len() % cpus.len().max(1)).copied(),
        };
        let (shared, mut statistics) = (Arc::clone(&shared), Statistics::new()?);
        let number = threads.len();
        // A feed has one thread.
        let requests = requests.take();
        let name = format!("receive {number}");
        let work = move || {
            let mut worker = Worker::new(task, &shared, number, requests);
            if let Err(error) = worker.run(mine, &mut statistics) {
                statistics.failure = Some(cli::format_error_chain(&error));
                shared.stop.store(true, Relaxed);
            }
            statistics
        };
        threads.push(std::thread::Builder::new().name(name).spawn(work)?);
    }
    Ok(Running { threads, shared, time: arguments.time, choice })
}

impl Running {
    /// Waits for the end, and handles signals until then.
    pub(super) fn follow(
        self,
        signals: &Signals,
        arguments: &Arguments,
        mut publisher: Publisher<Progress>,
    ) -> (Statistics, Choice) {
        let start = Instant::now();
        let Arguments { stats, json, quiet, .. } = *arguments;
        let mut line = StatusLine::new(stats, json, quiet);
        let mut meter = Meter::start();
        let (mut was_due, mut is_told, mut report_at) = (false, false, None);
        while !self.threads.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(POLL_INTERVAL);
            if signals.is_stopped() || self.time.is_some_and(|time| start.elapsed() >= time) {
                self.shared.stop.store(true, Relaxed);
            }
            // The threads say what they counted when they are asked: what is shown is as old as the last time.
            publisher.update(|| {
                let progress = self.progress();
                self.ask();
                progress
            });
            if let Some(error) = self.shared.losses_unread.get()
                && !std::mem::replace(&mut is_told, true)
            {
                let text =
                    format_args!("linerate: the number of lost messages is unknown: {error}");
                StatusLine::eprintln(line.as_ref(), text);
            }
            if signals.take_report_request() {
                self.ask();
                report_at = Some(Instant::now() + MAX_WAIT + POLL_INTERVAL);
            }
            // The threads have answered by now.
            if report_at.is_some_and(|at| Instant::now() >= at) {
                report_at = None;
                let Counts { messages, losses, .. } = self.progress().counts;
                let lost = Lost::text(losses.map(|losses| losses.total()));
                let text = format!("{}, {lost}", plural(messages, "message"));
                StatusLine::eprintln(line.as_ref(), format_args!("linerate: {text}"));
            }
            if let Some(line) = &mut line
                && line.is_due()
            {
                // The threads get one round to answer.
                if was_due {
                    let stats = ReceiveStats::of(self.progress(), &mut meter);
                    line.show(Schema::ReceiveStats, &stats);
                } else {
                    self.ask();
                }
                was_due = !was_due;
            }
        }
        StatusLine::clear(line);
        let mut all = self
            .threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let mut statistics = all.next().expect("a thread was started");
        all.for_each(|other| statistics.add(other));
        (statistics, self.choice)
    }

    /// Asks the threads for their counts.
    fn ask(&self) {
        self.shared.counts_wanted.fetch_add(1, Relaxed);
    }

    /// What the threads counted when they were asked last.
    fn progress(&self) -> Progress {
        let messages = self.shared.messages.load(Relaxed);
        let mut counts = Counts { messages, ..Counts::none() };
        for told in &self.shared.told {
            let told = *told.lock().unwrap_or_else(PoisonError::into_inner);
            counts.bytes += told.bytes;
            counts.calls += told.calls;
            counts.losses = together(counts.losses, told.losses);
            counts.feed = counts.feed.or(told.feed);
            counts.requests = counts.requests.or(told.requests);
        }
        Progress { backend: self.choice.backend.clone(), counts }
    }
}

/// One thread.
struct Worker<'s> {
    task: Task,
    shared: &'s Shared,
    number: usize,
    feed: Feed<MoldUdp64>,
    requests: Option<Requests>,
    counts_told: u64,
}

impl<'s> Worker<'s> {
    fn new(task: Task, shared: &'s Shared, number: usize, requests: Option<Requests>) -> Self {
        Self { task, shared, number, feed: Feed::new(MoldUdp64), requests, counts_told: 0 }
    }

    fn run(&mut self, mut receivers: Vec<Receiver>, statistics: &mut Statistics) -> Result<()> {
        if let Some(cpu) = self.task.cpu {
            cpu::pin(cpu).with_context(|| format!("cannot stay on CPU {cpu}"))?;
        }
        // Rests that are as short as they should be; the kernel's default adds 50 µs to each.
        let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
        let mut spent = None;
        let mut at = 0;
        while !self.is_over() {
            let line = if at == 0 { Line::A } else { Line::B };
            let count = receivers.len();
            let several = count > 1 || self.requests.is_some();
            let came = self.read(&mut receivers[at], several, line, statistics)?;
            if came > 0 && spent.is_none() {
                spent = Some(cpu_seconds());
            }
            self.tell(&mut receivers, statistics.bytes);
            if several {
                let answers = self.exchange()?;
                if came + answers == 0 && at + 1 == count {
                    self.wait_for_any(&receivers)?;
                }
                at = (at + 1) % count;
            }
        }
        // What has come before the end belongs to it.
        let mut losses = Drops::default();
        for (at, receiver) in receivers.iter_mut().enumerate() {
            let line = if at == 0 { Line::A } else { Line::B };
            receiver.stop()?;
            while !self.has_enough() && self.read(receiver, true, line, statistics)? > 0 {}
            losses += receiver.drops()?;
            statistics.ring_messages += receiver.ring_messages();
            statistics.calls += receiver.syscalls();
        }
        statistics.losses = Some(losses);
        self.exchange()?;
        statistics.requests = self.requests.as_ref().map(Requests::statistics);
        statistics.cpu_seconds = spent.map_or(0.0, |before| cpu_seconds() - before);
        statistics.feed = self.task.feed.then(|| self.feed.statistics());
        Ok(())
    }

    /// Asks for what the feed misses. Returns the number of answers.
    fn exchange(&mut self) -> linerate_udp::Result<u64> {
        let Self { feed, requests, .. } = self;
        requests.as_mut().map_or(Ok(0), |requests| requests.exchange(feed))
    }

    fn wait_for_any(&self, receivers: &[Receiver]) -> Result<()> {
        let fds = receivers.iter().map(AsFd::as_fd).chain(self.requests.as_ref().map(AsFd::as_fd));
        let mut entries: Vec<_> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let has_gaps = self.requests.is_some() && self.feed.gap_list().missing() > 0;
        let wait = if has_gaps { MAX_WAIT_WITH_GAPS } else { MAX_WAIT };
        linerate_ring::poll(&mut entries, wait).map(drop).context("cannot wait for messages")
    }

    /// One batch. Returns how many messages it had.
    fn read(
        &mut self,
        receiver: &mut Receiver,
        at_once: bool,
        line: Line,
        statistics: &mut Statistics,
    ) -> linerate_udp::Result<u64> {
        let mut batch = if at_once {
            receiver.try_receive()?
        } else {
            receiver.receive(Some(Instant::now() + MAX_WAIT))?
        };
        Ok(self.take(&mut batch, line, statistics))
    }

    fn is_over(&self) -> bool {
        self.shared.stop.load(Relaxed) || self.has_enough()
    }

    fn has_enough(&self) -> bool {
        self.task.count.is_some_and(|count| self.shared.messages.load(Relaxed) >= count)
    }

    /// Takes the messages of a batch. Returns how many there were.
    fn take(&mut self, batch: &mut Batch<'_>, line: Line, statistics: &mut Statistics) -> u64 {
        if batch.is_empty() {
            return 0;
        }
        let Task { check, timestamps, feed, count, .. } = self.task;
        // One look at the clock for the batch.
        let now = (check == Some(PayloadPattern::Time)).then(pattern::monotonic_now);
        let wall = timestamps.then(wall_clock);
        let left = count
            .map_or(u64::MAX, |count| count.saturating_sub(self.shared.messages.load(Relaxed)));
        let mut came = 0;
        while came < left
            && let Some(message) = batch.next()
        {
            came += 1;
            statistics.bytes += message.payload.len() as u64;
            // A truncated message cannot be checked.
            let number =
                check.map(|check| check.check(message.payload).filter(|_| !message.truncated));
            if let Some(number) = number {
                statistics.numbers.take(number);
            }
            // What is no payload of ours says no time either.
            if number != Some(None)
                && let Some(waited) = latency(&message, now, wall)
            {
                statistics.latency.saturating_record(waited.clamp(1, MAX_LATENCY));
            }
            if feed {
                self.feed.process(line, message.payload, |_| {});
            }
        }
        if came > 0 {
            let now = Instant::now();
            statistics.messages += came;
            statistics.first.get_or_insert(now);
            statistics.last = Some(now);
            statistics.batches.saturating_record(came);
            self.shared.messages.fetch_add(came, Relaxed);
        }
        came
    }

    /// Tells the counts, if somebody asked.
    fn tell(&mut self, receivers: &mut [Receiver], bytes: u64) {
        let wanted = self.shared.counts_wanted.load(Relaxed);
        if wanted == self.counts_told {
            return;
        }
        self.counts_told = wanted;
        let mut told = Counts {
            bytes,
            feed: self.task.feed.then(|| self.feed.statistics()),
            requests: self.requests.as_ref().map(Requests::statistics),
            ..Counts::none()
        };
        for receiver in receivers {
            match receiver.drops() {
                Ok(drops) => told.losses.iter_mut().for_each(|losses| *losses += drops),
                Err(error) => {
                    told.losses = None;
                    self.shared
                        .losses_unread
                        .get_or_init(|| cli::format_error_chain(&error.into()));
                }
            }
            told.calls += receiver.syscalls();
        }
        *self.shared.told[self.number].lock().unwrap_or_else(PoisonError::into_inner) = told;
    }
}

/// From the sender, where the payload says when it was written, else from the kernel's stamp.
#[inline]
fn latency(message: &Message<'_>, now: Option<u64>, wall: Option<u64>) -> Option<u64> {
    match (now, wall) {
        (Some(now), _) => now.checked_sub(pattern::send_time(message.payload)?),
        (None, Some(wall)) => wall.checked_sub(message.timestamp?),
        (None, None) => None,
    }
}

/// CPU time of this thread, in user space and in the kernel.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_which_a_part_is_unknown_are_unknown() {
        let mut some = Drops::default();
        (some.ring, some.truncated) = (3, 1);
        let both = together(Some(some), Some(some)).map(|both| (both.ring, both.truncated));
        assert_eq!(both, Some((3, 2)), "of a socket that both read");
        assert!(together(Some(some), None).is_none() && together(None, Some(some)).is_none());
        let counts = Counts { losses: None, ..Counts::none() };
        let progress = Progress { backend: "gro".to_owned(), counts };
        let stats = ReceiveStats::of(progress, &mut Meter::start());
        assert!(stats.to_string().ends_with("unknown losses"), "{stats}");
        let json = cli::json::line(Schema::ReceiveStats, &stats).expect("JSON");
        assert!(json.contains(r#""lost":null,"truncated":null"#), "{json}");
    }
}
