//! [`Sockets`]: those that have rings, where huge pages were chosen, and what the program has of their memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use super::kernel;
use super::memory::Memory;

/// A request for a ring, as the program wrote it; the longest is `struct tpacket_req3`.
pub(super) type Asked = Vec<u8>;

/// A socket that has rings, of huge pages if they can be.
#[derive(Debug, Default)]
pub(super) struct Socket {
    /// One of its descriptors.
    pub(super) descriptor: c_int,
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
    /// Bytes of all the rings in it: so many does the program map.
    pub(super) len: usize,
    /// How often the program has mapped it, less how often it unmapped it.
    pub(super) mapped: u32,
}

/// All of them, by their cookies.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    pub(super) open: BTreeMap<u64, Socket>,
    /// What the program has mapped still of sockets that it closed.
    left: Vec<Lent>,
}

static SOCKETS: Mutex<Sockets> = Mutex::new(Sockets { open: BTreeMap::new(), left: Vec::new() });

/// Whether there is anything in there, for calls that programs make often.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is at work on the sockets.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// While this thread forks: nobody else is at work on them.
    static HELD: RefCell<Option<MutexGuard<'static, Sockets>>> = const { RefCell::new(None) };
}

/// Whether there is a socket, or memory of one, to look for.
pub(super) fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Works on the sockets; not where this thread does so already: then an allocator maps its memory, or a signal
/// handler came between.
pub(super) fn with<T>(work: impl FnOnce(&mut Sockets) -> T) -> Option<T> {
    if INSIDE.replace(true) {
        return None;
    }
    let mut sockets = lock();
    let result = work(&mut sockets);
    ANY.store(!sockets.open.is_empty() || !sockets.left.is_empty(), Ordering::Relaxed);
    drop(sockets);
    INSIDE.set(false);
    Some(result)
}

fn lock() -> MutexGuard<'static, Sockets> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on a child finds the sockets at rest, whatever other threads do while it is made.
pub(super) fn outlive_forks() {
    extern "C" fn before() {
        if !INSIDE.get() {
            HELD.set(Some(lock()));
        }
    }
    extern "C" fn after() {
        HELD.set(None);
    }
    static ONCE: Once = Once::new();
    // SAFETY: the functions take nothing, and live as long as this library, which is never unloaded before
    // the process ends.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(after), Some(after));
    });
}

impl Sockets {
    /// The memory that `mmap` of the descriptor is about; `None` for anything else.
    pub(super) fn map(
        &mut self,
        fd: c_int,
        len: usize,
        flags: c_int,
        offset: libc::off_t,
    ) -> Option<io::Result<*mut c_void>> {
        let socket = self.open.get_mut(&kernel::cookie(fd)?)?;
        let lent = socket.lent.as_mut()?;
        // The kernel's rules for rings, but for the place: that is chosen.
        let is_fixed = flags & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE) != 0;
        if offset != 0 || whole_pages(len) != lent.len || is_fixed {
            return Some(Err(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        lent.mapped += 1;
        Some(Ok(lent.memory.start().as_ptr().cast()))
    }

    /// Takes a mapping back; whether it was one of [`Sockets::map`].
    pub(super) fn unmap(&mut self, address: *mut c_void, len: usize) -> bool {
        let is = |lent: &Lent| {
            lent.memory.start().as_ptr().cast() == address && lent.len == whole_pages(len)
        };
        if let Some(at) = self.left.iter().position(is) {
            self.left[at].mapped -= 1;
            if self.left[at].mapped == 0 {
                self.left.swap_remove(at);
            }
            return true;
        }
        let mut lent = self.open.values_mut().filter_map(|socket| socket.lent.as_mut());
        let Some(lent) = lent.find(|lent| is(lent)) else { return false };
        // It stays for another `mmap`, as the ring does.
        lent.mapped = lent.mapped.saturating_sub(1);
        true
    }

    /// The descriptor that a socket was known by is another's now, or nobody's.
    pub(super) fn closed(&mut self, cookie: u64) {
        let Some(socket) = self.open.get_mut(&cookie) else { return };
        if let Some(other) = descriptors().find(|fd| kernel::cookie(*fd) == Some(cookie)) {
            socket.descriptor = other;
            return;
        }
        let socket = self.open.remove(&cookie).expect("it is there");
        self.left.extend(socket.lent.filter(|lent| lent.mapped > 0));
    }

    /// Looks for descriptors that went without `close`.
    pub(super) fn sweep(&mut self) {
        let gone = |(cookie, socket): (&u64, &Socket)| {
            (kernel::cookie(socket.descriptor) != Some(*cookie)).then_some(*cookie)
        };
        for cookie in self.open.iter().filter_map(gone).collect::<Vec<_>>() {
            self.closed(cookie);
        }
    }
}

/// The descriptors of this process.
fn descriptors() -> impl Iterator<Item = c_int> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Mappings are of whole pages, whatever length is asked for.
fn whole_pages(len: usize) -> usize {
    // SAFETY: sysconf has no precondition.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    len.checked_next_multiple_of(page).unwrap_or(len)
}
