//! Replay: frames that were captured once, sent again.
//!
//! Frames come from anything that implements [`FrameSource`]: a [`Trace`] in memory, or [`Files`] that are read
//! during the run. [`run`] sends them through a transmit ring on the calling thread.

use std::fmt::Display;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use linerate_wire::ethernet::{self, Address, EtherType};
use linerate_wire::layers;
use serde::Serialize;

use crate::interface::OutputInterface;
use crate::transmit::TransmitQueue;
use crate::{Backend, Error, Rate, Result, UNUSED_MAC, clock, cpu, rate};

mod files;
mod trace;

pub use files::Files;
pub use trace::Trace;

/// How much earlier than asked a sleep ends, in nanoseconds, to spin for the rest: longer than nearly all wake-ups are
/// late, so that gaps are as recorded (`linerate lab run replay-gaps`). A replay with shorter gaps than that takes a
/// core.
const SPIN_TIME_NS: u64 = 1_000_000;

/// How much later than asked the kernel may end a sleep, to end several at once, in nanoseconds.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::MIN;

/// How long before its time a frame is put into the ring, in nanoseconds: longer than the copy takes.
const PREPARE_TIME_NS: u64 = 10_000;

/// Frames handed to the kernel with one system call at full speed, or while the replay is behind.
const BATCH: u32 = 64;

/// How late frames may go, in nanoseconds, each with a system call of its own. Behind that they go in batches, to catch
/// up.
const MAX_LATE_NS: u64 = 50_000;

/// How much of its lateness a replay at the recorded speed makes up with one frame, in nanoseconds. More would make the
/// gap after a late frame as wrong as the one before it.
const CATCH_UP_NS: u64 = 1_000;

/// With a long gap it makes up more: this part of the gap.
const CATCH_UP_PART: f64 = 1e-3;

/// What it is later than that, in nanoseconds, it makes up at once.
const MAX_SLIP_NS: u64 = 200_000;

/// LINKTYPE_ETHERNET in the registry of link types.
const ETHERNET: u16 = 1;

/// Where frames come from.
pub trait FrameSource {
    /// What reading them can fail with; only its own text is reported, without that of its causes.
    type Error;

    /// The next frame, `None` at the end.
    ///
    /// # Errors
    /// When it cannot be read; the replay ends there.
    fn next(&mut self) -> std::result::Result<Option<RecordedFrame<'_>>, Self::Error>;

    /// Goes back to the first frame.
    ///
    /// # Errors
    /// When that cannot be done, as with a pipe.
    fn rewind(&mut self) -> std::result::Result<(), Self::Error>;
}

/// A frame as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedFrame<'a> {
    /// Its bytes, from the link-layer header on.
    pub bytes: &'a [u8],
    /// The type of that header (LINKTYPE registry).
    pub linktype: u16,
    /// Nanoseconds since the frame before it; 0 for the first, and where the clock went back.
    pub gap: u64,
    /// The record has fewer bytes than the frame had.
    pub cut: bool,
}

/// When frames go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// With the recorded gaps divided by this factor, which is above 0.
    Recorded(f64),
    /// At a rate; [`Rate::Max`] is as fast as the machine can.
    Rate(Rate),
}

/// How to replay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// When frames go.
    pub speed: Speed,
    /// How often the whole is sent; 0 for no end.
    pub rounds: u64,
    /// From the end of a round to the next one.
    pub round_gap: Duration,
    /// Frames to send at most, over all rounds.
    pub limit: Option<u64>,
    /// Frames are sent that are due in this time, over all rounds.
    pub duration: Option<Duration>,
    /// Destination of frames that were recorded without an Ethernet header; `None` for the other end of a veth pair, or
    /// [`UNUSED_MAC`].
    pub destination_mac: Option<Address>,
    /// CPU that sends; wherever the scheduler put the thread where `None`.
    pub cpu: Option<usize>,
    /// [`Backend::Xdp`] for an AF_XDP socket on the first queue, which sends frames of up to 4096
    /// bytes; all others mean an AF_PACKET ring.
    pub backend: Backend,
    /// Send to an interface that carries a default route.
    pub allow_default_route: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            speed: Speed::Recorded(1.0),
            rounds: 1,
            round_gap: Duration::ZERO,
            limit: None,
            duration: None,
            destination_mac: None,
            cpu: None,
            backend: Backend::Auto,
            allow_default_route: false,
        }
    }
}

