//! What this library knows of the process's descriptors: UDP sockets, their queues, who waits for them, and epolls.
//!
//! A socket has no queue until it has been read some times. Then two rules keep the program's order of events:
//!
//! - Nothing is read ahead while a thread waits for the socket in the kernel: it would not wake up for a message that
//!   another thread's queue has. A thread that begins to wait counts itself first and looks into the queue then; a
//!   thread that reads ahead has the lock, and looks at the count. One of both sees the other.
//! - Nothing is read ahead once two processes have used the socket (`Locked::used_by`).

use std::ffi::c_int;
use std::fmt::Display;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::epoll::Epoll;
use crate::lock;
use crate::log;
use crate::next;
use crate::queue::{Locked, Queue};

/// Sockets with larger descriptors are plain.
const DESCRIPTORS: usize = 65536;
/// A socket gets a queue when it has been read so many times: one that asks a question and reads the answer never does.
const READS: u32 = 8;
/// The epolls of a socket with a queue at most.
const EPOLLS: usize = 4;

static TABLE: [Entry; DESCRIPTORS] = [const { Entry::new() }; DESCRIPTORS];
/// All descriptors in use are smaller.
static END: AtomicI32 = AtomicI32::new(0);
/// This process: getpid(2) would be a system call. A child of vfork(2) finds its parent's.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// A page that is zero in a child with memory of its own, also where no handler of fork(3) has run. A child of vfork(2)
/// finds its parent's.
static MARK: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// Later sockets are plain, too.
static ALL_PLAIN: AtomicBool = AtomicBool::new(false);

const USER: u64 = 1;
const WAITER: u64 = 1 << 20;
const GENERATION: u64 = 1 << 40;

/// One descriptor.
pub(crate) struct Entry {
    /// Whether it is a UDP socket that the program has made.
    socket: AtomicBool,
    /// Nothing is read ahead from now on.
    plain: AtomicBool,
    /// A program that this library may not be in has it, too.
    passed_on: AtomicBool,
    /// Its state is known to be non-blocking.
    nonblocking: AtomicBool,
    /// Another process may have it, and change its state.
    forked: AtomicBool,
    /// Threads between `enter` and `leave`, threads that wait for it in the kernel, and which socket of this descriptor it
    /// is: `USER`, `WAITER` and `GENERATION` are one each. A waiter that a signal handler or pthread_cancel(3) takes away
    /// counts until the socket is closed.
    state: AtomicU64,
    reads: AtomicU32,
    queue: AtomicPtr<Queue>,
    /// The queue of a closed socket while there are users.
    closed: AtomicPtr<Queue>,
    /// The file that has its queue for the next program, and 1; 0 is none.
    handed_over: AtomicI32,
    /// Where it is a member; 0 is none, 1 is the epoll of descriptor 0.
    epolls: [AtomicI32; EPOLLS],
    pub(crate) epoll: AtomicPtr<Epoll>,
}

/// A socket between `enter` and `leave`, or between `begin_waiting` and `stop_waiting`.
#[derive(Clone, Copy)]
pub(crate) struct Socket {
    pub(crate) fd: c_int,
    pub(crate) entry: &'static Entry,
    generation: u64,
}

