//! [`Reader`]: from the source to the program's callback, without a copy, an allocation, a lock or a
//! system call for a packet.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::Once;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_bpf::LoadedProgram;
use linerate_capture::source::{Source, SourceKind};
use linerate_ring::{Action, Delivery, Direction, Drained, Error, Ring as _, Timestamp};

use crate::abi::{DIRECTION_IN, DIRECTION_OUT, Header};
use crate::filter::ProgramFilter;
use crate::metrics::HandleMetrics;
use crate::select;
use crate::shared::Shared;
use crate::system_socket;
use crate::wait;
use crate::warn::warn;

/// How long one timed sleep takes while frames come, and how long to sleep so in vain before sleeping in
/// `poll`: as the rings do. Not for packet rings, which deliver whole blocks.
const SLEEP_TIME: Duration = Duration::from_micros(200);
const MAX_SLEEP_TIME: Duration = Duration::from_millis(20);

/// Milliseconds between two checks whether an interface that went down is gone.
const DOWN_POLL_MS: c_int = 20;

/// The result of a read.
pub(crate) enum Outcome {
    /// The number of packets delivered; 0 where there are none and the handle does not block.
    Packets(c_int),
    /// `pcap_breakloop` was called.
    Broken,
    /// The text for `pcap_geterr`.
    Failed(String),
}

/// The forks from the process that loaded this library to the one that it is in now.
static FORKS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Relaxed);
}

/// [`FORKS`], which are counted from now on.
fn forks() -> usize {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a handler that only adds to a counter. It can fail only for lack of memory.
        unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
    });
    FORKS.load(Relaxed)
}

enum Wait {
    Ready,
    Nothing,
    End(Outcome),
}

/// Which frames are filtered in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UserFiltering {
    None,
    /// Those that came before the kernel had the filter: all until the source is empty.
    UntilDry,
    /// The same for a packet ring: all until this many blocks were given back, as earlier frames are in the
    /// blocks that exist.
    Blocks(u64),
    All,
}

/// The reading end of a handle.
pub(crate) struct Reader {
    pub(crate) source: Source,
    device: String,
    /// What happens to the frames of `xdp`: before the first read they are copied, as the program may set a filter yet, and
    /// where the kernel cannot tell which frames the filter accepts.
    action: Action,
    /// The XDP program without a filter. It was loaded while the program had the privilege.
    accepting: Option<LoadedProgram>,
    /// The XDP program with the filter that was compiled last.
    compiled: Option<(ProgramFilter, LoadedProgram)>,
    clock: TimevalClock,
    snaplen: usize,
    /// libpcap's time-out was 0: a read without a packet continues.
    until_packet: bool,
    immediate: bool,
    filter: Option<ProgramFilter>,
    filtering: UserFiltering,
    /// The kernel has no filter.
    unfiltered: bool,
    /// The interface is down, as far as is known.
    down: bool,
    /// The forks before its memory was mapped, which no forked process has.
    forks: Option<usize>,
    /// The descriptor that the program waits on is readable.
    readable: bool,
    polls: Vec<libc::pollfd>,
    /// With `linerate run --metrics`.
    metrics: Option<Box<HandleMetrics>>,
    /// Frames in several pieces, gathered.
    scratch: Vec<u8>,
    /// The packet of `pcap_next`, where the ring could not keep it.
    copy: Vec<u8>,
    /// What `pcap_next_ex` points to.
    pub(crate) header: Header,
}

/// What a reader needs from the options of the handle.
pub(crate) struct ReaderConfig {
    pub(crate) device: String,
    pub(crate) snaplen: u32,
    pub(crate) nanoseconds: bool,
    pub(crate) until_packet: bool,
    pub(crate) immediate: bool,
}

