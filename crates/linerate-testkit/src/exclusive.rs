//! Who of the tests of a machine may run beside whom: [`shared`] and [`exclusive`].
//!
//! Locks of two files that all test programs of a user have in common. They end with the program that holds them.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::{LazyLock, MutexGuard};

thread_local! {
    /// [`Shared`] guards of this thread.
    static SHARES: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread holds the [`Exclusive`].
    static IS_EXCLUSIVE: Cell<bool> = const { Cell::new(false) };
    /// What this thread holds.
    static HELD: RefCell<Option<Lock>> = const { RefCell::new(None) };
}

/// This process belongs to a test that has started its own program once more: what that test holds is enough.
static IS_CHILD: LazyLock<bool> = LazyLock::new(|| {
    let program = |process: u32| std::fs::read_link(format!("/proc/{process}/exe")).ok();
    let parent = |process: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // After the name, which may have any characters: the state and the parent.
        stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
    };
    let own: Option<PathBuf> = program(std::process::id());
    std::iter::successors(parent(std::process::id()), |process| parent(*process))
        .any(|process| own.is_some() && program(process) == own)
});

/// A locked file.
struct Lock(File);

impl Lock {
    fn take(name: &str, lock: impl FnOnce(&File) -> std::io::Result<()>) -> Self {
        let uid = nix::unistd::getuid();
        let path = std::env::temp_dir().join(format!("linerate-tests-{uid}.{name}"));
        let file = File::options().create(true).append(true).open(&path);
        let file = file.and_then(|file| lock(&file).map(|()| file));
        Self(file.unwrap_or_else(|error| panic!("cannot lock {}: {error}", path.display())))
    }

    /// Who waits for all others holds the gate, so that nobody new comes in meanwhile.
    fn turn(lock: impl FnOnce(&File) -> std::io::Result<()>) -> Option<Self> {
        if *IS_CHILD {
            return None;
        }
        let _gate = Self::take("gate", File::lock);
        Some(Self::take("turn", lock))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A forked process may have the file open as well.
        let _ = self.0.unlock();
    }
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

/// Waits until no other test runs exclusively, and keeps such tests waiting until the guard is dropped.
/// [`root_or_skip!`](crate::root_or_skip) calls this for its test.
pub fn shared() -> Shared {
    if SHARES.replace(SHARES.get() + 1) == 0 && !IS_EXCLUSIVE.get() {
        HELD.set(Lock::turn(File::lock_shared));
    }
    Shared(PhantomData)
}

/// Waits until this test is the only one that runs with privileges, and keeps it so until the guard is dropped. For
/// tests that use what the machine has only once (reserved huge pages, a network card), that look at their whole
/// process, or that need both CPUs to be in time.
pub fn exclusive() -> Exclusive {
    let nested = IS_EXCLUSIVE.replace(true);
    if !nested {
        HELD.set(None);
        HELD.set(Lock::turn(File::lock));
    }
    Exclusive { nested, thread: PhantomData }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if SHARES.replace(SHARES.get() - 1) == 1 && !IS_EXCLUSIVE.get() {
            HELD.set(None);
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
        HELD.set(None);
        if SHARES.get() > 0 {
            HELD.set(Lock::turn(File::lock_shared));
        }
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
                scope.spawn(|| (0..5).for_each(|_| alone()));
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