impl Entry {
    const fn new() -> Self {
        Self {
            socket: AtomicBool::new(false),
            plain: AtomicBool::new(false),
            passed_on: AtomicBool::new(false),
            nonblocking: AtomicBool::new(false),
            forked: AtomicBool::new(false),
            state: AtomicU64::new(0),
            reads: AtomicU32::new(0),
            queue: AtomicPtr::new(ptr::null_mut()),
            closed: AtomicPtr::new(ptr::null_mut()),
            handed_over: AtomicI32::new(0),
            epolls: [const { AtomicI32::new(0) }; EPOLLS],
            epoll: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub(crate) fn is_socket(&self) -> bool {
        self.socket.load(Ordering::Relaxed)
    }

    /// The epoll of this descriptor, if it has had members.
    pub(crate) fn epoll(&self) -> Option<&'static Epoll> {
        // SAFETY: null, or one that is never freed.
        unsafe { self.epoll.load(Ordering::Acquire).as_ref() }
    }
}

/// The entry of any descriptor.
pub(crate) fn entry(fd: c_int) -> Option<&'static Entry> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// The socket of this descriptor, if it is one. `leave` must follow.
#[inline]
pub(crate) fn enter(fd: c_int) -> Option<Socket> {
    Some(socket_entry(fd)?.count(fd, USER))
}

/// Counts a thread that waits for this descriptor in the kernel, if it is a socket: `stop_waiting` must follow. With a
/// queue, it has also entered.
#[inline]
pub(crate) fn begin_waiting(fd: c_int) -> Option<(Socket, Option<&'static Queue>)> {
    let entry = socket_entry(fd)?;
    if entry.queue.load(Ordering::SeqCst).is_null() {
        let socket = entry.count(fd, WAITER);
        if entry.queue.load(Ordering::SeqCst).is_null() {
            return Some((socket, None));
        }
        // A thread has just given it one.
        entry.state.fetch_add(USER, Ordering::SeqCst);
        return Some(socket.with_queue());
    }
    Some(entry.count(fd, USER + WAITER).with_queue())
}

#[inline]
fn socket_entry(fd: c_int) -> Option<&'static Entry> {
    let entry = entry(fd)?;
    if !entry.socket.load(Ordering::Relaxed) {
        return None;
    }
    if is_new_process() {
        // SAFETY: in a child of clone(2), as after fork(2).
        unsafe { in_child() };
    }
    Some(entry)
}

impl Socket {
    #[inline]
    pub(crate) fn leave(self) {
        if self.entry.state.fetch_sub(USER, Ordering::SeqCst) % WAITER == USER
            && !self.entry.closed.load(Ordering::Relaxed).is_null()
        {
            self.entry.unmap_closed();
        }
    }

    #[inline]
    fn with_queue(self) -> (Self, Option<&'static Queue>) {
        let queue = self.queue();
        if queue.is_none() {
            self.leave();
        }
        (self, queue)
    }