impl Reader {
    pub(crate) fn new(source: Source, config: ReaderConfig) -> Self {
        Self {
            action: match source.kind() {
                SourceKind::Xdp => Action::CopyThenRedirect,
                _ => Action::Copy,
            },
            accepting: source.load_filter(None).ok(),
            forks: match &source {
                Source::Xdp(receiver) if receiver.config().delivery == Delivery::AfXdp => {
                    Some(forks())
                }
                _ => None,
            },
            metrics: HandleMetrics::new(&config.device, &source.kind().to_string()).map(Box::new),
            compiled: None,
            device: config.device,
            source,
            clock: TimevalClock { start: 0, seconds: 0, nanoseconds: config.nanoseconds },
            snaplen: config.snaplen as usize,
            until_packet: config.until_packet,
            immediate: config.immediate,
            filter: None,
            filtering: UserFiltering::None,
            unfiltered: true,
            down: false,
            readable: false,
            polls: Vec::new(),
            scratch: Vec::new(),
            copy: Vec::new(),
            header: Header::ZERO,
        }
    }

    fn is_packet(&self) -> bool {
        matches!(self.source, Source::Packet(_))
    }

    /// Calls `take` for each packet that is ready, at most for `most`.
    #[inline]
    pub(crate) fn read(
        &mut self,
        shared: &Shared,
        most: c_int,
        mut take: impl FnMut(&Header, &[u8]),
    ) -> Outcome {
        let mut packets: c_int = 0;
        if self.is_forked() {
            return Outcome::Failed(
                "AF_XDP sockets cannot be read by a forked process (LINERATE_XDP_DELIVERY=ringbuf can)"
                    .to_owned(),
            );
        }
        if shared.watched.load(Relaxed) {
            select::forget_readable();
        }
        if self.action == Action::CopyThenRedirect {
            self.redirect();
        }
        loop {
            match self.wait(shared) {
                Wait::Ready => {}
                Wait::Nothing => return Outcome::Packets(0),
                Wait::End(outcome) => return outcome,
            }
            loop {
                if shared.is_signalled()
                    && let Some(end) = self.handle_signals(shared)
                {
                    return end;
                }
                let unwanted = match shared.direction.load(Relaxed) {
                    DIRECTION_IN => Some(Direction::Outbound),
                    DIRECTION_OUT => Some(Direction::Inbound),
                    _ => None,
                };
                let filter = self.filter.as_ref().filter(|_| self.filtering != UserFiltering::None);
                let (clock, scratch, snaplen) = (&mut self.clock, &mut self.scratch, self.snaplen);
                let (mut rejected, mut bytes_read) = (0, 0);
                let before = packets;
                let drained = self.source.drain(|frame| {
                    let bytes = frame.contiguous(scratch);
                    if filter.is_some_and(|filter| !filter.accepts(frame, bytes)) {
                        rejected += 1;
                        return !shared.is_signalled();
                    }
                    if unwanted.is_some_and(|unwanted| frame.direction == unwanted) {
                        return !shared.is_signalled();
                    }
                    let bytes = &bytes[..bytes.len().min(snaplen)];
                    let header = Header {
                        stamp: clock.split(frame.timestamp),
                        captured: bytes.len() as u32,
                        len: frame.wire_len,
                    };
                    take(&header, bytes);
                    packets += 1;
                    bytes_read += u64::from(frame.wire_len);
                    packets != most && !shared.is_signalled()
                });
                // libpcap counts those that came before a packet socket had the filter.
                if rejected > 0 && !self.is_packet() {
                    shared.rejected.fetch_add(rejected, Relaxed);
                }
                if let Some(metrics) = &mut self.metrics {
                    let read = u64::from((packets - before).unsigned_abs());
                    metrics.add(read, bytes_read, self.clock.seconds, shared);
                }
                self.update_filtering(drained);
                if shared.is_signalled()
                    && let Some(end) = self.handle_signals(shared)
                {
                    return end;
                }
                if packets == most {
                    self.count_before_select(shared);
                    return Outcome::Packets(packets);
                }
                if drained == Drained::Nothing {
                    break;
                }
            }
            self.count_before_select(shared);
            if packets > 0 || !self.until_packet || shared.nonblock.load(Relaxed) {
                return Outcome::Packets(packets);
            }
        }
    }