/// The progress of a replay, for another thread.
#[derive(Debug, Default)]
pub struct Progress {
    sent: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    /// Frames given to the interface so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes of those frames.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The interface.
    pub interface: String,
    /// Frames read: `sent`, `too_long`, `too_short` and `unsupported` together.
    pub frames: u64,
    /// Frames given to the interface: `accepted` and `refused` together.
    pub sent: u64,
    /// Frames that the interface took.
    pub accepted: u64,
    /// Frames that it dropped, as it counts them itself: frames of other senders are among them.
    pub refused: u64,
    /// Frames not sent because they are longer than `max_frame`.
    pub too_long: u64,
    /// Frames not sent because they are shorter than an Ethernet header.
    pub too_short: u64,
    /// Frames not sent because the interface cannot carry them: of an unknown link type, or not IP where only that goes.
    pub unsupported: u64,
    /// Longest frame that the interface takes, in bytes: its MTU with the link-layer header; with AF_XDP at most 4096.
    pub max_frame: u64,
    /// Frames sent with fewer bytes than they once had, because the record was cut.
    pub cut: u64,
    /// Bytes of the frames sent.
    pub bytes: u64,
    /// Seconds from the first frame to the last.
    pub seconds: f64,
    /// Frames sent per second.
    pub packets_per_second: f64,
    /// Bits sent per second, frames as in memory.
    pub bits_per_second: f64,
    /// The part of the requested speed that was reached, 0 to 1; `None` at full speed.
    pub rate_reached: Option<f64>,
    /// How late frames went on average, in microseconds; 0 at full speed.
    pub late_mean_us: f64,
    /// How late the latest went, in microseconds; 0 at full speed.
    pub late_max_us: f64,
    /// Rounds begun.
    pub rounds: u64,
    /// What ended the replay early; the counts above are from before.
    pub error: Option<String>,
}

