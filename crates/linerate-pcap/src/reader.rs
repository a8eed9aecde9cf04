//! [`Reader`]: from the source to the program's callback, without a copy, an allocation, a lock or a
//! system call for a packet.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_capture::source::{Drained, Source};
use linerate_ring::{Direction, Error, Timestamp};

use crate::abi::{DIRECTION_IN, DIRECTION_OUT, Header};
use crate::filter::Judge;
use crate::live::Live;
use crate::select;
use crate::shadow;
use crate::wait;

/// How long to nap while frames come, and how long to do so in vain before sleeping in `poll`: as the
/// rings' own `Pace`. Only where nobody waits on the other side of a block.
const PAUSE: Duration = Duration::from_micros(200);
const PATIENCE: Duration = Duration::from_millis(20);

/// Milliseconds between two looks at an interface that went down, for whether it has gone.
const LOOK: c_int = 20;

/// What a read came to.
pub(crate) enum Outcome {
    /// So many packets were handed over; 0 where there are none and the handle does not block.
    Packets(c_int),
    /// `pcap_breakloop` was called.
    Broken,
    /// What the program is to read in `pcap_geterr`.
    Failed(String),
}

enum Wait {
    Ready,
    Nothing,
    End(Outcome),
}

/// Which frames have to be judged here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judging {
    None,
    /// Those that came before the kernel had the filter: all until there was nothing to read.
    UntilDry,
    /// The same of a packet ring: all until so many blocks were given back, for what came before lies in the
    /// blocks that there are.
    Blocks(u64),
    All,
}

/// The reading end of a handle.
pub(crate) struct Reader {
    pub(crate) source: Source,
    clock: Clock,
    snaplen: usize,
    /// libpcap's time-out was 0: a read that handed nothing over goes on.
    until_packet: bool,
    immediate: bool,
    judge: Option<Judge>,
    judging: Judging,
    /// The kernel lets everything in.
    open: bool,
    /// The interface is down, as far as is known.
    down: bool,
    /// The descriptor that the program waits on says that there is something to read.
    told: bool,
    polls: Vec<libc::pollfd>,
    /// Frames in several pieces, gathered.
    scratch: Vec<u8>,
    /// The packet of `pcap_next`, where the ring could not keep it.
    copy: Vec<u8>,
    /// What `pcap_next_ex` points to.
    pub(crate) header: Header,
}

/// What a reader has to know of the handle.
pub(crate) struct Settings {
    pub(crate) snaplen: u32,
    pub(crate) nanoseconds: bool,
    pub(crate) until_packet: bool,
    pub(crate) immediate: bool,
}

impl Reader {
    pub(crate) fn new(source: Source, settings: &Settings) -> Self {
        Self {
            source,
            clock: Clock { start: 0, seconds: 0, nanoseconds: settings.nanoseconds },
            snaplen: settings.snaplen as usize,
            until_packet: settings.until_packet,
            immediate: settings.immediate,
            judge: None,
            judging: Judging::None,
            open: true,
            down: false,
            told: false,
            polls: Vec::new(),
            scratch: Vec::new(),
            copy: Vec::new(),
            header: Header::ZERO,
        }
    }

    fn is_packet(&self) -> bool {
        matches!(self.source, Source::Packet(_))
    }

    /// Hands packets to `take`, all that there are but no more than `most`.
    #[inline]
    pub(crate) fn read(
        &mut self,
        live: &Live,
        most: c_int,
        mut take: impl FnMut(&Header, &[u8]),
    ) -> Outcome {
        let mut packets: c_int = 0;
        if live.watched.load(Relaxed) {
            select::forget();
        }
        loop {
            match self.wait(live) {
                Wait::Ready => {}
                Wait::Nothing => return Outcome::Packets(0),
                Wait::End(outcome) => return outcome,
            }
            loop {
                if live.is_signalled()
                    && let Some(end) = self.obey(live)
                {
                    return end;
                }
                let unwanted = match live.direction.load(Relaxed) {
                    DIRECTION_IN => Some(Direction::Outbound),
                    DIRECTION_OUT => Some(Direction::Inbound),
                    _ => None,
                };
                let judge = self.judge.as_ref().filter(|_| self.judging != Judging::None);
                let (clock, scratch, snaplen) = (&mut self.clock, &mut self.scratch, self.snaplen);
                let drained = self.source.drain(|frame| {
                    let bytes = frame.contiguous(scratch);
                    if unwanted.is_some_and(|unwanted| frame.direction == unwanted)
                        || judge.is_some_and(|judge| !judge.accepts(frame, bytes))
                    {
                        return !live.is_signalled();
                    }
                    let bytes = &bytes[..bytes.len().min(snaplen)];
                    let header = Header {
                        stamp: clock.split(frame.timestamp),
                        captured: bytes.len() as u32,
                        len: frame.wire_len,
                    };
                    take(&header, bytes);
                    packets += 1;
                    packets != most && !live.is_signalled()
                });
                self.note(drained);
                if live.is_signalled()
                    && let Some(end) = self.obey(live)
                {
                    return end;
                }
                if packets == most {
                    return Outcome::Packets(packets);
                }
                if drained == Drained::Nothing {
                    break;
                }
            }
            if packets > 0 || !self.until_packet || live.nonblock.load(Relaxed) {
                return Outcome::Packets(packets);
            }
        }
    }

