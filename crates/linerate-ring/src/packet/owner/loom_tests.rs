//! Every interleaving of the program with a kernel written out here.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;

use super::*;

/// Two blocks or slots with one number for content.
struct Ring {
    status: [AtomicU32; 2],
    content: [UnsafeCell<u32>; 2],
}

// SAFETY: content is touched by the owner only; loom reports it when it is not.
unsafe impl Sync for Ring {}
// SAFETY: as above.
unsafe impl Send for Ring {}

impl Ring {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            status: [AtomicU32::new(0), AtomicU32::new(0)],
            content: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }
}

#[test]
fn a_block_is_read_whole_and_overwritten_only_when_given_back() {
    loom::model(|| {
        let ring = Ring::new();
        let kernel = {
            let ring = ring.clone();
            thread::spawn(move || {
                let mut filled = 0;
                for number in 1..=3 {
                    let block = filled % 2;
                    if ring.status[block].load(Ordering::Acquire) & STATUS_USER != 0 {
                        // No room: the frame is dropped.
                        continue;
                    }
                    // SAFETY: the status says that the block is the kernel's.
                    ring.content[block].with_mut(|content| unsafe { *content = number });
                    ring.status[block].store(STATUS_USER, Ordering::Release);
                    filled += 1;
                }
            })
        };
        let (mut current, mut last) = (0, 0);
        for _ in 0..2 {
            if is_filled(&ring.status[current]) {
                // SAFETY: the status says that the block is ours.
                let number = ring.content[current].with(|content| unsafe { *content });
                assert!(number > last, "{number} came after {last}");
                last = number;
                give_back(&ring.status[current]);
                current = 1 - current;
            } else {
                thread::yield_now();
            }
        }
        kernel.join().unwrap();
    });
}

#[test]
fn a_slot_is_sent_whole_and_refilled_only_when_available() {
    loom::model(|| {
        let ring = Ring::new();
        let kernel = {
            let ring = ring.clone();
            thread::spawn(move || {
                let (mut head, mut last) = (0, 0);
                for _ in 0..2 {
                    if ring.status[head].load(Ordering::Acquire) != libc::TP_STATUS_SEND_REQUEST {
                        thread::yield_now();
                        continue;
                    }
                    // SAFETY: the status says that the slot is the kernel's.
                    let number = ring.content[head].with(|content| unsafe { *content });
                    assert_eq!(number, last + 1);
                    last = number;
                    ring.status[head].store(libc::TP_STATUS_AVAILABLE, Ordering::Release);
                    head = 1 - head;
                }
            })
        };
        let mut sent = 0;
        for _ in 0..3 {
            let slot = sent as usize % 2;
            if is_available(&ring.status[slot]) {
                sent += 1;
                // SAFETY: the status says that the slot is ours.
                ring.content[slot].with_mut(|content| unsafe { *content = sent });
                request_sending(&ring.status[slot]);
            }
        }
        kernel.join().unwrap();
    });
}