    /// Writes the counts if the program may sleep on the descriptor next.
    #[inline]
    fn count_before_select(&mut self, shared: &Shared) {
        if let Some(metrics) = &mut self.metrics
            && shared.watched.load(Relaxed)
            && self.source.is_empty()
        {
            metrics.idle(false, shared);
        }
    }

    /// Writes the last counts of a handle that the program closes.
    pub(crate) fn close(&mut self, shared: &Shared) {
        if let Some(metrics) = &mut self.metrics {
            metrics.close(shared);
        }
    }

    /// Handles requests of other threads; returns the result if that ends the read.
    #[cold]
    fn handle_signals(&mut self, shared: &Shared) -> Option<Outcome> {
        if let Err(text) = shared.apply_requested_filter(|filter| self.set_filter(filter)) {
            return Some(Outcome::Failed(text));
        }
        shared.take_break().then_some(Outcome::Broken)
    }

    /// Reads one packet and returns its address, which is valid until the next call.
    pub(crate) fn next(&mut self, shared: &Shared) -> (Outcome, *const u8) {
        let mut found = (Header::ZERO, std::ptr::null());
        let outcome = self.read(shared, 1, |header, bytes| found = (*header, bytes.as_ptr()));
        let (header, mut bytes) = match outcome {
            Outcome::Packets(1) => found,
            _ => (Header::ZERO, std::ptr::null()),
        };
        if !bytes.is_null() {
            self.header = header;
            if shared.watched.load(Relaxed) && self.source.is_empty() {
                // The descriptor must not stay readable: the memory is released, and the packet is copied
                // first. After such a packet the program sleeps.
                // SAFETY: the frame that was just taken, which stays until the release below.
                let frame = unsafe { std::slice::from_raw_parts(bytes, header.captured as usize) };
                self.copy.clear();
                self.copy.extend_from_slice(frame);
                bytes = self.copy.as_ptr();
            }
        }
        // Also where there was no packet: the look for one has disarmed the source.
        self.update_readiness(shared);
        (outcome, bytes)
    }

    /// Whether this process has not the memory of the source.
    #[inline]
    fn is_forked(&self) -> bool {
        self.forks.is_some_and(|before| before != FORKS.load(Relaxed))
    }

    /// Makes the descriptor that the program waits on readable for the next packet, and for no earlier one.
    #[inline]
    pub(crate) fn update_readiness(&mut self, shared: &Shared) {
        // The rings are those of the process before, which goes on with them.
        if self.is_forked() {
            return;
        }
        if shared.watched.load(Relaxed) {
            self.update_watched_readiness(shared);
        }
    }

    fn update_watched_readiness(&mut self, shared: &Shared) {
        if self.source.is_empty() {
            self.source.release();
            self.readable = false;
        } else {
            select::remember_readable(shared.fd);
        }
        // Once until the source is empty again: until then the descriptor stays readable.
        if !self.readable && self.source.arm() {
            shared.rearm();
            self.readable = true;
        }
    }

    /// Loads a filter for a call of [`Reader::set_filter`] without privileges.
    pub(crate) fn prepare_filter(&mut self, filter: ProgramFilter) {
        self.compiled =
            self.source.load_filter(Some(&filter.0)).ok().map(|loaded| (filter, loaded));
    }

    /// Applies a filter, in the kernel where possible.
    pub(crate) fn set_filter(&mut self, filter: ProgramFilter) -> Result<(), String> {
        let set = match self.compiled.take() {
            Some((compiled, loaded)) if compiled.0 == filter.0 => {
                self.source.replace_filter(&loaded)
            }
            _ => self.source.set_filter(Some(&filter.0)),
        };
        match set {
            Ok(()) => {
                self.unfiltered = false;
                self.filtering = match &self.source {
                    Source::Packet(ring) => {
                        UserFiltering::Blocks(ring.blocks_released() + u64::from(ring.blocks()) + 1)
                    }
                    _ => UserFiltering::UntilDry,
                };
                self.redirect();
            }
            Err(why) => self.filter_in_user(&why)?,
        }
        self.filter = Some(filter);
        Ok(())
    }