/// Sends frames until there are no more, the limit is reached, or `stop` is set, which is seen within
/// some 20 ms.
///
/// # Errors
/// Before anything is sent: [`Error::NoInterface`], [`Error::Interface`] where it is down or carries a
/// default route, [`Error::Argument`], and [`Error::Ring`] for what the kernel refuses. [`Report::error`] says
/// what ends the replay later.
pub fn run<F>(
    interface: &str,
    frames: &mut F,
    options: Options,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<Report>
where
    F: FrameSource,
    F::Error: From<Error> + Display,
{
    let mut sender = Sender::new(interface, options)?;
    let ended = send_all(&mut sender, frames, progress, stop);
    let error = ended.err().map(|error| error.to_string());
    Ok(sender.finish(error, progress))
}

fn send_all<F>(
    sender: &mut Sender,
    frames: &mut F,
    progress: &Progress,
    stop: &AtomicBool,
) -> std::result::Result<(), F::Error>
where
    F: FrameSource,
    F::Error: From<Error>,
{
    let stopping = || stop.load(Ordering::Relaxed);
    while sender.options.rounds == 0 || sender.report.rounds < sender.options.rounds {
        if sender.report.rounds > 0 {
            if !sender.pause(progress, &stopping)? {
                return Ok(());
            }
            frames.rewind()?;
        }
        sender.report.rounds += 1;
        let before = sender.report.sent;
        while let Some(recorded) = frames.next()? {
            if sender.is_done() || !sender.send(recorded, progress, &stopping)? {
                return Ok(());
            }
        }
        if sender.report.sent == before {
            break;
        }
    }
    Ok(sender.flush(progress)?)
}

struct Sender {
    queue: TransmitQueue,
    has_ethernet: bool,
    /// For frames that were recorded without one.
    header: [u8; ethernet::HEADER_LEN],
    options: Options,
    report: Report,
    /// Frames in the ring that the kernel was not told of.
    pending: u32,
    /// CLOCK_MONOTONIC nanoseconds of the first frame.
    start: u64,
    /// CLOCK_MONOTONIC nanoseconds of the last frame that the kernel was told of.
    last: u64,
    /// When the next frame is due, in nanoseconds since the start.
    due: f64,
    /// What that was at the end of the round before.
    round_due: f64,
    /// When the last frame that was sent was due.
    last_due: f64,
    /// How much later than recorded frames go at present, in nanoseconds.
    slip: u64,
    late_sum: u64,
    late_max: u64,
}

impl Sender {
    fn new(name: &str, options: Options) -> Result<Self> {
        check(options)?;
        let interface = OutputInterface::find(name)?;
        interface.check(options.allow_default_route)?;
        if let Some(cpu) = options.cpu {
            cpu::pin(name, cpu)?;
        }
        // Gaps are less exact without it.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NS));
        let destination = options.destination_mac.or(interface.peer_mac).unwrap_or(UNUSED_MAC);
        let mut header = [0; ethernet::HEADER_LEN];
        header[..6].copy_from_slice(&destination.0);
        header[6..12].copy_from_slice(&interface.mac.0);
        Ok(Self {
            queue: TransmitQueue::open(options.backend, &interface, interface.longest_frame(true))?,
            has_ethernet: interface.has_ethernet,
            header,
            options,
            report: Report { interface: name.to_owned(), ..Report::default() },
            pending: 0,
            start: 0,
            last: 0,
            due: 0.0,
            round_due: 0.0,
            last_due: 0.0,
            slip: 0,
            late_sum: 0,
            late_max: 0,
        })
    }

    fn is_done(&self) -> bool {
        self.options.limit.is_some_and(|limit| self.report.sent >= limit)
    }

    fn is_paced(&self) -> bool {
        self.options.speed != Speed::Rate(Rate::Max)
    }

    /// The pause between two rounds; false if none follows, or when `stop` said so.
    fn pause(&mut self, progress: &Progress, stop: &impl Fn() -> bool) -> Result<bool> {
        let gap = self.options.round_gap.as_nanos() as u64;
        if self.is_paced() {
            self.due += gap as f64;
            // Rounds that take no time end by the clock.
            let is_instant = self.due <= self.round_due;
            self.round_due = self.due;
            let is_late = is_instant && self.has_passed(clock::now() - self.start);
            return Ok(!self.is_over() && !is_late);
        }
        self.flush(progress)?;
        let end = clock::now().saturating_add(gap);
        Ok(clock::wait_until(end, clock::SPIN_TIME_NS, stop) && !self.is_over())
    }

    /// Whether a frame that is due now is after the end.
    fn is_over(&self) -> bool {
        self.has_passed(if self.is_paced() { self.due as u64 } else { clock::now() - self.start })
    }

    /// Whether the duration is not longer than this, in nanoseconds.
    fn has_passed(&self, time: u64) -> bool {
        self.options.duration.is_some_and(|duration| u128::from(time) >= duration.as_nanos())
    }

    /// The frame as the interface sends it: how much of `header` to put before what; `None` if it cannot.
    fn convert<'f>(&mut self, recorded: RecordedFrame<'f>) -> Result<Option<(usize, &'f [u8])>> {
        let RecordedFrame { bytes, linktype, .. } = recorded;
        if linktype == ETHERNET && self.has_ethernet {
            return Ok(Some((0, bytes)));
        }
        let Some(Ok((ether_type, offset))) = layers::link_payload(bytes, linktype) else {
            return Ok(None);
        };
        let is_ip = matches!(ether_type, EtherType::IPV4 | EtherType::IPV6);
        // 0 stands for what is no packet, and what is no EtherType is LLC or a protocol of Linux alone.
        if !is_ip && (!self.has_ethernet || ether_type.is_length()) {
            return Ok(None);
        }
        let rest = bytes.get(offset..).unwrap_or(&[]);
        if !self.has_ethernet {
            self.queue.set_protocol(ether_type)?;
            return Ok(Some((0, rest)));
        }
        self.header[12..].copy_from_slice(&ether_type.0.to_be_bytes());
        Ok(Some((ethernet::HEADER_LEN, rest)))
    }

    /// Sends a frame when it is due; false when `stop` said so first.
    fn send(
        &mut self,
        recorded: RecordedFrame<'_>,
        progress: &Progress,
        stop: &impl Fn() -> bool,
    ) -> Result<bool> {
        if stop() {
            return Ok(false);
        }
        if self.report.sent == 0 {
            self.start = clock::now();
        } else if let Speed::Recorded(factor) = self.options.speed {
            let gap = recorded.gap as f64 / factor;
            self.due += gap;
            self.slip = self.slip.saturating_sub(CATCH_UP_NS.max((gap * CATCH_UP_PART) as u64));
        }
        if self.is_over() {
            return Ok(false);
        }
        let (least, most) = self.queue.frame_len();
        let Some((header_len, rest)) = self.convert(recorded)? else {
            self.report.unsupported += 1;
            return Ok(true);
        };
        let header = self.header;
        let len = header_len + rest.len();
        if len < least || len > most {
            self.report.too_short += u64::from(len < least);
            self.report.too_long += u64::from(len > most);
            return Ok(true);
        }
        let paced = self.is_paced();
        let due = self.start.saturating_add(self.due as u64);
        let deadline = due.saturating_add(self.slip);
        if paced && clock::now() < deadline {
            // What is in the ring goes out before the wait, and this frame is in the ring when its time comes.
            self.flush(progress)?;
            if !clock::wait_until(deadline.saturating_sub(PREPARE_TIME_NS), SPIN_TIME_NS, stop) {
                return Ok(false);
            }
        }
        let write = |frame: &mut [u8]| {
            frame[..header_len].copy_from_slice(&header[..header_len]);
            frame[header_len..].copy_from_slice(rest);
        };
        if !self.queue.enqueue(len, stop, write)? {
            return Ok(false);
        }
        self.pending += 1;
        self.report.sent += 1;
        self.report.bytes += len as u64;
        self.report.cut += u64::from(recorded.cut);
        self.last_due = self.due;
        self.due += match self.options.speed {
            Speed::Rate(Rate::Packets(rate)) => 1e9 / rate,
            Speed::Rate(Rate::Bits(rate)) => len as f64 * 8e9 / rate,
            Speed::Rate(Rate::Max) | Speed::Recorded(_) => 0.0,
        };
        let mut late = u64::MAX;
        if paced {
            clock::wait_until(deadline, SPIN_TIME_NS, || false);
            let now = clock::now();
            late = now.saturating_sub(deadline);
            let behind = now.saturating_sub(due);
            self.late_sum += behind;
            self.late_max = self.late_max.max(behind);
            if matches!(self.options.speed, Speed::Recorded(_)) {
                self.slip = behind.min(MAX_SLIP_NS);
            }
        }
        if late <= MAX_LATE_NS || self.pending >= BATCH {
            self.flush(progress)?;
        }
        Ok(true)
    }

    fn flush(&mut self, progress: &Progress) -> Result<()> {
        self.queue.flush()?;
        if self.pending > 0 {
            self.last = clock::now();
        }
        self.pending = 0;
        progress.sent.store(self.report.sent, Ordering::Relaxed);
        progress.bytes.store(self.report.bytes, Ordering::Relaxed);
        Ok(())
    }

    fn finish(mut self, error: Option<String>, progress: &Progress) -> Report {
        let flushed = self.flush(progress).err().map(|error| error.to_string());
        let mut report = self.report;
        report.error = error.or(flushed);
        report.frames = report.sent + report.too_long + report.too_short + report.unsupported;
        report.max_frame = self.queue.frame_len().1 as u64;
        if report.sent > 0 {
            report.seconds = self.last.saturating_sub(self.start) as f64 / 1e9;
            report.packets_per_second = report.sent as f64 / report.seconds.max(1e-9);
            report.bits_per_second = report.bytes as f64 * 8.0 / report.seconds.max(1e-9);
            report.rate_reached = (self.options.speed != Speed::Rate(Rate::Max))
                .then(|| rate::reached(self.last_due / 1e9, report.seconds));
            report.late_mean_us = self.late_sum as f64 / report.sent as f64 / 1e3;
            report.late_max_us = self.late_max as f64 / 1e3;
        }
        report.refused = match self.queue.finish() {
            Ok(refused) => refused.min(report.sent),
            // What was still in the ring did not go out.
            Err(_) => u64::from(self.pending).min(report.sent),
        };
        report.accepted = report.sent - report.refused;
        report
    }
}

fn check(options: Options) -> Result<()> {
    if let Speed::Recorded(factor) = options.speed
        && !(factor > 0.0 && factor.is_finite())
    {
        return Err(Error::argument(format!("multiplier {factor}"), "must be a number above 0"));
    }
    if let Speed::Rate(rate) = options.speed
        && rate.packets(1.0).is_some_and(|rate| !(rate > 0.0 && rate.is_finite()))
    {
        return Err(Error::argument("rate", "must be a number above 0"));
    }
    if options.limit == Some(0) {
        return Err(Error::argument("limit 0", "must be at least 1"));
    }
    Ok(())
}
