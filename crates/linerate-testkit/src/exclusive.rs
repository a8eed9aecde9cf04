//! Who of the tests of one program may run beside whom.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What the tests of this process hold.
struct State {
    /// Threads that hold a [`Shared`].
    sharing: usize,
    /// Threads that wait for an [`Exclusive`].
    waiting: usize,
    /// Whether a thread holds an [`Exclusive`].
    exclusive: bool,
}

static STATE: Mutex<State> = Mutex::new(State { sharing: 0, waiting: 0, exclusive: false });
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// [`Shared`] guards of this thread.
    static SHARES: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread holds the [`Exclusive`].
    static IS_EXCLUSIVE: Cell<bool> = const { Cell::new(false) };
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(state: MutexGuard<'static, State>) -> MutexGuard<'static, State> {
    CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner)
}

/// Guards belong to the thread that took them.
type NotSend = PhantomData<MutexGuard<'static, ()>>;

/// This test runs beside others, but not beside one that holds an [`Exclusive`].
#[derive(Debug)]
#[must_use]
pub struct Shared(NotSend);

/// This test runs alone.
#[derive(Debug)]
#[must_use]
pub struct Exclusive {
    /// Whether an outer call of this thread holds it already.
    nested: bool,
    thread: NotSend,
}

/// Waits until no other test of this process runs exclusively, and keeps such tests waiting until the guard
/// is dropped. [`root_or_skip!`](crate::root_or_skip) calls this for its test.
pub fn shared() -> Shared {
    if SHARES.replace(SHARES.get() + 1) == 0 && !IS_EXCLUSIVE.get() {
        let mut state = state();
        while state.exclusive || state.waiting > 0 {
            state = wait(state);
        }
        state.sharing += 1;
    }
    Shared(PhantomData)
}

/// Waits until this test is the only one of its process that runs with privileges, and keeps it so until the
/// guard is dropped. For tests that use what the machine has only once (reserved huge pages, a network card),
/// that look at their whole process, or that need both CPUs to be in time.
pub fn exclusive() -> Exclusive {
    let nested = IS_EXCLUSIVE.replace(true);
    if !nested {
        let mut state = state();
        state.sharing -= usize::from(SHARES.get() > 0);
        state.waiting += 1;
        CHANGED.notify_all();
        while state.exclusive || state.sharing > 0 {
            state = wait(state);
        }
        state.waiting -= 1;
        state.exclusive = true;
    }
    Exclusive { nested, thread: PhantomData }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if SHARES.replace(SHARES.get() - 1) == 1 && !IS_EXCLUSIVE.get() {
            state().sharing -= 1;
            CHANGED.notify_all();
        }
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        let Self { nested, thread: PhantomData } = self;
        if *nested {
            return;
        }
        IS_EXCLUSIVE.set(false);
        let mut state = state();
        state.exclusive = false;
        state.sharing += usize::from(SHARES.get() > 0);
        CHANGED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::thread;
    use std::time::Duration;

    use super::{exclusive, shared};

    #[test]
    fn an_exclusive_test_runs_alone() {
        static RUNNING: AtomicU32 = AtomicU32::new(0);
        let share = || {
            let _outer = shared();
            let _inner = shared();
            RUNNING.fetch_add(1, SeqCst);
            thread::sleep(Duration::from_millis(1));
            RUNNING.fetch_sub(1, SeqCst);
        };
        let alone = || {
            let _shared = shared();
            let _exclusive = exclusive();
            let _nested = exclusive();
            assert_eq!(RUNNING.fetch_add(100, SeqCst), 0);
            thread::sleep(Duration::from_millis(1));
            assert_eq!(RUNNING.fetch_sub(100, SeqCst), 100);
        };
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..50).for_each(|_| share()));
                scope.spawn(|| (0..50).for_each(|_| alone()));
            }
        });
    }

    #[test]
    fn a_test_that_panics_lets_the_others_go_on() {
        let panics = || {
            let _shared = shared();
            let _exclusive = exclusive();
            panic!("on purpose");
        };
        assert!(thread::scope(|scope| scope.spawn(panics).join()).is_err());
        drop(exclusive());
    }
}
