//! Every order in which a reader, a learner and the ager of a session can meet, as loom sees them. The
//! guarded memory of a session is a key, what is done to its packets, and the generation that makes it
//! valid, which is ended without the lock.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, fence};
use loom::thread;

use super::*;

impl SeqCount for AtomicU32 {
    fn load(&self, ordering: Ordering) -> u32 {
        Self::load(self, ordering)
    }

    fn store(&self, value: u32, ordering: Ordering) {
        Self::store(self, value, ordering);
    }

    fn exchange(&self, current: u32, new: u32) -> bool {
        self.compare_exchange(current, new, AcqRel, Relaxed).is_ok()
    }

    fn fence(ordering: Ordering) {
        fence(ordering);
    }
}

#[derive(Default)]
struct Place {
    version: AtomicU32,
    generation: AtomicU32,
    key: AtomicU32,
    action: AtomicU32,
}

const ENDED: u32 = 0x8000_0000;
const FREE: u32 = 0;

impl Place {
    fn of(key: u32, generation: u32) -> Arc<Self> {
        let place = Self::default();
        place.key.store(key, Relaxed);
        place.action.store(key, Relaxed);
        place.generation.store(generation, Relaxed);
        Arc::new(place)
    }

    /// Puts `key` in if the place is free.
    fn learn(&self, key: u32, generation: u32) -> bool {
        let version = self.version.load(Acquire);
        if self.key.load(Relaxed) != FREE {
            return false;
        }
        let Some(_guard) = WriteGuard::try_lock_at_version(&self.version, version) else {
            return false;
        };
        if self.key.load(Relaxed) != FREE {
            return false;
        }
        let before = self.generation.load(Relaxed);
        self.key.store(key, Relaxed);
        self.action.store(key, Relaxed);
        self.generation.compare_exchange(before, generation, SeqCst, Relaxed).is_ok()
    }

    fn read(&self) -> Option<(u32, (u32, u32))> {
        let copy = || Some((self.key.load(Relaxed), self.action.load(Relaxed)));
        super::read(&self.version, 1, copy)
    }
}

#[test]
fn loom_a_reader_sees_one_session_and_not_two_halves() {
    loom::model(|| {
        let place = Place::of(FREE, 0);
        let writers: Vec<_> = [11, 12]
            .into_iter()
            .map(|key| {
                let place = Arc::clone(&place);
                thread::spawn(move || place.learn(key, 1))
            })
            .collect();
        if let Some((_, (key, action))) = place.read() {
            assert_eq!(key, action);
        }
        let learned = writers.into_iter().map(|writer| writer.join().unwrap());
        assert_eq!(learned.filter(|learned| *learned).count(), 1, "one of two gets the place");
        let (_, (key, action)) = place.read().expect("nobody writes any more");
        assert!(key == action && key != FREE);
    });
}

/// The ager ended session 11 and comes back to free its place, while 11 is learned again, ended, and (its
/// place free) 12 is learned.
#[test]
fn loom_a_place_is_freed_only_while_it_is_as_it_was_condemned() {
    loom::model(|| {
        let place = Place::of(11, ENDED | 2);
        let condemned = (place.version.load(Acquire), ENDED | 2);
        let learner = {
            let place = Arc::clone(&place);
            thread::spawn(move || {
                // Learns 11 again under the lock, or 12 if the place is free by then.
                if let Some(guard) = WriteGuard::try_lock_at_version(&place.version, condemned.0) {
                    let key = place.key.load(Relaxed);
                    let again =
                        place.generation.compare_exchange(ENDED | 2, 2, SeqCst, Relaxed).is_ok();
                    drop(guard);
                    // And its connection closes: the same number as before.
                    if again && key == 11 {
                        place.generation.compare_exchange(2, ENDED | 2, SeqCst, Relaxed).unwrap();
                        return Some(11);
                    }
                }
                place.learn(12, 3).then_some(12)
            })
        };
        let freed = match WriteGuard::try_lock_at_version(&place.version, condemned.0) {
            Some(_guard) if place.generation.load(Relaxed) == condemned.1 => {
                place.key.store(FREE, Relaxed);
                true
            }
            _ => false,
        };
        let learned = learner.join().unwrap();
        let (_, (key, _)) = place.read().expect("nobody writes any more");
        match learned {
            // Learned again after it was condemned: it stays, though the generation looks the same.
            Some(11) => assert!(!freed && key == 11),
            Some(12) => assert!(freed && key == 12),
            _ => assert!(key == FREE || key == 11),
        }
    });
}
