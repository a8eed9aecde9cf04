use std::cell::{Cell, RefCell};

use super::*;

/// A word of one thread.
#[derive(Default)]
struct Plain(Cell<u32>);

impl RingIndex for Plain {
    fn load(&self, _: Ordering) -> u32 {
        self.0.get()
    }
    fn store(&self, value: u32, _: Ordering) {
        self.0.set(value);
    }
}

/// A ring of one thread, both ends of which can be held at once.
struct Ring {
    producer: Plain,
    consumer: Plain,
    flags: Plain,
    slots: RefCell<Vec<u64>>,
}

impl Ring {
    fn new(slots: usize, start: u32) -> Self {
        let at = |value| Plain(Cell::new(value));
        let (producer, consumer, flags) = (at(start), at(start), at(0));
        Self { producer, consumer, flags, slots: RefCell::new(vec![u64::MAX; slots]) }
    }
}

#[derive(Clone, Copy)]
struct End<'r>(&'r Ring);

impl Memory for End<'_> {
    type Entry = u64;
    fn producer(&self) -> &impl RingIndex {
        &self.0.producer
    }
    fn consumer(&self) -> &impl RingIndex {
        &self.0.consumer
    }
    fn flags(&self) -> &impl RingIndex {
        &self.0.flags
    }
    fn slots(&self) -> u32 {
        self.0.slots.borrow().len() as u32
    }
    fn fence(&self) {}
    unsafe fn read(&self, index: u32) -> u64 {
        self.0.slots.borrow()[(index & (self.slots() - 1)) as usize]
    }
    unsafe fn write(&self, index: u32, entry: u64) {
        let at = (index & (self.slots() - 1)) as usize;
        self.0.slots.borrow_mut()[at] = entry;
    }
}

/// The tests that index arithmetic breaks in start just before the indices wrap.
const WRAP: u32 = u32::MAX - 2;

#[test]
fn a_full_ring_takes_nothing_and_an_empty_one_gives_nothing() {
    let ring = Ring::new(4, WRAP);
    let (mut producer, mut consumer) = (Producer::new(End(&ring)), Consumer::new(End(&ring)));
    assert_eq!((consumer.ready(), consumer.pop()), (0, None));
    assert_eq!(producer.free(9), 4);
    for n in 0..4 {
        assert!(producer.push(n));
    }
    assert!(!producer.push(4), "the fifth has no slot");
    assert_eq!(consumer.ready(), 0, "nothing is published yet");
    producer.publish();
    assert_eq!(consumer.ready(), 4);
    assert_eq!((consumer.peek(3), consumer.peek(4)), (Some(3), None));
    assert_eq!([consumer.pop(), consumer.pop()], [Some(0), Some(1)]);
    assert!(!producer.push(4), "popped is not released");
    consumer.release();
    assert_eq!(producer.free(9), 2);
    assert!(producer.push(4) && producer.push(5) && !producer.push(6));
    assert_eq!(producer.outstanding(), 4);
}

#[test]
fn everything_comes_out_once_and_in_order_over_many_laps() {
    let ring = Ring::new(8, WRAP);
    let (mut producer, mut consumer) = (Producer::new(End(&ring)), Consumer::new(End(&ring)));
    let (mut sent, mut got) = (0, 0);
    for lap in 0..1000u64 {
        for _ in 0..=lap % 8 {
            sent += u64::from(producer.push(sent));
        }
        producer.publish();
        for _ in 0..(lap * 5) % 9 {
            if consumer.ready() == 0 {
                break;
            }
            assert_eq!(consumer.pop(), Some(got));
            got += 1;
        }
        consumer.release();
    }
    assert!(sent > 2000 && sent - got <= 8);
}

#[test]
fn the_wakeup_flag_is_one_bit_of_the_word() {
    let ring = Ring::new(2, 0);
    let producer = Producer::new(End(&ring));
    assert!(!producer.need_wakeup());
    ring.flags.0.set(0b10);
    assert!(!producer.need_wakeup());
    ring.flags.0.set(0b11);
    assert!(producer.need_wakeup());
}