    /// Lets all frames come, for a filter that the kernel does not run, and the host have them: those that the
    /// filter rejects are the host's.
    fn filter_in_user(&mut self, why: &Error) -> Result<(), String> {
        if self.source.kind() == SourceKind::Xdp && self.action != Action::Copy {
            if !self.set_action(Action::Copy) {
                return Err(format!(
                    "AF_XDP sockets would take frames that the filter rejects \
                     (LINERATE_XDP_DELIVERY=ringbuf passes them on): {why}"
                ));
            }
            let device = &self.device;
            warn(format_args!(
                "{device}: the host gets all frames, also those that the filter accepts, because the filter \
                 does not run in the kernel: {why}"
            ));
        }
        if !self.unfiltered {
            match &self.accepting {
                Some(accepting) => self.source.replace_filter(accepting),
                None => self.source.set_filter(None),
            }
            .map_err(|error| format!("can't remove kernel filter: {error}"))?;
            self.unfiltered = true;
        }
        self.filtering = UserFiltering::All;
        Ok(())
    }

    /// What happens to the frames of `xdp` that the filter accepts. False where that cannot be changed.
    fn set_action(&mut self, action: Action) -> bool {
        let done = matches!(&self.source, Source::Xdp(receiver) if receiver.set_action(action));
        if done {
            self.action = action;
        }
        done
    }

    /// From now on the host does not get the frames of `xdp` that the filter accepts.
    fn redirect(&mut self) {
        if self.source.kind() == SourceKind::Xdp && self.action != Action::Redirect {
            self.set_action(Action::Redirect);
        }
    }

    /// Checks whether all later frames have passed the filter in the kernel.
    #[inline]
    fn update_filtering(&mut self, drained: Drained) {
        let done = match (self.filtering, &mut self.source) {
            (UserFiltering::None | UserFiltering::All, _) => return,
            (UserFiltering::Blocks(end), Source::Packet(ring)) => ring.blocks_released() >= end,
            // Who takes packets one by one, and only when there are some, never finds nothing.
            (_, source) => {
                drained == Drained::Nothing || (drained == Drained::Enough && source.is_empty())
            }
        };
        if done {
            self.filtering = UserFiltering::None;
        }
    }

    /// Waits until there is something to read. libpcap's time-out does not end it: it says how long the
    /// kernel may gather frames, and an empty block is never retired.
    #[inline]
    fn wait(&mut self, shared: &Shared) -> Wait {
        if self.source.ready() { Wait::Ready } else { self.sleep(shared) }
    }

    #[cold]
    fn sleep(&mut self, shared: &Shared) -> Wait {
        loop {
            if let Some(end) = self.handle_signals(shared) {
                return Wait::End(end);
            }
            let blocks = !shared.nonblock.load(Relaxed);
            if blocks && !self.is_packet() && !self.immediate && self.sleep_briefly(shared) {
                return Wait::Ready;
            }
            // Frames that were read keep the descriptors readable until they are released.
            self.source.release();
            if self.source.arm() {
                return Wait::Ready;
            }
            if let Some(metrics) = &mut self.metrics {
                metrics.idle(!blocks, shared);
            }
            let error = self.poll(shared, blocks);
            self.source.disarm();
            match error.and_then(|error| self.check_interface(shared, error)) {
                Ok(()) if self.source.ready() => return Wait::Ready,
                Ok(()) if !blocks => return Wait::Nothing,
                Ok(()) => {}
                Err(text) => return Wait::End(Outcome::Failed(text)),
            }
        }
    }

    /// Sleeps on a timer while frames may come soon: a sleep in `poll` costs the receiving core a wake-up.
    fn sleep_briefly(&mut self, shared: &Shared) -> bool {
        let start = Instant::now();
        while start.elapsed() < MAX_SLEEP_TIME && !shared.is_signalled() {
            wait::sleep(SLEEP_TIME);
            if self.source.ready() {
                return true;
            }
        }
        false
    }

