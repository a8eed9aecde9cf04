//! Every interleaving of readers with programs written out here. A wake-up that is lost leaves the
//! reader asleep, which loom reports as a deadlock.

use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::sync::{Arc, Notify};
use loom::thread;

use super::*;

/// What a record is.
const BUSY: u32 = 1;
const FRAME: u32 = 2;
const DISCARDED: u32 = 3;

/// A ring buffer with as many records as the test needs, and the word of its reader.
struct Ring {
    producer: AtomicU32,
    records: [AtomicU32; 4],
    waiting: AtomicU32,
    /// Wake-ups that were sent.
    wakeups: AtomicU32,
}

/// The ring buffers, and the descriptor on which the reader sleeps.
struct Shared {
    rings: Vec<Ring>,
    edge: Notify,
}

impl Shared {
    fn new(rings: usize) -> Arc<Self> {
        let ring = |_| Ring {
            producer: AtomicU32::new(0),
            records: std::array::from_fn(|_| AtomicU32::new(0)),
            waiting: AtomicU32::new(0),
            wakeups: AtomicU32::new(0),
        };
        Arc::new(Self { rings: (0..rings).map(ring).collect(), edge: Notify::new() })
    }

    fn wakeups(&self) -> u32 {
        self.rings.iter().map(|ring| ring.wakeups.load(Ordering::Relaxed)).sum()
    }
}

impl Ring {
    /// `bpf_ringbuf_reserve` and `bpf_ringbuf_submit`, with what happens in between.
    fn commit(&self, record: u32, between: impl FnOnce()) {
        let at = self.producer.load(Ordering::Relaxed);
        self.records[at as usize].store(BUSY, Ordering::Relaxed);
        self.producer.store(at + 1, Ordering::Release);
        between();
        self.records[at as usize].store(record, Ordering::Release);
        // The exchange of the header is a full barrier in the kernel.
        fence(Ordering::SeqCst);
    }

    /// `copy` of `bpf/tee.bpf.c` and `wake_reader` of `bpf/records.h`.
    fn copy(&self, edge: &Notify) {
        self.commit(FRAME, || ());
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.commit(DISCARDED, || self.waiting.store(0, Ordering::Relaxed));
            self.wakeups.fetch_add(1, Ordering::Relaxed);
            edge.notify();
        }
    }
}

struct Reader {
    shared: Arc<Shared>,
    sleep: SleepState,
    positions: Vec<u32>,
    released: Vec<u32>,
    wakeups: u64,
    announcements: std::cell::Cell<u32>,
}

impl Reader {
    fn new(shared: Arc<Shared>) -> Self {
        let positions = vec![0; shared.rings.len()];
        Self {
            released: positions.clone(),
            positions,
            shared,
            sleep: SleepState::default(),
            wakeups: 0,
            announcements: 0.into(),
        }
    }

    /// The ring of the next frame. Passes over records that carry wake-ups.
    fn next(&mut self) -> Option<usize> {
        for (number, ring) in self.shared.rings.iter().enumerate() {
            let position = &mut self.positions[number];
            while *position != ring.producer.load(Ordering::Acquire) {
                match ring.records[*position as usize].load(Ordering::Acquire) {
                    DISCARDED => self.wakeups += 1,
                    FRAME => return Some(number),
                    _ => break,
                }
                *position += 1;
            }
        }
        None
    }

    /// Reads until nothing is left, as before `WouldBlock`; how many frames.
    fn drain(&mut self) -> u32 {
        let mut frames = 0;
        while self.arm() {
            let ring = self.next().expect("a frame");
            self.positions[ring] += 1;
            frames += 1;
        }
        self.released.clone_from(&self.positions);
        frames
    }

    /// Sleeps on the descriptor. Epoll drops an edge if a ring holds nothing that was not given back.
    fn sleep(&self) {
        loop {
            self.shared.edge.wait();
            if self.is_pending() {
                return;
            }
        }
    }

    /// Reads `frames` frames. With `restless` the reader looks twice before it sleeps, as one that something else wakes.
    fn read(&mut self, frames: u32, restless: bool) {
        let mut count = 0;
        loop {
            count += self.drain();
            if restless {
                count += self.drain();
            }
            if count == frames {
                break;
            }
            self.sleep();
        }
        // Each announcement brings one wake-up from each ring at most, and a reader that is awake brings none.
        let most = self.announcements.get() * self.shared.rings.len() as u32;
        assert!(self.shared.wakeups() <= most, "woken while awake");
    }
}

impl Reader {
    /// Reads `frames` frames as one that is always armed and sleeps after each, without a look. Epoll has a ring on its
    /// list, or not: a wake-up puts it there, and a look that finds it empty takes it off.
    fn read_armed(&mut self, frames: u32) {
        let mut count = 0;
        self.keep_armed();
        while count < frames {
            if self.has_frame() {
                let ring = self.next().expect("a frame");
                self.positions[ring] += 1;
                count += 1;
            } else {
                // A record that is being written keeps a ring readable.
                thread::yield_now();
            }
            // The batch is dropped.
            self.released.clone_from(&self.positions);
            self.set_waiting();
            while count < frames && !self.is_pending() {
                // Off the list, until it is woken.
                self.shared.edge.wait();
            }
        }
    }

    /// Whether a ring holds something that was not given back.
    fn is_pending(&self) -> bool {
        let mut rings = self.shared.rings.iter().zip(&self.released);
        rings.any(|(ring, released)| ring.producer.load(Ordering::Acquire) != *released)
    }
}

impl Sleeper for Reader {
    fn sleep_state(&self) -> &SleepState {
        &self.sleep
    }
    fn is_readable(&mut self) -> bool {
        self.next().is_some()
    }
    fn is_withholding(&mut self) -> bool {
        false
    }
    fn wakeups(&self) -> u64 {
        self.wakeups
    }
    fn set_waiting(&self) {
        self.announcements.set(self.announcements.get() + 1);
        self.shared.rings.iter().for_each(|ring| ring.waiting.store(1, Ordering::Relaxed));
        fence(Ordering::SeqCst);
    }
    fn clear_waiting(&self) {
        self.shared.rings.iter().for_each(|ring| ring.waiting.store(0, Ordering::Relaxed));
    }
}

/// Runs `rings` programs that copy `frames` frames each, and a reader, with as many preemptions as a second allows.
fn model(rings: usize, frames: u32, read: fn(&mut Reader, u32)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let shared = Shared::new(rings);
        let programs: Vec<_> = (0..rings)
            .map(|ring| {
                let shared = shared.clone();
                thread::spawn(move || {
                    (0..frames).for_each(|_| shared.rings[ring].copy(&shared.edge));
                })
            })
            .collect();
        read(&mut Reader::new(shared), frames * rings as u32);
        programs.into_iter().for_each(|program| program.join().unwrap());
    });
}

#[test]
fn a_reader_that_announces_when_it_finds_nothing_is_woken() {
    model(1, 2, |reader, frames| reader.read(frames, false));
}

#[test]
fn a_reader_that_announces_again_is_woken() {
    model(1, 2, |reader, frames| reader.read(frames, true));
}

#[test]
fn a_reader_of_several_rings_is_woken() {
    model(2, 1, |reader, frames| reader.read(frames, false));
}

#[test]
fn a_reader_that_is_kept_armed_is_woken() {
    model(1, 2, Reader::read_armed);
}
