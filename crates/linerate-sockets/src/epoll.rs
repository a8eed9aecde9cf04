//! epoll(7): which sockets with a queue an epoll has, and their messages among its events.
//!
//! While a socket has messages that were read ahead, the kernel does not know it to be readable. `epoll_wait` then asks
//! the kernel without waiting, and adds the event. A level-triggered socket has it until the queue is empty. An
//! edge-triggered one has it once after each read that leaves messages, where the kernel would have given an edge for
//! each arrival.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use libc::{epoll_event, sigset_t, timespec};

use crate::lock::Lock;
use crate::next::{self, after};
use crate::queue::Queue;
use crate::table::{self, Entry, Socket};
use crate::waiting::Waiting;

/// The sockets with a queue of an epoll at most; others are plain.
const MEMBERS: usize = 64;
/// Flags whose meaning is known here.
const KNOWN: c_int = libc::EPOLLIN
    | libc::EPOLLRDNORM
    | libc::EPOLLOUT
    | libc::EPOLLWRNORM
    | libc::EPOLLPRI
    | libc::EPOLLERR
    | libc::EPOLLHUP
    | libc::EPOLLRDHUP
    | libc::EPOLLET
    | libc::EPOLLWAKEUP;
const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;

#[derive(Clone, Copy)]
struct Member {
    fd: c_int,
    events: u32,
    data: u64,
    /// For the edge: `Queue::progress` when it was reported.
    reported: Option<u32>,
    /// It is in the kernel's epoll with EPOLLOUT, so that a thread that waits wakes up.
    kicked: bool,
}

struct Members {
    count: usize,
    all: [Member; MEMBERS],
    /// Where the search for messages begins next, so that each member has its turn.
    first: usize,
    /// It is in another epoll, or another call waits for it.
    nested: bool,
}

/// The members of one epoll. Never freed: another epoll of the same descriptor has it again.
pub(crate) struct Epoll {
    lock: Lock,
    /// Without the lock: whether there is anything to do.
    count: AtomicU32,
    /// Threads that wait, or are about to.
    sleepers: AtomicU32,
    /// Whether a member was ever kicked.
    kicks: AtomicBool,
    members: UnsafeCell<Members>,
}

// SAFETY: `members` only with the lock.
unsafe impl Sync for Epoll {}

impl Epoll {
    fn new() -> Self {
        let none = Member { fd: -1, events: 0, data: 0, reported: None, kicked: false };
        Self {
            lock: Lock::new(),
            count: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            kicks: AtomicBool::new(false),
            members: UnsafeCell::new(Members {
                count: 0,
                all: [none; MEMBERS],
                first: 0,
                nested: false,
            }),
        }
    }