    /// Sleeps in the kernel; true if there is error with the interface.
    fn poll(&mut self, shared: &Shared, blocks: bool) -> Result<bool, String> {
        if self.polls.is_empty() {
            let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
            let source = self.source.descriptors();
            let source = source.iter().map(|fd| entry(fd.as_raw_fd(), libc::POLLIN));
            // The kernel reports the state of the interface to packet sockets only.
            let system = (!self.is_packet()).then(|| entry(shared.system_socket, 0));
            self.polls =
                source.chain(system).chain([entry(shared.wake_fd(), libc::POLLIN)]).collect();
        }
        let timeout = match (blocks, self.down) {
            (false, _) => 0,
            (true, true) => DOWN_POLL_MS,
            (true, false) => -1,
        };
        let answer = wait::poll(&mut self.polls, timeout);
        if answer < 0 {
            let error = std::io::Error::last_os_error();
            return match error.kind() {
                std::io::ErrorKind::Interrupted => Ok(false),
                _ => Err(format!("can't poll on packet socket: {error}")),
            };
        }
        let error = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
        let (wake, sources) = self.polls.split_last().expect("the wake-up is always there");
        if wake.revents & libc::POLLIN != 0 {
            shared.drain_wake();
        }
        Ok(sources.iter().any(|entry| entry.revents & error != 0))
    }

    /// Checks an interface that had an error, or was down.
    fn check_interface(&mut self, shared: &Shared, error: bool) -> Result<(), String> {
        if !error && !self.down {
            return Ok(());
        }
        if self.is_packet() {
            self.down = true;
            match self.source.wait(Duration::ZERO) {
                Ok(_) | Err(Error::InterfaceDown(_)) => {}
                Err(Error::InterfaceGone(_)) => return Err("The interface disappeared".to_owned()),
                Err(error) => return Err(error.to_string()),
            }
        } else {
            match system_socket::take_error(shared.system_socket) {
                0 => {}
                libc::ENETDOWN => self.down = true,
                errno => {
                    let error = std::io::Error::from_raw_os_error(errno);
                    return Err(format!("Error condition on packet socket: {error}"));
                }
            }
        }
        match shared.interface.is_up() {
            Ok(up) => self.down &= !up,
            // The ring reports that after it has delivered the earlier frames.
            Err(_) if self.is_packet() => {}
            Err(_) => return Err("The interface disappeared".to_owned()),
        }
        Ok(())
    }
}

/// Converts timestamps to `struct timeval`, without a division while the second is the same.
struct TimevalClock {
    /// Nanoseconds since the epoch at which the second began.
    start: u64,
    seconds: libc::time_t,
    nanoseconds: bool,
}

impl TimevalClock {
    const SECOND: u64 = 1_000_000_000;

    #[inline]
    fn split(&mut self, stamp: Option<Timestamp>) -> libc::timeval {
        let stamp = stamp.map_or_else(now, |stamp| stamp.0);
        let mut rest = stamp.wrapping_sub(self.start);
        if rest >= Self::SECOND {
            self.seconds = (stamp / Self::SECOND) as libc::time_t;
            rest = stamp % Self::SECOND;
            self.start = stamp - rest;
        }
        let rest = if self.nanoseconds { rest } else { rest / 1000 };
        libc::timeval { tv_sec: self.seconds, tv_usec: rest as libc::suseconds_t }
    }
}

/// For frames without a timestamp; sources that were asked for timestamps give none.
#[cold]
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_split_at_seconds_in_both_units_and_backwards_too() {
        for nanoseconds in [false, true] {
            let mut clock = TimevalClock { start: 0, seconds: 0, nanoseconds };
            for stamp in [0, 999, 1_000, 999_999_999, 1_700_000_000_123_456_789, 5_000_000_001] {
                let split = clock.split(Some(Timestamp(stamp)));
                let unit = if nanoseconds { 1 } else { 1000 };
                assert_eq!(split.tv_sec as u64, stamp / 1_000_000_000);
                assert_eq!(split.tv_usec as u64, stamp % 1_000_000_000 / unit);
            }
        }
    }
}
