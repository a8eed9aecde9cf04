//! The messages that were read ahead on one socket, in memory that a child process shares.
//!
//! One `recvmmsg` gives the first message to the program and the others to the queue. The headers of the slots are
//! prepared once; only the fields that the kernel has changed are set again. A message keeps its sender, its flags and
//! its control data as the kernel wrote them.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use libc::{cmsghdr, iovec, mmsghdr, msghdr, sockaddr_storage};

use std::fmt::Write;

use crate::lock::Lock;
use crate::log::Line;
use crate::next;

/// The messages of a queue at most.
pub(crate) const SLOTS: usize = 31;
/// No UDP message is larger.
const MAX_MESSAGE: usize = 65536;
/// Larger than all control data of the options that a socket with a queue may have.
const MAX_CONTROL: usize = 512;
/// No length of a message.
const UNFILLED: u32 = u32::MAX;
/// Fewer messages cost more in one call than in one each.
const WORTH: usize = 4;
/// Attempts that find fewer are followed by up to so many plain reads.
const MAX_SKIP: u32 = 63;

/// Files of queues that a program hands over to the next one: then their size and the descriptor of the socket.
const MEMORY: &str = "linerate-udp-";

/// For the line at the end of the program.
pub(crate) static MESSAGES: AtomicU64 = AtomicU64::new(0);
pub(crate) static READS: AtomicU64 = AtomicU64::new(0);

#[repr(C)]
struct Slot {
    sender: sockaddr_storage,
    vector: iovec,
    /// `u64` for the alignment of `cmsghdr`.
    control: [u64; MAX_CONTROL / 8],
    /// The rest, so that the slots do not begin in the same set of the processor's caches.
    bytes: [u8; MAX_MESSAGE + 192],
}

/// What the lock protects.
#[repr(C)]
pub(crate) struct Messages {
    /// The first is the program's own; message `index` is in slot `index - 1`.
    headers: [mmsghdr; SLOTS + 1],
    slots: [Slot; SLOTS],
    /// How many headers the last `recvmmsg` filled. The next message is so far from the end as there are messages.
    filled: usize,
    /// How many plain reads there were before the last attempt.
    skipped: u32,
}

impl Messages {
    /// Before the first call.
    fn prepare(&mut self) {
        for (slot, header) in self.slots.iter_mut().zip(&mut self.headers[1..]) {
            slot.vector = iovec { iov_base: slot.bytes.as_mut_ptr().cast(), iov_len: MAX_MESSAGE };
            let header = &mut header.msg_hdr;
            header.msg_name = (&raw mut slot.sender).cast();
            header.msg_iov = &raw mut slot.vector;
            header.msg_iovlen = 1;
            header.msg_control = slot.control.as_mut_ptr().cast();
        }
        self.filled = self.headers.len();
    }
}

/// All zeros at first. Every change is complete with one store: who is killed, or left by siglongjmp(3), with
/// the lock leaves a valid queue.
#[repr(C)]
pub(crate) struct Queue {
    lock: Lock,
    held: AtomicU32,
    /// Counts what has been read ahead and taken, so that nobody mistakes one state for another.
    progress: AtomicU32,
    plain: AtomicBool,
    /// The process that reads or waits.
    user: AtomicU32,
    /// Plain reads until the next attempt.
    skip: AtomicU32,
    /// `recvmmsg` fills the headers. Who finds this with the lock: it was left meanwhile.
    filling: AtomicBool,
    /// What a call for several messages met after the first one.
    error: AtomicI32,
    messages: UnsafeCell<Messages>,
}

impl Queue {
    /// A queue in new memory of its own, or of that file, which children share. Pages that no message has used take no
    /// memory.
    pub(crate) fn map(user: u32, file: Option<c_int>) -> Option<*mut Self> {
        // SAFETY: zeros are a value of each field; nobody else knows the memory.
        unsafe {
            let queue = Self::map_memory(file)?;
            (*queue).user.store(user, Ordering::SeqCst);
            Some(queue)
        }
    }

    /// # Safety
    ///
    /// The file has the size of a queue, and nobody uses a lock in it.
    unsafe fn map_memory(file: Option<c_int>) -> Option<*mut Self> {
        let kind = file.map_or(libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, |_| 0);
        let (flags, file) = (libc::MAP_SHARED | kind, file.unwrap_or(-1));
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory, at an address that the kernel selects.
        let memory =
            unsafe { libc::mmap(ptr::null_mut(), mem::size_of::<Self>(), access, flags, file, 0) };
        (memory != libc::MAP_FAILED).then(|| memory.cast())
    }

