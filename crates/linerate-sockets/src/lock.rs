//! A lock between threads and processes that share memory.
//!
//! The C library's cannot be left by a signal handler's siglongjmp(3), which recv(2) allows. Here one store takes and
//! one gives back, so that the next who wants it can tell that the owner is no more.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use libc::timespec;

/// Somebody waits.
const WAITED: u32 = 1 << 31;
/// Then the owner is looked for: it may have been killed.
static PATIENCE: timespec = timespec { tv_sec: 0, tv_nsec: 10_000_000 };

thread_local! {
    /// gettid(2), or 0: it would be a system call.
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// All zeros if nobody has it.
#[repr(C)]
pub(crate) struct Lock {
    /// The thread that has it, and `WAITED`.
    owner: AtomicU32,
    /// Where the owner's stack was.
    frame: AtomicUsize,
}

impl Lock {
    pub(crate) const fn new() -> Self {
        Self { owner: AtomicU32::new(0), frame: AtomicUsize::new(0) }
    }

    /// Waits for the lock. False in a signal handler that interrupted its owner.
    #[inline]
    pub(crate) fn lock(&self) -> bool {
        let here = 0_u8;
        let frame = (&raw const here).addr();
        let thread = thread();
        // SeqCst, as one of a counter of waiting threads and `is_free` must see the other.
        if self.owner.compare_exchange(0, thread, Ordering::SeqCst, Ordering::Relaxed).is_err()
            && !self.wait(thread, frame)
        {
            return false;
        }
        self.frame.store(frame, Ordering::Relaxed);
        true
    }

    #[cold]
    fn wait(&self, thread: u32, frame: usize) -> bool {
        loop {
            let owner = self.owner.load(Ordering::Relaxed);
            let order = Ordering::SeqCst;
            if owner & !WAITED == thread {
                // A handler is below the frame of the call that it interrupts. Otherwise siglongjmp has left that call.
                return frame >= self.frame.load(Ordering::Relaxed);
            }
            if owner & !WAITED == 0 {
                // Others may wait, too.
                if self.owner.compare_exchange(owner, thread | WAITED, order, order).is_ok() {
                    return true;
                }
                continue;
            }
            let waited = owner | WAITED;
            if self.owner.compare_exchange(owner, waited, order, order).is_err() {
                continue;
            }
            // SAFETY: a word of shared memory. libc's `syscall` is this library's, which passes it on.
            let timed_out = unsafe {
                crate::next::syscall(
                    libc::SYS_futex,
                    self.owner.as_ptr() as i64,
                    libc::FUTEX_WAIT.into(),
                    waited.into(),
                    (&raw const PATIENCE) as i64,
                    0,
                    0,
                )
            } < 0
                && crate::next::errno() == libc::ETIMEDOUT;
            let is_dead = timed_out && has_ended(owner & !WAITED);
            if is_dead && self.owner.compare_exchange(waited, thread | WAITED, order, order).is_ok()
            {
                return true;
            }
        }
    }

    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.owner.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn unlock(&self) {
        if self.owner.swap(0, Ordering::Release) & WAITED != 0 {
            // SAFETY: as above. One that wakes up sets `WAITED` again, for the others.
            unsafe {
                crate::next::syscall(
                    libc::SYS_futex,
                    self.owner.as_ptr() as i64,
                    libc::FUTEX_WAKE.into(),
                    1,
                    ptr::null::<timespec>() as i64,
                    0,
                    0,
                );
            }
        }
    }

    /// For a new process, in which no other thread is.
    pub(crate) fn reset(&self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

/// Whether a thread is no more, or is a zombie.
fn has_ended(thread: u32) -> bool {
    // SAFETY: no signal is sent.
    let is_gone =
        unsafe { libc::kill(thread as i32, 0) } < 0 && crate::next::errno() == libc::ESRCH;
    is_gone
        || std::fs::read_to_string(format!("/proc/{thread}/stat"))
            .is_ok_and(|stat| stat.contains(") Z "))
}

#[inline]
fn thread() -> u32 {
    let known = THREAD.get();
    if known != 0 {
        return known;
    }
    // SAFETY: a query.
    let thread = unsafe { libc::gettid() } as u32;
    THREAD.set(thread);
    thread
}

/// This thread is in a new process.
pub(crate) fn forget_thread() {
    THREAD.set(0);
}
