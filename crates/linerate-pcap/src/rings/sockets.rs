//! [`Sockets`]: those that have rings, where huge pages were chosen, and what the program has of their memory.

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
pub(super) type Asked = Vec<u8>;

/// A socket that has rings, of huge pages if they can be.
#[derive(Debug, Default)]
pub(super) struct Socket {
    /// One of its descriptors; none once the program has closed all of them.
    pub(super) descriptor: Option<c_int>,
    /// Its rings: the one that receives, and the one that transmits.
    pub(super) rings: [Option<Asked>; 2],
    /// They are what the program asked for: one could not be of huge pages.
    pub(super) is_plain: bool,
    /// Where they are, if not in the kernel's own memory.
    pub(super) lent: Option<Lent>,
}

/// Memory that the kernel has from here.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) memory: Memory,
    /// Where its rings begin, and their bytes: that is what the program maps.
    pub(super) offset: usize,
    pub(super) len: usize,
    /// How often the program has mapped it, less how often it unmapped it.
    pub(super) mapped: u32,
}

impl Lent {
    fn start(&self) -> *mut c_void {
        self.memory.from(self.offset).cast()
    }
}

/// All of them, by their cookies.
pub(super) type Sockets = BTreeMap<u64, Socket>;

static SOCKETS: Mutex<Sockets> = Mutex::new(BTreeMap::new());

/// The process whose sockets these are, once there are any. A child of `vfork` shares them with its parent, and
/// what it closes is its own only.
static OWNER: AtomicI32 = AtomicI32::new(0);

// Both are without a destructor, so that they are there as long as the thread is.
thread_local! {
    /// Whether this thread is at work on the sockets.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// While this thread forks: nobody else is at work on them.
    static HELD: Cell<Option<ManuallyDrop<MutexGuard<'static, Sockets>>>> =
        const { Cell::new(None) };
}

/// Whether there are sockets to look for.
pub(super) fn any() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner == kernel::process()
}

/// Works on the sockets, and leaves `errno` as it is; not where this thread does so already: then an allocator
/// maps its memory, or a signal handler came between.
pub(super) fn with<T>(work: impl FnOnce(&mut Sockets) -> T) -> Option<T> {
    apart(|| Some(work(&mut lock())))
}

/// The same for what a signal handler may do, which waits for no thread: that could be waiting for this one.
pub(super) fn try_with<T>(work: impl FnOnce(&mut Sockets) -> T) -> Option<T> {
    apart(|| {
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

fn apart<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    if INSIDE.replace(true) {
        return None;
    }
    let errno = kernel::errno();
    let result = work();
    kernel::fail(errno);
    INSIDE.set(false);
    result
}

fn lock() -> MutexGuard<'static, Sockets> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on there are sockets to look for; and a child finds them at rest, whatever other threads do while it is
/// made.
pub(super) fn begin() {
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

/// The memory that `mmap` of the socket is about; `None` for anything else.
pub(super) fn map(
    sockets: &mut Sockets,
    cookie: u64,
    len: usize,
    flags: c_int,
    offset: libc::off_t,
) -> Option<io::Result<*mut c_void>> {
    let lent = sockets.get_mut(&cookie)?.lent.as_mut()?;
    // The kernel's rules for rings, but for the place: that is chosen.
    let is_fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
    if offset != 0 || whole_pages(len) != lent.len || is_fixed {
        return Some(Err(io::Error::from_raw_os_error(libc::EINVAL)));
    }
    lent.mapped += 1;
    Some(Ok(lent.start()))
}

/// Takes a mapping back; whether it was one of [`map`]. One of which a part is unmapped is the program's from then
/// on, as is what becomes of its addresses.
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
    // It stays for another `mmap`, as the ring does.
    if lent.mapped > 0 || !is_closed {
        socket.lent = Some(lent);
    }
    true
}

/// A descriptor of a socket is closed. Frees no memory of the allocator: it may be a signal handler that closes it.
pub(super) fn closed(sockets: &mut Sockets, cookie: u64, descriptor: c_int) {
    let Some(socket) = sockets.get_mut(&cookie) else { return };
    if socket.descriptor != Some(descriptor) {
        return;
    }
    // Where nobody can tell whether there is another, there may be.
    let Ok(other) = descriptors(|fd| kernel::cookie(fd) == Some(cookie)) else { return };
    socket.descriptor = other;
    if other.is_none() && socket.lent.as_ref().is_some_and(|lent| lent.mapped == 0) {
        socket.lent = None;
    }
}

/// Looks for descriptors that went without `close`, and forgets the sockets that have none.
pub(super) fn sweep(sockets: &mut Sockets) {
    let gone = |(cookie, socket): (&u64, &Socket)| {
        let descriptor = socket.descriptor?;
        (kernel::cookie(descriptor) != Some(*cookie)).then_some((*cookie, descriptor))
    };
    for (cookie, descriptor) in sockets.iter().filter_map(gone).collect::<Vec<_>>() {
        closed(sockets, cookie, descriptor);
    }
    sockets.retain(|_, socket| socket.descriptor.is_some() || socket.lent.is_some());
}

/// Mappings are of whole pages, whatever length is asked for.
fn whole_pages(len: usize) -> usize {
    // SAFETY: sysconf has no precondition.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    len.checked_next_multiple_of(page).unwrap_or(len)
}
