//! The reader's loop: from the ring to the output, without a system call or an allocation a packet.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use linerate_net::cpu;
use linerate_ring::{Frame, Timestamp};

use super::PerPacket;
use super::affairs::{Affairs, Event};
use crate::Error;
use crate::filter::Filter;
use crate::ledger::{Account, Drops, Page};
use crate::read::Record;
use crate::source::{Drained, Source, Stopped};
use crate::split::Live;
use crate::write::Feed;

/// How long packets may wait in a buffer that is not full before they go to the file.
pub(super) const AGE: Duration = Duration::from_millis(100);

/// The same where there are several readers: whoever puts their packets in order waits for the last.
pub(super) const AGE_OF_SEVERAL: Duration = Duration::from_millis(20);

/// The longest sleep when nothing comes: what it takes to notice that the capture is to end.
const NAP: Duration = Duration::from_millis(50);

/// The same when nothing has come for [`SLEEPY`] naps. Rings watch for a while before they sleep in
/// the kernel, each time anew: an idle capture that costs nothing has to ask rarely.
const SLEEP: Duration = Duration::from_millis(400);

/// Naps in vain after which a reader sleeps: all that it had is in the file by then.
const SLEEPY: u32 = 6;

/// The same when the end was asked for: what is still to come comes soon.
const LAST_NAP: Duration = Duration::from_millis(5);

/// How often the kernel's counters are read while packets come.
const REFRESH: Duration = Duration::from_millis(200);

/// Batches between two looks at the clock.
const BATCHES: usize = 8;

/// How long a source that cannot be closed is read on after the end was asked for. More than any
/// buffer takes.
const LAST_ORDERS: Duration = Duration::from_millis(500);

/// The function of [`super::Sink::Call`], shared by the readers.
pub(super) type Call = Arc<Mutex<PerPacket>>;

pub(super) fn shared(call: PerPacket) -> Call {
    Arc::new(Mutex::new(call))
}

pub(super) enum Output {
    Discard,
    Feed(Feed),
    Call(Call),
}

impl Output {
    /// See [`Feed::has_some`].
    fn has_some(&self) -> bool {
        matches!(self, Self::Feed(feed) if feed.has_some())
    }

    /// See [`Feed::rest`].
    fn rest(&self, resting: bool) {
        if let Self::Feed(feed) = self {
            feed.rest(resting);
        }
    }
}

/// What happens to each frame.
pub(super) struct Taker {
    pub(super) output: Output,
    /// The filter, if it runs here.
    pub(super) filter: Option<Arc<Filter>>,
    pub(super) interface: u32,
    pub(super) affairs: Arc<Affairs>,
}

/// What a round of batches did; goes into the account when it is dropped, also by a panic.
struct Round<'a> {
    account: &'a Account,
    taken: u64,
    bytes: u64,
    /// Frames that the filter in user space turned away.
    rejected: u64,
    /// The time of those frames that the source does not stamp.
    stamp: Option<Timestamp>,
}

impl<'a> Round<'a> {
    fn new(account: &'a Account) -> Self {
        Self { account, taken: 0, bytes: 0, rejected: 0, stamp: None }
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.account.add(self.taken, self.bytes, self.rejected);
    }
}

impl Taker {
    /// Filters and outputs one frame; false if no more are wanted.
    // Inlined for certain, as is all that a frame goes through: it then lives in registers, and is not
    // written and read again at each step.
    #[inline(always)]
    fn take(&mut self, frame: &Frame<'_>, round: &mut Round<'_>, scratch: &mut Vec<u8>) -> bool {
        !self.accepts(frame, round, scratch) || self.put(frame, round)
    }

    /// Whether the filter wants the frame.
    #[inline(always)]
    fn accepts(&self, frame: &Frame<'_>, round: &mut Round<'_>, scratch: &mut Vec<u8>) -> bool {
        if let Some(filter) = &self.filter
            && !filter.matches(frame.contiguous(scratch), frame.wire_len)
        {
            round.rejected += 1;
            return false;
        }
        true
    }