    /// The one of this descriptor, made if need be.
    fn of(fd: c_int) -> Option<&'static Self> {
        let entry = table::entry(fd)?;
        if entry.epoll().is_none() {
            let new = Box::into_raw(Box::new(Self::new()));
            let none = ptr::null_mut();
            let order = Ordering::SeqCst;
            if entry.epoll.compare_exchange(none, new, order, order).is_err() {
                // SAFETY: nobody has seen it.
                drop(unsafe { Box::from_raw(new) });
            }
            table::has_epoll(fd);
        }
        entry.epoll()
    }

    /// `None` in a signal handler that interrupted the owner of the lock.
    fn with<T>(&self, action: impl FnOnce(&mut Members) -> T) -> Option<T> {
        if !self.lock.lock() {
            return None;
        }
        // SAFETY: only with the lock; the reference does not outlive it.
        let members = unsafe { &mut *self.members.get() };
        let result = action(members);
        self.count.store(members.count as u32, Ordering::SeqCst);
        self.lock.unlock();
        Some(result)
    }

    /// After fork(2) the thread that had the lock is not in the child.
    pub(crate) fn unlock_in_child(&self) {
        self.lock.reset();
        self.sleepers.store(0, Ordering::SeqCst);
    }

    /// The socket has messages, and the threads that wait do not know it.
    fn kick(&self, epoll: c_int, fd: c_int) {
        self.kicks.store(true, Ordering::SeqCst);
        self.with(|members| {
            let mut all = members.all[..members.count].iter_mut();
            let Some(member) = all.find(|member| member.fd == fd) else { return };
            member.kicked = true;
            member.set(epoll, libc::EPOLLOUT as u32);
        });
    }

    /// Takes the events of kicks back, and gives those of messages in their place. Returns how many are left.
    fn unkick(&self, epoll: c_int, events: &mut [epoll_event]) -> usize {
        let unkicked = self.with(|members| {
            let all = &mut members.all[..members.count];
            for member in all.iter_mut().filter(|member| member.kicked) {
                if members.nested && table::enter(member.fd).is_some_and(Socket::has_messages) {
                    continue;
                }
                member.kicked = false;
                member.set(epoll, 0);
            }
            let mut left = 0;
            for index in 0..events.len() {
                let mut event = events[index];
                let data = event.u64;
                if let Some(member) = all.iter_mut().find(|member| member.data == data) {
                    event.events &= member.events | !(libc::EPOLLOUT as u32);
                    if table::enter(member.fd).is_some_and(Socket::has_messages) {
                        event.events |= member.events & READABLE;
                        member.reported = Some(progress(member.fd));
                    }
                }
                if event.events != 0 {
                    events[left] = event;
                    left += 1;
                }
            }
            left
        });
        unkicked.unwrap_or(events.len())
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn remove(&self, fd: c_int) {
        self.with(|members| {
            let all = &members.all[..members.count];
            if let Some(index) = all.iter().position(|member| member.fd == fd) {
                members.count -= 1;
                members.all[index] = members.all[members.count];
            }
        });
    }

    /// Its descriptor is closed.
    pub(crate) fn clear(&self, fd: c_int) {
        if self.is_empty() {
            return;
        }
        self.with(|members| {
            for member in &members.all[..members.count] {
                if let Some(socket) = table::enter(member.fd) {
                    socket.part(fd);
                    socket.leave();
                }
            }
            (members.count, members.nested) = (0, false);
        });
    }

    /// `fd` is a new one, or had another before.
    fn begin(fd: c_int) {
        if let Some(epoll) = Self::of(fd) {
            epoll.clear(fd);
            epoll.with(|members| members.nested = false);
            epoll.kicks.store(false, Ordering::SeqCst);
        }
    }

    /// Another descriptor is this epoll, too: who waits by it is not seen.
    pub(crate) fn duplicate(fd: c_int, new: c_int) {
        let Some(epoll) = table::entry(fd).and_then(Entry::epoll) else { return };
        epoll.nest_and_kick(fd);
        if let Some(epoll) = Self::of(new) {
            epoll.clear(new);
            epoll.nest();
        }
    }

    /// As `nest`, and wakes up who waits already.
    fn nest_and_kick(&self, fd: c_int) {
        if !self.nest() {
            return;
        }
        let members = self.with(|members| members.all.map(|member| member.fd));
        for member in members.into_iter().flatten() {
            if table::enter(member).is_some_and(Socket::has_messages) {
                self.kick(fd, member);
            }
        }
    }

    /// Something else waits for this epoll: for its sockets nothing is read ahead any more. Returns whether one has
    /// messages.
    pub(crate) fn nest(&self) -> bool {
        self.with(|members| {
            members.nested = true;
            members.all[..members.count].iter().any(|member| {
                let Some(socket) = table::enter(member.fd) else { return false };
                socket.make_plain("its epoll is waited for by another call");
                let holds = socket.holds() && member.events & READABLE != 0;
                socket.leave();
                holds
            })
        })
        .unwrap_or(false)
    }

    /// Begins to wait for the members, and puts the events of those with messages into `events`, up to `room`. Returns
    /// how many.
    fn collect(&self, waiting: &mut Waiting, events: &mut [epoll_event], room: usize) -> usize {
        self.with(|members| {
            let (count, mut given) = (members.count, 0);
            let begin = members.first;
            for index in 0..count {
                let index = (begin + index) % count;
                let member = &mut members.all[index];
                if member.events & READABLE == 0 {
                    continue;
                }
                let held = waiting.add(member.fd);
                let progress = Some(progress(member.fd));
                let is_edge = member.events & libc::EPOLLET as u32 != 0;
                if held == 0 || is_edge && progress == member.reported {
                    continue;
                }
                if given == room {
                    members.first = index;
                    continue;
                }
                member.reported = progress;
                events[given] = epoll_event { events: member.events & READABLE, u64: member.data };
                given += 1;
            }
            given
        })
        .unwrap_or(0)
    }
}

impl Member {
    /// Sets its events in the kernel, with others.
    fn set(&self, epoll: c_int, others: u32) {
        let mut event = epoll_event { events: self.events | others, u64: self.data };
        // SAFETY: an event of this thread's. A member that the kernel no longer has needs none.
        unsafe { next::epoll_ctl(epoll, libc::EPOLL_CTL_MOD, self.fd, &raw mut event) };
    }
}

fn progress(fd: c_int) -> u32 {
    let Some(socket) = table::enter(fd) else { return 0 };
    let progress = socket.queue().map_or(0, Queue::progress);
    socket.leave();
    progress
}

after! {
    epoll_create(size: c_int) -> fd: c_int { Epoll::begin(fd); }
    epoll_create1(flags: c_int) -> fd: c_int { Epoll::begin(fd); }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { next::epoll_ctl(epoll, operation, fd, event) };
    if result != 0 {
        return result;
    }
    if let Some(inner) = table::entry(fd).and_then(Entry::epoll) {
        inner.nest_and_kick(fd);
    }
    let Some(socket) = table::enter(fd) else { return result };
    if operation == libc::EPOLL_CTL_DEL {
        socket.part(epoll);
        if let Some(epoll) = table::entry(epoll).and_then(Entry::epoll) {
            epoll.remove(fd);
        }
    } else if operation == libc::EPOLL_CTL_ADD || operation == libc::EPOLL_CTL_MOD {
        // SAFETY: the kernel has read it.
        let event = unsafe { *event };
        table::errno_kept(|| set_member(epoll, socket, event));
    }
    socket.leave();
    result
}