    /// The messages go into a file that the next program of this process inherits. Returns it, and the queue in it.
    pub(crate) fn hand_over(&self, fd: c_int) -> Option<(c_int, *mut Self)> {
        let mut locked = self.lock()?;
        let from = locked.messages();
        let mut name = Line::new();
        let _ = write!(name, "{MEMORY}{}-{fd}\0", mem::size_of::<Self>());
        // SAFETY: a name that ends in a zero. Without MFD_CLOEXEC, as it is for the next program.
        let file = unsafe { libc::memfd_create(name.bytes().as_ptr().cast(), 0) };
        // SAFETY: a new file.
        let sized =
            file >= 0 && unsafe { libc::ftruncate(file, mem::size_of::<Self>() as i64) } == 0;
        let queue = if sized { Self::map(0, Some(file)) } else { None };
        if let Some(queue) = queue {
            // SAFETY: nobody else knows the new queue.
            let queue = unsafe { &mut *queue };
            let (held, to) = (self.held(), queue.messages.get_mut());
            for index in from.filled - held as usize..from.filled {
                // SAFETY: a slot each.
                unsafe {
                    ptr::copy_nonoverlapping(&from.slots[index - 1], &mut to.slots[index - 1], 1);
                };
                to.headers[index] = from.headers[index];
            }
            to.filled = from.filled;
            *queue.held.get_mut() = held;
            *queue.plain.get_mut() = true;
            self.held.store(0, Ordering::SeqCst);
        }
        locked.unlock();
        if queue.is_none() && file >= 0 {
            // SAFETY: its own file.
            unsafe { next::close(file) };
        }
        Some((file, queue?))
    }

    /// The queue that the program before has left in this file, and its socket. `name` is that of the file.
    pub(crate) fn inherit(file: c_int, name: &str) -> Option<(c_int, *mut Self)> {
        let (size, fd) = name.strip_prefix("/memfd:")?.strip_prefix(MEMORY)?.split_once('-')?;
        // Another version of this library may have another layout.
        if size.parse() != Ok(mem::size_of::<Self>()) {
            return None;
        }
        let fd = fd.split(' ').next()?.parse().ok()?;
        // SAFETY: the program that used it is no more.
        let queue = unsafe { Self::map_memory(Some(file)) }?;
        // SAFETY: as above.
        unsafe { (*queue).lock.reset() };
        Some((fd, queue))
    }

    /// The same memory once more, so that two descriptors can unmap theirs.
    ///
    /// # Safety
    ///
    /// A mapped queue.
    pub(crate) unsafe fn map_again(queue: *mut Self) -> Option<*mut Self> {
        let size = mem::size_of::<Self>();
        // SAFETY: with an old size of 0 a shared mapping is mapped a second time.
        let memory = unsafe { libc::mremap(queue.cast(), 0, size, libc::MREMAP_MAYMOVE) };
        (memory != libc::MAP_FAILED).then(|| memory.cast())
    }

    /// # Safety
    ///
    /// Nobody in this process may use the queue any more.
    pub(crate) unsafe fn unmap(queue: *mut Self) {
        // SAFETY: the memory of `map`, unused by the function's contract.
        unsafe { libc::munmap(queue.cast(), mem::size_of::<Self>()) };
    }

    /// How many messages there are, for who has no lock.
    pub(crate) fn held(&self) -> u32 {
        self.held.load(Ordering::SeqCst)
    }

    pub(crate) fn progress(&self) -> u32 {
        self.progress.load(Ordering::SeqCst)
    }

    /// With the lock.
    fn proceed(&self) {
        self.progress.store(self.progress().wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether nothing is read ahead any more.
    pub(crate) fn is_plain(&self) -> bool {
        self.plain.load(Ordering::SeqCst)
    }

    /// Whether nothing has been read ahead, and no thread is at it. A thread that is counted as waiting before may then
    /// read or wait in the kernel without the lock: who takes the lock now sees it.
    #[inline]
    pub(crate) fn is_idle(&self, process: u32) -> bool {
        self.lock.is_free()
            && self.held() == 0
            && self.error.load(Ordering::SeqCst) == 0
            && (self.is_plain() || self.user.load(Ordering::SeqCst) == process)
    }

    /// Whether this read is not to be an attempt to read ahead.
    #[inline]
    pub(crate) fn skips(&self) -> bool {
        let skip = self.skip.load(Ordering::Relaxed);
        if skip > 0 {
            // Another thread may do so, too: the number is no exact one.
            self.skip.store(skip - 1, Ordering::Relaxed);
        }
        skip > 0
    }

    /// Waits for the lock. `None` in a signal handler that interrupted its owner.
    pub(crate) fn lock(&self) -> Option<Locked<'_>> {
        let mut locked = self.lock.lock().then_some(Locked { queue: self })?;
        if self.filling.load(Ordering::Relaxed) {
            locked.recover();
        }
        Some(locked)
    }
}

/// The queue, locked. `unlock` is explicit: a thread that is cancelled passes no destructor.
pub(crate) struct Locked<'a> {
    queue: &'a Queue,
}