    /// Outputs one frame; false if no more are wanted.
    #[inline(always)]
    fn put(&mut self, frame: &Frame<'_>, round: &mut Round<'_>) -> bool {
        if !self.affairs.claim() {
            return false;
        }
        let wire_len = u64::from(frame.wire_len);
        let mut stamped = || {
            let mut frame = *frame;
            frame.timestamp.get_or_insert_with(|| *round.stamp.get_or_insert_with(now));
            frame
        };
        let more = match &mut self.output {
            Output::Discard => true,
            Output::Feed(feed) => {
                feed.push(&Record { frame: stamped(), interface: self.interface, comment: None });
                true
            }
            Output::Call(call) => {
                let frame = stamped();
                let more =
                    (call.lock().unwrap_or_else(PoisonError::into_inner))(&frame, self.interface);
                if !more {
                    // The other readers may wait for their next packet for a long time.
                    self.affairs.stop.store(true, Relaxed);
                }
                more
            }
        };
        round.taken += 1;
        round.bytes += wire_len;
        more
    }
}

pub(super) struct Reader {
    pub(super) source: Source,
    pub(super) taker: Taker,
    /// Splits super-packets behind the filter.
    pub(super) live: Option<Live>,
    pub(super) name: String,
    pub(super) pages: Arc<Vec<Page>>,
    pub(super) page: usize,
    pub(super) account: usize,
    pub(super) tell: Sender<Event>,
    pub(super) age: Duration,
    pub(super) cpu: Option<usize>,
    pub(super) outlive_interface: bool,
    pub(super) drop_privileges: bool,
}

impl Reader {
    /// Reads until the capture ends. A panic ends it for the other readers, too: without this they,
    /// and whoever waits for them, would wait for ever.
    pub(super) fn run(mut self) {
        let pages = Arc::clone(&self.pages);
        let account = &pages[self.page].accounts[self.account];
        let mut books = Books::default();
        for step in [Self::work, Self::leave] {
            let done = catch_unwind(AssertUnwindSafe(|| step(&mut self, account, &mut books)));
            if let Err(panic) = done {
                let thread = format!("reader of {}", self.name);
                self.taker.affairs.fail(Error::panicked(thread, &*panic));
                if let Output::Feed(feed) = &mut self.taker.output {
                    feed.mend();
                }
            }
        }
    }