    /// Does what was asked for while it read, or before; what came of it, if that ends the read.
    #[cold]
    fn obey(&mut self, live: &Live) -> Option<Outcome> {
        if let Err(text) = live.obey_filter(|judge| self.set_filter(judge)) {
            return Some(Outcome::Failed(text));
        }
        live.take_break().then_some(Outcome::Broken)
    }

    /// Reads one packet and says where it lies; that stays until the next call.
    pub(crate) fn next(&mut self, live: &Live) -> (Outcome, *const u8) {
        let mut found = (Header::ZERO, std::ptr::null());
        let outcome = self.read(live, 1, |header, bytes| found = (*header, bytes.as_ptr()));
        if !matches!(outcome, Outcome::Packets(1)) {
            return (outcome, std::ptr::null());
        }
        self.header = found.0;
        let mut bytes = found.1;
        if live.watched.load(Relaxed) && self.source.is_dry() {
            // The descriptor must not say that there is something to read. So the memory goes back, and
            // the packet is copied first: one that the program sleeps after.
            // SAFETY: the frame that was just taken, which stays until the release below.
            let frame = unsafe { std::slice::from_raw_parts(bytes, found.0.captured as usize) };
            self.copy.clear();
            self.copy.extend_from_slice(frame);
            bytes = self.copy.as_ptr();
        }
        self.settle(live);
        (outcome, bytes)
    }

    /// Sees to it that the descriptor that the program waits on tells of the next packet, and of no other.
    #[inline]
    pub(crate) fn settle(&mut self, live: &Live) {
        if live.watched.load(Relaxed) {
            self.settle_watched(live);
        }
    }

    fn settle_watched(&mut self, live: &Live) {
        if self.source.is_dry() {
            self.source.release();
            self.source.announce_sleep();
            self.told = false;
        } else {
            select::remember(live.fd);
        }
        // Once, and then not before it was dry again: until then the descriptor stays readable.
        if !self.told && self.source.ready() {
            live.tell();
            self.told = true;
        }
    }

    /// Puts a filter in force, in the kernel where that can be.
    pub(crate) fn set_filter(&mut self, judge: Judge) -> Result<(), String> {
        // In XDP only what gives the very verdicts that a packet socket gives.
        let fit = judge.socket.as_ref().filter(|_| self.is_packet() || judge.is_exact());
        let placed = fit.is_some_and(|program| self.source.set_filter(Some(program)).is_ok());
        if placed {
            self.open = false;
            self.judging = match &self.source {
                Source::Packet(ring) => {
                    Judging::Blocks(ring.blocks_given_back() + u64::from(ring.blocks()) + 1)
                }
                _ => Judging::UntilDry,
            };
        } else {
            if !self.open {
                self.source
                    .set_filter(None)
                    .map_err(|error| format!("can't remove kernel filter: {error}"))?;
                self.open = true;
            }
            self.judging = Judging::All;
        }
        self.judge = Some(judge);
        Ok(())
    }

    /// Finds out whether every frame to come has passed the filter in the kernel.
    #[inline]
    fn note(&mut self, drained: Drained) {
        let done = match (self.judging, &mut self.source) {
            (Judging::None | Judging::All, _) => return,
            (Judging::Blocks(end), Source::Packet(ring)) => ring.blocks_given_back() >= end,
            // Who takes packets one by one, and only when there are some, never finds nothing.
            (_, source) => {
                drained == Drained::Nothing || (drained == Drained::Enough && source.is_dry())
            }
        };
        if done {
            self.judging = Judging::None;
        }
    }