impl Locked<'_> {
    pub(crate) fn unlock(self) {
        self.queue.lock.unlock();
    }

    pub(crate) fn messages(&mut self) -> &mut Messages {
        // SAFETY: only with the lock.
        unsafe { &mut *self.queue.messages.get() }
    }

    /// From now on nothing is read ahead. Returns whether something was.
    pub(crate) fn make_plain(&mut self) -> bool {
        !self.queue.plain.swap(true, Ordering::SeqCst)
    }

    /// Notes that this process uses the socket. Two that do cannot know of each other's waiting threads: then nothing
    /// is read ahead any more. Returns whether that is new.
    pub(crate) fn used_by(&mut self, process: u32) -> bool {
        let order = Ordering::SeqCst;
        match self.queue.user.compare_exchange(0, process, order, order) {
            Err(user) if user != process => self.make_plain(),
            _ => false,
        }
    }

    /// What is to be the result of this call, once: errno, or 0.
    pub(crate) fn take_error(&mut self) -> c_int {
        self.queue.error.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn keep_error(&mut self, error: c_int) {
        self.queue.error.store(error, Ordering::SeqCst);
    }

    /// A signal handler has left the call that filled the headers, or its process was killed: its messages are here.
    fn recover(&mut self) {
        let messages = self.messages();
        let filled = messages.headers.iter().take_while(|header| header.msg_len != UNFILLED);
        messages.filled = filled.count().max(1);
        let held = messages.filled as u32 - 1;
        self.queue.proceed();
        self.queue.held.store(held, Ordering::SeqCst);
        self.queue.filling.store(false, Ordering::SeqCst);
    }

    /// An attempt has found so many messages.
    fn found(&mut self, count: usize) {
        let skipped = &mut self.messages().skipped;
        *skipped = if count >= WORTH { 0 } else { (*skipped * 2 + 1).min(MAX_SKIP) };
        let skip = *skipped;
        self.queue.skip.store(skip, Ordering::Relaxed);
    }

    /// Receives one message for the program and up to `SLOTS` others, without waiting. Returns what the call does.
    /// `None`: errno has why there is not even one.
    pub(crate) fn fill(&mut self, fd: c_int, message: &mut msghdr, flags: c_int) -> Option<usize> {
        let messages = self.messages();
        if messages.filled == 0 {
            messages.prepare();
        }
        // Those that the last call has changed.
        for header in &mut messages.headers[1..messages.filled] {
            header.msg_hdr.msg_namelen = mem::size_of::<sockaddr_storage>() as u32;
            header.msg_hdr.msg_controllen = MAX_CONTROL;
        }
        for header in &mut messages.headers {
            header.msg_len = UNFILLED;
        }
        messages.headers[0].msg_hdr = *message;
        let (headers, count) = (messages.headers.as_mut_ptr(), messages.headers.len() as u32);
        let flags = flags | libc::MSG_DONTWAIT;
        self.queue.filling.store(true, Ordering::SeqCst);
        // Not by its function, in which a thread may be cancelled.
        // SAFETY: the program's header, as it is in its own call, and those of the slots.
        let received = unsafe {
            next::syscall(
                libc::SYS_recvmmsg,
                fd.into(),
                headers as i64,
                count.into(),
                flags.into(),
                0,
                0,
            )
        };
        let Ok(received @ 1..) = usize::try_from(received) else {
            self.queue.filling.store(false, Ordering::SeqCst);
            if next::errno() == libc::EAGAIN {
                self.found(0);
            }
            return None;
        };
        let messages = self.messages();
        messages.filled = received;
        *message = messages.headers[0].msg_hdr;
        let length = messages.headers[0].msg_len as usize;
        self.queue.proceed();
        self.queue.held.store(received as u32 - 1, Ordering::SeqCst);
        self.queue.filling.store(false, Ordering::SeqCst);
        self.found(received);
        READS.fetch_add(1, Ordering::Relaxed);
        MESSAGES.fetch_add(received as u64 - 1, Ordering::Relaxed);
        Some(length)
    }

    /// Gives the next message to the program, as the kernel does. Returns what the call does.
    ///
    /// # Safety
    ///
    /// The header has the meaning that recvmsg(2) gives it, and there is a message.
    pub(crate) unsafe fn take(&mut self, message: &mut msghdr, flags: c_int) -> usize {
        let queue = self.queue;
        let messages = self.messages();
        let index = messages.filled - queue.held() as usize;
        let (header, slot) = (&messages.headers[index], &mut messages.slots[index - 1]);
        let length = header.msg_len as usize;
        let mut header = header.msg_hdr;
        // The addresses in the header may be of another mapping (`map_again`).
        header.msg_control = slot.control.as_mut_ptr().cast();
        // SAFETY: the vectors of the caller, and as many bytes as the slot has.
        let copied = unsafe { scatter(&slot.bytes[..length], message) };
        // The kernel's: what the caller asked for, and what it found.
        let mut found = (header.msg_flags & !libc::MSG_CTRUNC) | (flags & libc::MSG_CMSG_CLOEXEC);
        if copied < length {
            found |= libc::MSG_TRUNC;
        }
        if !message.msg_name.is_null() {
            let size = header.msg_namelen.min(message.msg_namelen) as usize;
            // SAFETY: the caller has room for the length that it gave.
            unsafe {
                let sender = (&raw const slot.sender).cast::<u8>();
                ptr::copy_nonoverlapping(sender, message.msg_name.cast(), size);
            }
            message.msg_namelen = header.msg_namelen;
        }
        // SAFETY: the control data that the kernel wrote, and the caller's buffer for it.
        found |= unsafe { copy_control(&header, message) };
        message.msg_flags = found;
        if flags & libc::MSG_PEEK == 0 {
            queue.proceed();
            queue.held.fetch_sub(1, Ordering::SeqCst);
        }
        if flags & libc::MSG_TRUNC != 0 { length } else { copied }
    }

    /// The length of the next message, if there is one.
    pub(crate) fn next_length(&mut self) -> Option<u32> {
        let held = self.queue.held();
        let messages = self.messages();
        (held > 0).then(|| messages.headers[messages.filled - held as usize].msg_len)
    }
}

