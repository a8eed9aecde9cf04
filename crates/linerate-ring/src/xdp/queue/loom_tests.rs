//! The protocol under loom: every interleaving, with the reorderings that the memory model allows.
//! The "kernel" is the other end of the same code, or written out where it differs.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, fence};
use loom::thread;

use super::*;

impl RingIndex for AtomicU32 {
    fn load(&self, ordering: Ordering) -> u32 {
        AtomicU32::load(self, ordering)
    }
    fn store(&self, value: u32, ordering: Ordering) {
        AtomicU32::store(self, value, ordering);
    }
}

/// An entry of two words, to see it torn.
type Entry = [u32; 2];

struct Ring {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    slots: Vec<UnsafeCell<Entry>>,
}

// SAFETY: slots are touched as the protocol allows; loom reports it when they are not.
unsafe impl Sync for Ring {}
// SAFETY: as above.
unsafe impl Send for Ring {}

impl Ring {
    fn new(slots: usize) -> Arc<Self> {
        Arc::new(Self {
            producer: AtomicU32::new(u32::MAX),
            consumer: AtomicU32::new(u32::MAX),
            flags: AtomicU32::new(0),
            slots: (0..slots).map(|_| UnsafeCell::new([0; 2])).collect(),
        })
    }
}

impl Memory for Arc<Ring> {
    type Entry = Entry;
    fn producer(&self) -> &impl RingIndex {
        &self.producer
    }
    fn consumer(&self) -> &impl RingIndex {
        &self.consumer
    }
    fn flags(&self) -> &impl RingIndex {
        &self.flags
    }
    fn slots(&self) -> u32 {
        self.slots.len() as u32
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
    unsafe fn read(&self, index: u32) -> Entry {
        // SAFETY: the caller owns the slot; loom checks.
        self.slots[index as usize % self.slots.len()].with(|slot| unsafe { *slot })
    }
    unsafe fn write(&self, index: u32, entry: Entry) {
        // SAFETY: as above.
        self.slots[index as usize % self.slots.len()].with_mut(|slot| unsafe { *slot = entry });
    }
}

#[test]
fn loom_no_entry_is_lost_doubled_or_torn() {
    loom::model(|| {
        const ENTRIES: u32 = 3;
        let ring = Ring::new(2);
        let theirs = Arc::clone(&ring);
        let producer = thread::spawn(move || {
            let mut producer = Producer::new(theirs);
            let mut next = 1;
            while next <= ENTRIES {
                if producer.push([next, !next]) {
                    next += 1;
                    producer.publish();
                } else {
                    thread::yield_now();
                }
            }
        });
        let mut consumer = Consumer::new(ring);
        let mut expected = 1;
        while expected <= ENTRIES {
            if consumer.ready() == 0 {
                thread::yield_now();
                continue;
            }
            while let Some(entry) = consumer.pop() {
                assert_eq!(entry, [expected, !expected]);
                expected += 1;
            }
            consumer.release();
        }
        producer.join().unwrap();
    });
}

#[test]
fn loom_batches_publish_all_or_nothing_of_what_was_pushed() {
    loom::model(|| {
        let ring = Ring::new(4);
        let theirs = Arc::clone(&ring);
        let producer = thread::spawn(move || {
            let mut producer = Producer::new(theirs);
            assert!(producer.push([1, !1]) && producer.push([2, !2]));
            producer.publish();
        });
        let mut consumer = Consumer::new(ring);
        let ready = consumer.ready();
        assert!(ready == 0 || ready == 2, "half a batch: {ready}");
        for n in 1..=ready {
            assert_eq!(consumer.pop(), Some([n, !n]));
        }
        producer.join().unwrap();
    });
}

/// A chunk goes round: fill ring, "kernel", receive ring, reader, fill ring. Whoever holds its
/// number may write to it; loom reports it if two ever do. The fill ring has two slots a chunk, as
/// [`Socket`](super::super::Socket) makes it: with one, there would be no room in it now and then.
#[test]
fn loom_a_chunk_has_one_owner_all_the_way_round() {
    loom::model(|| {
        let (fill, receive) = (Ring::new(2), Ring::new(1));
        let chunk = Arc::new(UnsafeCell::new(0u32));
        let kernel = {
            let (fill, receive, chunk) = (fill.clone(), receive.clone(), chunk.clone());
            thread::spawn(move || {
                let (mut fill, mut receive) = (Consumer::new(fill), Producer::new(receive));
                for n in 1..=2 {
                    while fill.ready() == 0 {
                        thread::yield_now();
                    }
                    let entry = fill.pop().unwrap();
                    // SAFETY: the fill ring gave us the chunk; loom checks.
                    chunk.with_mut(|bytes| unsafe { *bytes = n });
                    assert!(receive.push(entry));
                    // In this order (`xsk_flush`): the chunk is back before its former slot is free.
                    receive.publish();
                    fill.release();
                }
            })
        };
        let (mut fill, mut receive) = (Producer::new(fill), Consumer::new(receive));
        assert!(fill.push([7, !7]));
        fill.publish();
        for n in 1..=2 {
            while receive.ready() == 0 {
                thread::yield_now();
            }
            let entry = receive.pop().unwrap();
            // SAFETY: the receive ring gave us the chunk; loom checks.
            chunk.with(|bytes| assert_eq!(unsafe { *bytes }, n));
            assert!(fill.push(entry));
            // In this order: the receive ring has one slot a chunk.
            receive.release();
            fill.publish();
        }
        kernel.join().unwrap();
    });
}

/// The two sides of the comment at [`Producer::need_wakeup`]: either the producer sees that the
/// kernel wants waking, or the kernel sees the entry before it sleeps.
#[test]
fn loom_no_wakeup_is_lost() {
    loom::model(|| {
        let ring = Ring::new(2);
        let work_seen = Arc::new(AtomicBool::new(false));
        let kernel = {
            let (ring, work_seen) = (Arc::clone(&ring), Arc::clone(&work_seen));
            thread::spawn(move || {
                ring.flags.store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                let mut fill = Consumer::new(ring);
                work_seen.store(fill.ready() != 0, Ordering::Relaxed);
            })
        };
        let mut fill = Producer::new(ring);
        assert!(fill.push([1, !1]));
        fill.publish();
        let woken = fill.need_wakeup();
        kernel.join().unwrap();
        assert!(woken || work_seen.load(Ordering::Relaxed), "both sides sleep");
    });
}