    /// Waits until there is something to read. libpcap's time-out does not end it: it says how long the
    /// kernel may gather frames, and an empty block is never handed over.
    #[inline]
    fn wait(&mut self, live: &Live) -> Wait {
        if self.source.ready() { Wait::Ready } else { self.sleep(live) }
    }

    #[cold]
    fn sleep(&mut self, live: &Live) -> Wait {
        loop {
            if let Some(end) = self.obey(live) {
                return Wait::End(end);
            }
            let blocks = !live.nonblock.load(Relaxed);
            if blocks && !self.is_packet() && !self.immediate && self.nap(live) {
                return Wait::Ready;
            }
            // What was read keeps the descriptors readable until it is given back.
            self.source.release();
            self.source.announce_sleep();
            if self.source.ready() {
                self.source.awake();
                return Wait::Ready;
            }
            let trouble = self.poll(live, blocks);
            self.source.awake();
            match trouble.and_then(|trouble| self.look(live, trouble)) {
                Ok(()) if self.source.ready() => return Wait::Ready,
                Ok(()) if !blocks => return Wait::Nothing,
                Ok(()) => {}
                Err(text) => return Wait::End(Outcome::Failed(text)),
            }
        }
    }

    /// Naps while something may come soon. Whoever sleeps in `poll` costs the core that receives a
    /// wake-up.
    fn nap(&mut self, live: &Live) -> bool {
        let start = Instant::now();
        while start.elapsed() < PATIENCE && !live.is_signalled() {
            wait::nap(PAUSE);
            if self.source.ready() {
                return true;
            }
        }
        false
    }

    /// Sleeps in the kernel; true if there is trouble with the interface.
    fn poll(&mut self, live: &Live, blocks: bool) -> Result<bool, String> {
        if self.polls.is_empty() {
            let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
            let source = self.source.descriptors();
            let source = source.iter().map(|fd| entry(fd.as_raw_fd(), libc::POLLIN));
            // What happens to the interface is told to a packet socket, and to no other descriptor.
            let shadow = (!self.is_packet()).then(|| entry(live.shadow, 0));
            self.polls =
                source.chain(shadow).chain([entry(live.wake_fd(), libc::POLLIN)]).collect();
        }
        let timeout = match (blocks, self.down) {
            (false, _) => 0,
            (true, true) => LOOK,
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
        let trouble = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
        let (wake, sources) = self.polls.split_last().expect("the wake-up is always there");
        if wake.revents & libc::POLLIN != 0 {
            live.drain_wake();
        }
        Ok(sources.iter().any(|entry| entry.revents & trouble != 0))
    }

    /// Finds out what became of an interface that is in trouble, or was.
    fn look(&mut self, live: &Live, trouble: bool) -> Result<(), String> {
        if !trouble && !self.down {
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
            match shadow::take_error(live.shadow) {
                0 => {}
                libc::ENETDOWN => self.down = true,
                errno => {
                    let error = std::io::Error::from_raw_os_error(errno);
                    return Err(format!("Error condition on packet socket: {error}"));
                }
            }
        }
        match live.interface.is_up() {
            Ok(true) => self.down = false,
            Ok(false) => {}
            // The ring says so itself when it has handed over what came before.
            Err(_) if self.is_packet() => {}
            Err(_) => return Err("The interface disappeared".to_owned()),
        }
        Ok(())
    }
}

/// Splits stamps as `struct timeval` has them, without a division while the second is the same.
struct Clock {
    /// Nanoseconds since the epoch at which the second began.
    start: u64,
    seconds: libc::time_t,
    nanoseconds: bool,
}

impl Clock {
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

/// For frames without a stamp, which no source gives that was asked for stamps.
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
            let mut clock = Clock { start: 0, seconds: 0, nanoseconds };
            for stamp in [0, 999, 1_000, 999_999_999, 1_700_000_000_123_456_789, 5_000_000_001] {
                let split = clock.split(Some(Timestamp(stamp)));
                let unit = if nanoseconds { 1 } else { 1000 };
                assert_eq!(split.tv_sec as u64, stamp / 1_000_000_000);
                assert_eq!(split.tv_usec as u64, stamp % 1_000_000_000 / unit);
            }
        }
    }
}