    #[inline]
    pub(crate) fn queue(&self) -> Option<&'static Queue> {
        // SAFETY: null, or one that stays mapped until this user leaves.
        unsafe { self.entry.queue.load(Ordering::SeqCst).as_ref() }
    }

    /// Counts a read that was not ahead; the one that fills the number gives the socket its queue.
    pub(crate) fn count_read(&self) {
        if self.entry.reads.fetch_add(1, Ordering::Relaxed) + 1 == READS && !self.is_plain() {
            self.give_queue(process());
        }
    }

    fn give_queue(&self, owner: u32) {
        // The descriptor may have been closed by a way that is unknown here, and be another file's.
        if !self.is_udp() {
            return self.entry.socket.store(false, Ordering::SeqCst);
        }
        let Some(queue) = Queue::map(owner, None) else { return };
        let none = ptr::null_mut();
        let set =
            self.entry.queue.compare_exchange(none, queue, Ordering::SeqCst, Ordering::SeqCst);
        if set.is_err() {
            // SAFETY: nobody has seen it.
            unsafe { Queue::unmap(queue) };
        }
    }

    fn is_udp(&self) -> bool {
        let (mut protocol, mut size) = (0_i32, 4);
        let place = (&raw mut protocol).cast();
        // SAFETY: a query with room for its answer.
        let result = errno_kept(|| unsafe {
            libc::getsockopt(self.fd, libc::SOL_SOCKET, libc::SO_PROTOCOL, place, &raw mut size)
        });
        result == 0 && protocol == libc::IPPROTO_UDP
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.entry.plain.load(Ordering::SeqCst)
    }

    /// Whether messages have been read ahead.
    pub(crate) fn holds(&self) -> bool {
        self.queue().is_some_and(|queue| queue.held() > 0)
    }

    /// Whether messages have been read ahead. Leaves.
    pub(crate) fn has_messages(self) -> bool {
        let holds = self.holds();
        self.leave();
        holds
    }

    /// Who has entered, and the lock, and has seen no message, begins to wait.
    pub(crate) fn wait_locked(&self) {
        self.entry.state.fetch_add(WAITER, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn stop_waiting(&self) {
        let order = Ordering::SeqCst;
        // Not if the descriptor has another socket by now.
        let _ = self.entry.state.fetch_update(order, order, |state| {
            (state / GENERATION == self.generation).then(|| state - WAITER)
        });
    }

    /// Whether the program has made it non-blocking, and no other process can have changed that.
    pub(crate) fn is_nonblocking(&self) -> bool {
        self.entry.nonblocking.load(Ordering::Relaxed)
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        let known = nonblocking && !self.entry.forked.load(Ordering::Relaxed);
        self.entry.nonblocking.store(known, Ordering::Relaxed);
    }

    pub(crate) fn has_waiters(&self) -> bool {
        self.entry.state.load(Ordering::SeqCst) % GENERATION >= WAITER
    }

    /// This process reads or waits.
    pub(crate) fn note_use(&self, locked: &mut Locked<'_>) {
        if locked.used_by(process()) {
            log::plain(self.fd, "two processes use it");
        }
    }

    /// From now on nothing is read ahead. What has been stays, and the program gets it first.
    pub(crate) fn make_plain(&self, reason: impl Display) {
        let first = !self.entry.plain.swap(true, Ordering::SeqCst);
        // A thread may be at giving it a queue: `count_read` looks at `plain` first, `Receive` at both.
        if let Some(queue) = self.queue()
            && let Some(mut locked) = queue.lock()
        {
            locked.make_plain();
            locked.unlock();
        }
        if first {
            log::plain(self.fd, reason);
        }
    }

    /// The socket goes to a program that this library may not be in. What was read ahead stays with this process.
    pub(crate) fn pass_on(&self, reason: impl Display) {
        self.make_plain(reason);
        self.entry.passed_on.store(true, Ordering::Relaxed);
    }

    /// This process becomes another program, which has the socket. If no other process can have it, the messages go there.
    pub(crate) fn hand_over(&self) {
        let Some(queue) = self.queue().filter(|queue| queue.held() > 0 && is_own()) else { return };
        if self.entry.forked.load(Ordering::Relaxed) {
            let reason = "another program is executed; unless a process that shares them is left";
            return log::lost(self.fd, queue.held(), reason);
        }
        let Some((file, new)) = queue.hand_over(self.fd) else {
            return log::lost(self.fd, queue.held(), "another program is executed");
        };
        let old = self.entry.queue.swap(new, Ordering::SeqCst);
        self.entry.closed.store(old, Ordering::SeqCst);
        let before = self.entry.handed_over.swap(file + 1, Ordering::SeqCst);
        close_file(before);
    }

    /// The length of the next message, if one was read ahead.
    pub(crate) fn next_length(&self) -> Option<u32> {
        let mut locked = self.queue().filter(|queue| queue.held() > 0)?.lock()?;
        let length = locked.next_length();
        locked.unlock();
        length
    }

    /// Notes that an epoll has the socket. False if it has too many.
    pub(crate) fn join(&self, epoll: c_int) -> bool {
        let value = epoll + 1;
        let epolls = &self.entry.epolls;
        epolls.iter().any(|place| place.load(Ordering::Relaxed) == value)
            || epolls.iter().any(|place| {
                place.compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            })
    }

    pub(crate) fn part(&self, epoll: c_int) {
        for place in &self.entry.epolls {
            let _ = place.compare_exchange(epoll + 1, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Entry {
    #[inline]
    fn count(&'static self, fd: c_int, what: u64) -> Socket {
        let before = self.state.fetch_add(what, Ordering::SeqCst);
        Socket { fd, entry: self, generation: before / GENERATION }
    }

    fn has_users(&self) -> bool {
        !self.state.load(Ordering::SeqCst).is_multiple_of(WAITER)
    }

    #[cold]
    fn unmap_closed(&self) {
        let queue = self.closed.swap(ptr::null_mut(), Ordering::SeqCst);
        if queue.is_null() {
            return;
        }
        if self.has_users() {
            // The last user does it. If another one was closed meanwhile, this one stays mapped.
            let _ = self.closed.compare_exchange(
                ptr::null_mut(),
                queue,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            return;
        }
        // SAFETY: no user, and later ones do not find it.
        unsafe { Queue::unmap(queue) };
    }
}

/// A new UDP socket of the program.
pub(crate) fn insert(fd: c_int, nonblocking: bool) {
    let Some(entry) = entry(fd) else { return };
    // Closed by a way that is unknown here.
    remove(fd);
    END.fetch_max(fd + 1, Ordering::SeqCst);
    let order = Ordering::SeqCst;
    let _ = entry.state.fetch_update(order, order, |state| {
        Some((state / GENERATION + 1).wrapping_mul(GENERATION) + state % WAITER)
    });
    entry.plain.store(ALL_PLAIN.load(Ordering::Relaxed), Ordering::Relaxed);
    entry.passed_on.store(false, Ordering::Relaxed);
    entry.forked.store(false, Ordering::Relaxed);
    entry.reads.store(0, Ordering::Relaxed);
    entry.nonblocking.store(nonblocking, Ordering::Relaxed);
    entry.socket.store(true, Ordering::SeqCst);
}

/// The descriptor is closed: before it can be another one's.
pub(crate) fn remove(fd: c_int) {
    let Some(entry) = entry(fd) else { return };
    if let Some(epoll) = entry.epoll() {
        epoll.clear(fd);
    }
    if !entry.socket.swap(false, Ordering::SeqCst) {
        return;
    }
    for place in &entry.epolls {
        let member = place.swap(0, Ordering::Relaxed) - 1;
        if let Some(epoll) = self::entry(member).and_then(Entry::epoll) {
            epoll.remove(fd);
        }
    }
    close_file(entry.handed_over.swap(0, Ordering::SeqCst));
    let queue = entry.queue.swap(ptr::null_mut(), Ordering::SeqCst);
    // SAFETY: null, or mapped until below.
    let held = unsafe { queue.as_ref() }.map_or(0, Queue::held);
    if held > 0 && entry.passed_on.load(Ordering::Relaxed) {
        log::lost(fd, held, "it is closed, and another program has it");
    }
    if !queue.is_null() {
        entry.closed.store(queue, Ordering::SeqCst);
        if !entry.has_users() {
            entry.unmap_closed();
        }
    }
}

/// Closes what `handed_over` has.
fn close_file(file: c_int) {
    if file > 0 {
        // SAFETY: a file that only the table knows.
        unsafe { next::close(file - 1) };
    }
}

/// The program before this one may have handed queues over.
fn inherit() {
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return };
    for file in files.flatten() {
        let Ok(name) = std::fs::read_link(file.path()) else { continue };
        let number = file.file_name().to_str().and_then(|number| number.parse().ok());
        let (Some(number), Some(name)) = (number, name.to_str()) else { continue };
        let Some((fd, queue)) = Queue::inherit(number, name) else { continue };
        // SAFETY: its own file.
        unsafe { next::close(number) };
        insert(fd, false);
        if let Some(entry) = entry(fd) {
            entry.plain.store(true, Ordering::SeqCst);
            entry.queue.store(queue, Ordering::SeqCst);
        }
    }
}

/// A second descriptor of a socket: both have its queue, and nothing is read ahead any more.
pub(crate) fn duplicate(fd: c_int, new: c_int) {
    let Some(socket) = enter(fd) else { return };
    if socket.holds() && entry(new).is_some() {
        // Each close unmaps what it has, so the other descriptor needs a mapping of its own.
        let queue = socket.entry.queue.load(Ordering::SeqCst);
        // SAFETY: the socket's queue, mapped until `leave`.
        if let Some(again) = unsafe { Queue::map_again(queue) } {
            insert(new, false);
            TABLE[new as usize].plain.store(true, Ordering::SeqCst);
            TABLE[new as usize].queue.store(again, Ordering::SeqCst);
        }
    }
    socket.leave();
}

/// The sockets, one after the other.
pub(crate) fn each(mut action: impl FnMut(Socket)) {
    for fd in 0..END.load(Ordering::SeqCst) {
        if let Some(socket) = enter(fd) {
            action(socket);
            socket.leave();
        }
    }
}

/// Whether the table has something of this descriptor.
pub(crate) fn knows(fd: c_int) -> bool {
    entry(fd).is_some_and(|entry| entry.is_socket() || entry.epoll().is_some())
}

/// All descriptors of this range that the table has are removed.
pub(crate) fn remove_range(first: u32, last: u32) {
    let end = END.load(Ordering::SeqCst) as u32;
    for fd in first..end.min(last.saturating_add(1)) {
        remove(fd as c_int);
    }
}

/// So that `remove_range` and the child's handler find this epoll.
pub(crate) fn has_epoll(fd: c_int) {
    END.fetch_max(fd + 1, Ordering::SeqCst);
}

/// Nothing is read ahead any more, on no socket.
pub(crate) fn make_all_plain(reason: &str) {
    ALL_PLAIN.store(true, Ordering::SeqCst);
    each(|socket| socket.make_plain(reason));
}

pub(crate) fn process() -> u32 {
    PROCESS.load(Ordering::Relaxed)
}

fn is_new_process() -> bool {
    // SAFETY: null, or the page.
    unsafe { MARK.load(Ordering::Relaxed).as_ref() }
        .is_some_and(|mark| mark.load(Ordering::Relaxed) == 0)
}

/// Whether this is the process that the table is of, and not its child by vfork(2), which has the same memory.
pub(crate) fn is_own() -> bool {
    // 0: before `start`.
    is_new_process() || matches!(process(), 0) || std::process::id() == process()
}

fn mark() {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory; it is wiped in children.
    let page = unsafe {
        let page = libc::mmap(ptr::null_mut(), 4096, access, flags, -1, 0);
        let marked =
            page != libc::MAP_FAILED && libc::madvise(page, 4096, libc::MADV_WIPEONFORK) == 0;
        marked.then(|| page.cast::<AtomicU32>())
    };
    let Some(page) = page else { return };
    // SAFETY: the page is never unmapped.
    unsafe { &*page }.store(1, Ordering::Relaxed);
    MARK.store(page, Ordering::Relaxed);
}

pub(crate) fn start() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    mark();
    inherit();
    // SAFETY: functions that live as long as this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), None, Some(in_child)) };
}

/// Both processes must find the same queue later, so each socket has one before.
unsafe extern "C" fn before_fork() {
    each(|socket| {
        // The child may change it, and nobody here would know.
        socket.entry.nonblocking.store(false, Ordering::Relaxed);
        socket.entry.forked.store(true, Ordering::Relaxed);
        if !socket.is_plain() && socket.queue().is_none() {
            let used = socket.entry.reads.load(Ordering::Relaxed) > 0 || socket.has_waiters();
            socket.give_queue(if used { process() } else { 0 });
            if socket.queue().is_none() {
                socket.make_plain("no memory for its queue at a fork");
            }
        }
    });
}

unsafe extern "C" fn in_child() {
    // SAFETY: null, or the page.
    if let Some(mark) = unsafe { MARK.load(Ordering::Relaxed).as_ref() } {
        mark.store(1, Ordering::Relaxed);
    }
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    lock::forget_thread();
    for entry in &TABLE[..END.load(Ordering::SeqCst) as usize] {
        // The threads that were counted are not in this process.
        let state = entry.state.load(Ordering::SeqCst);
        entry.state.store(state - state % GENERATION, Ordering::SeqCst);
        if let Some(epoll) = entry.epoll() {
            epoll.unlock_in_child();
        }
    }
}

pub(crate) fn errno_kept<T>(action: impl FnOnce() -> T) -> T {
    let errno = next::errno();
    let result = action();
    next::set_errno(errno);
    result
}