fn set_member(number: c_int, socket: Socket, event: epoll_event) {
    let Some(epoll) = Epoll::of(number).filter(|_| socket.join(number)) else {
        return socket.make_plain("it is in more epolls than Linerate keeps a list of");
    };
    let (events, data) = (event.events, event.u64);
    let new = Member { fd: socket.fd, events, data, reported: None, kicked: false };
    let mut was_readable = false;
    let (nested, full) = epoll
        .with(|members| {
            let all = &mut members.all[..members.count];
            if let Some(member) = all.iter_mut().find(|member| member.fd == socket.fd) {
                was_readable = member.events & READABLE != 0;
                *member = new;
            } else if members.count < MEMBERS {
                members.all[members.count] = new;
                members.count += 1;
            } else {
                return (members.nested, true);
            }
            (members.nested, false)
        })
        .unwrap_or((false, true));
    if full {
        socket.make_plain("its epoll has more UDP sockets than Linerate keeps a list of");
    } else if nested {
        socket.make_plain("its epoll is waited for by another call");
    } else if events & !(KNOWN as u32) != 0 {
        socket.make_plain("it is in an epoll with EPOLLONESHOT, EPOLLEXCLUSIVE or another flag");
    }
    let sleeps = epoll.sleepers.load(Ordering::SeqCst) > 0;
    if events & READABLE == 0 || !sleeps && !nested {
        return;
    }
    // They are not counted as waiting for this socket.
    if sleeps && !was_readable {
        socket.make_plain("a thread was waiting for its epoll already");
    }
    if socket.holds() {
        epoll.kick(number, socket.fd);
    }
}

/// Waits with `wait`, which has the buffer, its length, and whether it may not wait.
///
/// # Safety
///
/// `events` has room for `count` events.
unsafe fn wait(
    number: c_int,
    events: *mut epoll_event,
    count: c_int,
    wait: impl Fn(*mut epoll_event, c_int, bool) -> c_int,
) -> c_int {
    let Some(epoll) = Epoll::of(number).filter(|_| count > 0) else {
        return wait(events, count, false);
    };
    loop {
        epoll.sleepers.fetch_add(1, Ordering::SeqCst);
        let result = if epoll.is_empty() {
            wait(events, count, false)
        } else {
            // SAFETY: as the caller's.
            unsafe { wait_for_members(epoll, events, count, &wait) }
        };
        epoll.sleepers.fetch_sub(1, Ordering::SeqCst);
        if result <= 0 || !epoll.kicks.load(Ordering::SeqCst) {
            return result;
        }
        // SAFETY: so many are filled.
        let filled = unsafe { std::slice::from_raw_parts_mut(events, result as usize) };
        let left = epoll.unkick(number, filled);
        if left > 0 {
            return left as c_int;
        }
    }
}

/// # Safety
///
/// As `wait`.
unsafe fn wait_for_members(
    epoll: &Epoll,
    events: *mut epoll_event,
    count: c_int,
    wait: impl Fn(*mut epoll_event, c_int, bool) -> c_int,
) -> c_int {
    let mut waiting = Waiting::new();
    // Half of the room at most, so that the kernel's events have their turn; but for the one event that is the least.
    let room = (count as usize).div_ceil(2).min(MEMBERS);
    let mut held = [epoll_event { events: 0, u64: 0 }; MEMBERS];
    let found = epoll.collect(&mut waiting, &mut held, room);
    let rest = count - found as c_int;
    let mut result = if rest > 0 { wait(events, rest, found > 0) } else { 0 };
    waiting.end();
    if result < 0 {
        return result;
    }
    for event in &held[..found] {
        // SAFETY: the kernel has filled so many.
        let kernel = unsafe { std::slice::from_raw_parts_mut(events, result as usize) };
        let data = event.u64;
        if let Some(same) = kernel.iter_mut().find(|one| ({ one.u64 }) == data) {
            same.events |= event.events;
        } else {
            // SAFETY: `rest` has left room for all of them.
            unsafe { events.add(result as usize).write(*event) };
            result += 1;
        }
    }
    result
}

static NOW: timespec = timespec { tv_sec: 0, tv_nsec: 0 };

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_wait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's arguments, or less room.
    unsafe {
        wait(epoll, events, count, |events, count, now| {
            next::epoll_wait(epoll, events, count, if now { 0 } else { timeout })
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        wait(epoll, events, count, |events, count, now| {
            next::epoll_pwait(epoll, events, count, if now { 0 } else { timeout }, mask)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn epoll_pwait2(
    epoll: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        wait(epoll, events, count, |events, count, now| {
            let timeout = if now { &raw const NOW } else { timeout };
            next::epoll_pwait2(epoll, events, count, timeout, mask)
        })
    }
}
