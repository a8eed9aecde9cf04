//! [`Sockets`]: packet sockets with rings in huge pages, and the program's mappings of that memory.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::{self, ManuallyDrop};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};

use super::descriptors::descriptors;
use super::kernel;
use super::memory::Memory;

/// A request for a ring, as the program wrote it; the longest is `struct tpacket_req3`.
pub(super) type RingRequest = Vec<u8>;

/// A socket with rings, in huge pages where possible.
#[derive(Debug, Default)]
pub(super) struct Socket {
    /// One of its descriptors; none once the program has closed all of them.
    pub(super) descriptor: Option<c_int>,
    /// Its receive ring and its transmit ring.
    pub(super) rings: [Option<RingRequest>; 2],
    /// The rings are in usual memory: one could not be in huge pages.
    pub(super) is_fallback: bool,
    /// Their memory, if the kernel did not allocate it.
    pub(super) lent: Option<LentMemory>,
}

/// Memory that is lent to the kernel.
#[derive(Debug)]
pub(super) struct LentMemory {
    pub(super) memory: Memory,
    /// Where its rings start, and their bytes: the program maps this range.
    pub(super) offset: usize,
    pub(super) len: usize,
    /// How often the program has mapped it, less how often it unmapped it.
    pub(super) mapped: u32,
}

impl LentMemory {
    fn start(&self) -> *mut c_void {
        self.memory.from(self.offset).cast()
    }
}

/// All sockets with rings, by socket cookie.
pub(super) type Sockets = BTreeMap<u64, Socket>;

static SOCKETS: Mutex<Sockets> = Mutex::new(BTreeMap::new());

/// The process that owns the sockets, once there are any. A child of `vfork` shares this memory with its
/// parent, but closes only its own descriptors.
static OWNER: AtomicI32 = AtomicI32::new(0);

// Neither has a destructor, so both live as long as the thread.
thread_local! {
    /// Whether this thread uses the sockets.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// The lock, held while this thread forks.
    static HELD: Cell<Option<ManuallyDrop<MutexGuard<'static, Sockets>>>> =
        const { Cell::new(None) };
}

/// Whether this process has such sockets.
pub(super) fn any() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner == kernel::process()
}

/// Runs `work` on the sockets and preserves `errno`. `None` where this thread uses them already: in an
/// allocator that maps memory, or in a signal handler.
pub(super) fn with<T>(work: impl FnOnce(&mut Sockets) -> T) -> Option<T> {
    exclusively(|| Some(work(&mut lock())))
}

/// The same for calls that a signal handler may make. It does not block: another thread may wait for this
/// one.
pub(super) fn try_with<T>(work: impl FnOnce(&mut Sockets) -> T) -> Option<T> {
    exclusively(|| {
        for _ in 0..1000 {
            match SOCKETS.try_lock() {
                Ok(mut sockets) => return Some(work(&mut sockets)),
                Err(TryLockError::Poisoned(error)) => return Some(work(&mut error.into_inner())),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        None
    })
}

fn exclusively<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    if INSIDE.replace(true) {
        return None;
    }
    let errno = kernel::errno();
    let result = work();
    kernel::set_errno(errno);
    INSIDE.set(false);
    result
}

fn lock() -> MutexGuard<'static, Sockets> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts tracking sockets. From now on a child of `fork` finds them consistent, whatever other threads do
/// meanwhile.
pub(super) fn start_tracking() {
    extern "C" fn before() {
        if !INSIDE.replace(true) {
            HELD.set(Some(ManuallyDrop::new(lock())));
        }
    }
    extern "C" fn after() {
        if let Some(guard) = HELD.take() {
            drop(ManuallyDrop::into_inner(guard));
            INSIDE.set(false);
        }
    }
    extern "C" fn after_in_child() {
        OWNER.store(kernel::process(), Ordering::Relaxed);
        after();
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions take nothing, and live as long as this library, which is not unloaded before the
        // process ends.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after_in_child)) };
        OWNER.store(kernel::process(), Ordering::Relaxed);
    });
}

/// The memory for an `mmap` of the socket; `None` for a socket without lent memory.
pub(super) fn map(
    sockets: &mut Sockets,
    cookie: u64,
    len: usize,
    flags: c_int,
    offset: libc::off_t,
) -> Option<io::Result<*mut c_void>> {
    let lent = sockets.get_mut(&cookie)?.lent.as_mut()?;
    // The kernel's rules for rings, except for the address, which is given.
    let is_fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    if offset != 0 || whole_pages(len) != lent.len || is_fixed {
        return Some(Err(io::Error::from_raw_os_error(libc::EINVAL)));
    }
    lent.mapped += 1;
    Some(Ok(lent.start()))
}

/// Unmaps a mapping of [`map`]; false for any other. If only a part is unmapped, the memory belongs to the
/// program from then on.
pub(super) fn unmap(sockets: &mut Sockets, address: *mut c_void, len: usize) -> bool {
    let is_in = |socket: &&mut Socket| {
        socket.lent.as_ref().is_some_and(|lent| lent.memory.overlaps(address.addr(), len))
    };
    let Some(socket) = sockets.values_mut().find(is_in) else { return false };
    let is_closed = socket.descriptor.is_none();
    let Some(mut lent) = socket.lent.take() else { return false };
    if lent.start() != address || lent.len != whole_pages(len) {
        mem::forget(lent.memory);
        return false;
    }
    lent.mapped = lent.mapped.saturating_sub(1);
    // The memory stays for another `mmap`, as a ring of the kernel does.
    if lent.mapped > 0 || !is_closed {
        socket.lent = Some(lent);
    }
    true
}

/// Handles the `close` of a descriptor. Frees no memory of the allocator: a signal handler may close it.
pub(super) fn closed(sockets: &mut Sockets, cookie: u64, descriptor: c_int) {
    let Some(socket) = sockets.get_mut(&cookie) else { return };
    if socket.descriptor != Some(descriptor) {
        return;
    }
    // If that is unknown, there may be another descriptor.
    let Ok(other) = descriptors(|fd| kernel::cookie(fd) == Some(cookie)) else { return };
    socket.descriptor = other;
    if other.is_none() && socket.lent.as_ref().is_some_and(|lent| lent.mapped == 0) {
        socket.lent = None;
    }
}

/// Finds descriptors that disappeared without `close`, and removes sockets that have none.
pub(super) fn remove_closed(sockets: &mut Sockets) {
    let gone = |(cookie, socket): (&u64, &Socket)| {
        let descriptor = socket.descriptor?;
        (kernel::cookie(descriptor) != Some(*cookie)).then_some((*cookie, descriptor))
    };
    for (cookie, descriptor) in sockets.iter().filter_map(gone).collect::<Vec<_>>() {
        closed(sockets, cookie, descriptor);
    }
    sockets.retain(|_, socket| socket.descriptor.is_some() || socket.lent.is_some());
}

/// The length of a mapping, in whole pages.
fn whole_pages(len: usize) -> usize {
    // SAFETY: sysconf has no precondition.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    len.checked_next_multiple_of(page).unwrap_or(len)
}