    fn work(&mut self, account: &Account, books: &mut Books) {
        self.settle_in();
        let mut scratch = Vec::new();
        let mut down = false;
        let mut flushed = 0;
        let mut vain = 0_u32;
        let mut ending: Option<Ending> = None;
        loop {
            if ending.is_none() && self.taker.affairs.stop.load(Relaxed) {
                let stopped = self.source.stop();
                ending = Some(Ending { stopped, since: Instant::now() });
            }
            let timeout = match &ending {
                Some(_) => LAST_NAP,
                None if vain >= SLEEPY => SLEEP,
                None if self.taker.output.has_some() => NAP.min(self.age),
                None => NAP,
            };
            self.taker.output.rest(true);
            let waited = self.source.wait(timeout);
            self.taker.output.rest(false);
            let ready = match waited {
                Ok(ready) => ready,
                Err(linerate_ring::Error::InterfaceDown(_)) => {
                    down = true;
                    let _ = self.tell.send(Event::Down(self.name.clone()));
                    continue;
                }
                Err(linerate_ring::Error::InterfaceGone(_)) if self.outlive_interface => {
                    let _ = self.tell.send(Event::Gone(self.name.clone()));
                    break;
                }
                Err(error) => {
                    self.taker.affairs.fail(error.into());
                    break;
                }
            };
            vain = if ready { 0 } else { vain.saturating_add(1) };
            if ready && std::mem::take(&mut down) {
                let _ = self.tell.send(Event::Up(self.name.clone()));
            }
            let enough = self.round(&mut Round::new(account), &mut scratch);
            let now = Instant::now();
            self.tend(books, account, &mut flushed, now, !ready);
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

    /// The last counts of a source that lets nothing more in.
    fn leave(&mut self, account: &Account, books: &mut Books) {
        self.source.stop();
        if let Some(live) = &mut self.live {
            self.taker.affairs.add_split(&live.take_tally());
        }
        books.close(&self.source, account, self.taker.filter.is_some());
    }

    /// Takes some batches; true if the taker wants no more.
    fn round(&mut self, round: &mut Round<'_>, scratch: &mut Vec<u8>) -> bool {
        for _ in 0..BATCHES {
            let taker = &mut self.taker;
            // Decided here, and not for each frame.
            let drained = match &mut self.live {
                None => self.source.drain(|frame| taker.take(frame, round, scratch)),
                Some(live) => self.source.drain(|frame| {
                    !taker.accepts(frame, round, scratch)
                        || live.split(frame, |piece| taker.put(piece, round))
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

    /// What is due between batches: old buffers to the writer, counters into the ledger.
    fn tend(
        &mut self,
        books: &mut Books,
        account: &Account,
        flushed: &mut u64,
        now: Instant,
        idle: bool,
    ) {
        let filtered_here = self.taker.filter.is_some();
        if let Some(live) = &mut self.live {
            self.taker.affairs.add_split(&live.take_tally());
        }
        if let Output::Feed(feed) = &mut self.taker.output {
            let wanted = self.taker.affairs.flush.load(Relaxed);
            let age = if *flushed == wanted { self.age } else { Duration::ZERO };
            *flushed = wanted;
            feed.tick(now, age);
            if feed.is_closed() {
                self.taker.affairs.stop.store(true, Relaxed);
            }
            if !feed.take_stall().is_zero() {
                books.blame();
            }
        }
        let due = books.refreshed.is_none_or(|last| now.duration_since(last) >= REFRESH);
        if due {
            account.set_fill(self.source.fill().unwrap_or_default());
        }
        if due || (idle && books.blaming.is_some()) {
            books.refresh(&self.source, account, filtered_here, now, idle);
        }
    }

    fn settle_in(&self) {
        if let Some(cpu) = self.cpu
            && let Err(error) = cpu::pin(cpu)
        {
            tracing::warn!("cannot run a reader on CPU {cpu}: {error}");
        }
        // Turning frames away at the end takes a new program where the source is XDP; a packet
        // socket needs nothing any more.
        if self.drop_privileges && matches!(self.source, Source::Packet(_)) {
            crate::privilege::drop_all();
        }
    }
}

/// The end was asked for.
struct Ending {
    stopped: Stopped,
    since: Instant,
}

impl Ending {
    fn is_over(&self, ready: bool, now: Instant) -> bool {
        let since = now.duration_since(self.since);
        match self.stopped {
            Stopped::Whole => !ready,
            // A packet ring hands its last block over up to two timeouts later, and says so by
            // returning at once: `wait` with no patience is asked again until then.
            Stopped::Late => !ready && since > Duration::from_millis(60),
            Stopped::Open => !ready || since > LAST_ORDERS,
        }
    }
}

/// One reader's part of the ledger.
#[derive(Default)]
struct Books {
    refreshed: Option<Instant>,
    last: Drops,
    /// The counts before the reader had to wait for the writer.
    blaming: Option<Drops>,
    /// What was lost while it waited.
    moved: Drops,
}

impl Books {
    /// From the last refresh on, losses in the ring are the writer's.
    fn blame(&mut self) {
        self.blaming.get_or_insert(self.last);
    }

    fn refresh(
        &mut self,
        source: &Source,
        account: &Account,
        filtered_here: bool,
        now: Instant,
        idle: bool,
    ) {
        self.refreshed = Some(now);
        let Ok(counts) = source.counts() else { return };
        if let Some(before) = self.blaming {
            self.moved = self.moved.plus(counts.drops.ring_losses_since(&before));
            // The ring is empty: whatever is lost from now on is not the writer's any more.
            self.blaming = (!idle).then_some(counts.drops);
        }
        self.last = counts.drops;
        account.set(counts.received, counts.drops.blamed_on_writer(&self.moved), filtered_here);
    }

    fn close(&mut self, source: &Source, account: &Account, filtered_here: bool) {
        self.refresh(source, account, filtered_here, Instant::now(), true);
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