/// Copies the bytes into the vectors of a header. Returns how many had room.
///
/// # Safety
///
/// The vectors are those of recvmsg(2).
unsafe fn scatter(mut bytes: &[u8], message: &msghdr) -> usize {
    let length = bytes.len();
    for index in 0..message.msg_iovlen {
        // SAFETY: the caller has so many vectors.
        let vector = unsafe { &*message.msg_iov.add(index) };
        let (now, rest) = bytes.split_at(bytes.len().min(vector.iov_len));
        // SAFETY: no more than the vector has room for.
        unsafe { ptr::copy_nonoverlapping(now.as_ptr(), vector.iov_base.cast(), now.len()) };
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
    length - bytes.len()
}

/// Copies control data, cut where the buffer ends, as `put_cmsg` of net/core/scm.c does. Returns `MSG_CTRUNC` or 0.
///
/// # Safety
///
/// `from` has control data of the kernel, `to` a buffer of the length that it has.
unsafe fn copy_control(from: &msghdr, to: &mut msghdr) -> c_int {
    let head = mem::size_of::<cmsghdr>();
    let mut room = if to.msg_control.is_null() { 0 } else { to.msg_controllen };
    let (mut used, mut flags) = (0, 0);
    // SAFETY: a header that the kernel has filled.
    let mut one = unsafe { libc::CMSG_FIRSTHDR(from) };
    while !one.is_null() {
        // SAFETY: not null, so one of the buffer.
        let length = unsafe { (*one).cmsg_len };
        if room < head {
            flags |= libc::MSG_CTRUNC;
        } else {
            if room < length {
                flags |= libc::MSG_CTRUNC;
            }
            let length = length.min(room);
            // SAFETY: `length` bytes of the one, and at least as many of room at `used`.
            unsafe {
                let place = to.msg_control.cast::<u8>().add(used);
                ptr::copy_nonoverlapping(one.cast::<u8>(), place, length);
                (*place.cast::<cmsghdr>()).cmsg_len = length;
            }
            // SAFETY: arithmetic only.
            let space = unsafe { libc::CMSG_SPACE((length - head) as u32) as usize }.min(room);
            used += space;
            room -= space;
        }
        // SAFETY: both are the kernel's.
        one = unsafe { libc::CMSG_NXTHDR(from, one) };
    }
    to.msg_controllen = used;
    flags
}

/// A header for a buffer and, where there is one, an address.
pub(crate) fn header(vectors: *mut iovec, count: usize) -> msghdr {
    msghdr {
        msg_name: ptr::null_mut::<c_void>(),
        msg_namelen: 0,
        msg_iov: vectors,
        msg_iovlen: count,
        msg_control: ptr::null_mut(),
        msg_controllen: 0,
        msg_flags: 0,
    }
}
