//! recv(2) and its relatives: from the queue, or from the kernel, ahead where that cannot be told.
//!
//! A read takes one uncontended lock, and copies a message that was read ahead a second time. In return the kernel is
//! entered once for up to 32 messages.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};

use crate::next::{self, checked};
use crate::queue::{Locked, Queue, header};
use crate::table::{self, Entry, Socket};

/// More vectors than `UIO_MAXIOV` the kernel refuses.
const MAX_VECTORS: usize = 1024;

/// How a read goes on.
enum Step {
    /// It has ended, with this result.
    Done(ssize_t),
    /// In the kernel, as the program asks.
    Kernel(Option<Socket>),
}

impl Step {
    /// The result; `kernel` calls the C library's function.
    #[inline]
    fn finish(self, kernel: impl FnOnce() -> ssize_t) -> ssize_t {
        match self {
            Self::Done(result) => result,
            Self::Kernel(socket) => {
                let result = kernel();
                if let Some(socket) = socket {
                    socket.stop_waiting();
                }
                result
            }
        }
    }
}

/// Begins a read.
///
/// # Safety
///
/// The header is one for recvmsg(2).
#[inline]
unsafe fn begin(fd: c_int, message: &mut msghdr, flags: c_int) -> Step {
    let Some((socket, queue)) = table::begin_waiting(fd) else { return Step::Kernel(None) };
    let peeks = flags & libc::MSG_PEEK != 0;
    let Some(queue) = queue else {
        if !peeks {
            socket.count_read();
        }
        return Step::Kernel(Some(socket));
    };
    let is_others = flags & libc::MSG_ERRQUEUE != 0
        || message.msg_iovlen > MAX_VECTORS
        || (message.msg_namelen as i32) < 0;
    if is_others || queue.is_idle(table::process()) && (peeks || queue.is_plain() || queue.skips())
    {
        socket.leave();
        return Step::Kernel(Some(socket));
    }
    socket.stop_waiting();
    // SAFETY: as the caller's.
    unsafe { read_queue(socket, queue, message, flags) }
}

/// # Safety
///
/// As `begin`.
unsafe fn read_queue(socket: Socket, queue: &Queue, message: &mut msghdr, flags: c_int) -> Step {
    let kernel = |locked: Locked<'_>| {
        socket.wait_locked();
        locked.unlock();
        socket.leave();
        Step::Kernel(Some(socket))
    };
    let Some(mut locked) = queue.lock() else {
        // A signal handler, which has interrupted a read of this thread.
        next::set_errno(libc::EAGAIN);
        socket.leave();
        return Step::Done(-1);
    };
    socket.note_use(&mut locked);
    let error = locked.take_error();
    let result = if error != 0 {
        next::set_errno(error);
        -1
    } else if queue.held() > 0 {
        // SAFETY: the caller's header, and there is a message.
        unsafe { locked.take(message, flags) as ssize_t }
    } else if flags & libc::MSG_PEEK != 0
        || queue.is_plain()
        || socket.is_plain()
        || socket.has_waiters()
    {
        return kernel(locked);
    } else if let Some(length) = locked.fill(socket.fd, message, flags) {
        length as ssize_t
    } else {
        let retries = match next::errno() {
            libc::EAGAIN => flags & libc::MSG_DONTWAIT == 0 && !socket.is_nonblocking(),
            // It was closed, and the number is another file's, without a call that is known here.
            libc::EBADF | libc::ENOTSOCK => true,
            // A filter of system calls.
            libc::EPERM | libc::ENOSYS => locked.make_plain(),
            _ => false,
        };
        if retries {
            return kernel(locked);
        }
        -1
    };
    locked.unlock();
    socket.leave();
    Step::Done(result)
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn recvmsg(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: null, or the caller's header.
    let step = match unsafe { message.as_mut() } {
        // SAFETY: as above.
        Some(message) => unsafe { begin(fd, message, flags) },
        None => Step::Kernel(None),
    };
    // SAFETY: the caller's arguments.
    step.finish(|| unsafe { next::recvmsg(fd, message, flags) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    let mut vector = iovec { iov_base: buffer, iov_len: length };
    let mut message = header(&raw mut vector, 1);
    let named = !address.is_null() && !address_length.is_null();
    if named {
        message.msg_name = address.cast();
        // SAFETY: not null, so it has the length.
        message.msg_namelen = unsafe { *address_length };
    }
    // SAFETY: the caller's buffers.
    let step = unsafe { begin(fd, &mut message, flags) };
    if let Step::Done(0..) = step
        && named
    {
        // SAFETY: as above.
        unsafe { *address_length = message.msg_namelen };
    }
    // SAFETY: the caller's arguments.
    step.finish(|| unsafe { next::recvfrom(fd, buffer, length, flags, address, address_length) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn recv(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    let mut vector = iovec { iov_base: buffer, iov_len: length };
    // SAFETY: the caller's buffer.
    let step = unsafe { begin(fd, &mut header(&raw mut vector, 1), flags) };
    // SAFETY: the caller's arguments.
    step.finish(|| unsafe { next::recv(fd, buffer, length, flags) })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn read(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
) -> ssize_t {
    let mut vector = iovec { iov_base: buffer, iov_len: length };
    // Without room, read(2) takes no message.
    let step = if length == 0 {
        Step::Kernel(None)
    } else {
        // SAFETY: the caller's buffer.
        unsafe { begin(fd, &mut header(&raw mut vector, 1), 0) }
    };
    // SAFETY: the caller's arguments.
    step.finish(|| unsafe { next::read(fd, buffer, length) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    let number = usize::try_from(count).unwrap_or(0);
    let is_socket = table::entry(fd).is_some_and(Entry::is_socket);
    // SAFETY: the caller's vectors.
    let has_bytes = |index| unsafe { (*vectors.add(index)).iov_len } > 0;
    let has_room = is_socket && (0..number).any(has_bytes);
    let step = if has_room {
        // SAFETY: the caller's vectors.
        unsafe { begin(fd, &mut header(vectors.cast_mut(), number), 0) }
    } else {
        Step::Kernel(None)
    };
    // SAFETY: the caller's arguments.
    step.finish(|| unsafe { next::readv(fd, vectors, count) })
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    vectors: *const iovec,
    count: c_int,
    offset: libc::off_t,
    flags: c_int,
) -> ssize_t {
    if offset == -1
        && let Some(socket) = table::enter(fd)
    {
        if flags != 0 {
            socket.make_plain("preadv2 with flags");
        }
        let holds = socket.holds();
        socket.leave();
        if flags == 0 || holds {
            // SAFETY: the caller's arguments.
            return unsafe { readv(fd, vectors, count) };
        }
    }
    // SAFETY: the caller's arguments.
    unsafe { next::preadv2(fd, vectors, count, offset, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn preadv64v2(
    fd: c_int,
    vectors: *const iovec,
    count: c_int,
    offset: libc::off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe { preadv2(fd, vectors, count, offset, flags) }
}

/// A program that reads several messages a call reads nothing ahead; messages of the queue come first.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let Some((socket, queue)) = table::begin_waiting(fd) else {
        // SAFETY: the caller's arguments.
        return unsafe { next::recvmmsg(fd, messages, count, flags, timeout) };
    };
    let mut taken = 0;
    if let Some(queue) = queue {
        if !queue.is_idle(table::process()) {
            // SAFETY: the caller's headers.
            taken = unsafe { take_several(socket, queue, messages, count, flags) };
        }
        socket.leave();
    }
    if taken < 0 || taken > 0 && taken as c_uint == count {
        socket.stop_waiting();
        return taken;
    }
    let waits = taken == 0 || flags & libc::MSG_WAITFORONE == 0;
    let flags = if waits { flags } else { flags | libc::MSG_DONTWAIT };
    // SAFETY: the rest of the caller's headers.
    let more = unsafe {
        next::recvmmsg(fd, messages.add(taken as usize), count - taken as c_uint, flags, timeout)
    };
    socket.stop_waiting();
    if taken > 0 && more < 0 && !matches!(next::errno(), libc::EAGAIN | libc::EINTR) {
        // As the kernel does: the next call has the error.
        keep_error(fd, next::errno());
    }
    taken + if taken > 0 { more.max(0) } else { more }
}

fn keep_error(fd: c_int, error: c_int) {
    let Some(socket) = table::enter(fd) else { return };
    if let Some(mut locked) = socket.queue().and_then(Queue::lock) {
        locked.keep_error(error);
        locked.unlock();
    }
    socket.leave();
}

/// Messages of the queue, for `recvmmsg`: how many, or -1. The thread stays counted as waiting: nobody
/// reads ahead meanwhile.
///
/// # Safety
///
/// `messages` has `count` headers.
unsafe fn take_several(
    socket: Socket,
    queue: &Queue,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let Some(mut locked) = queue.lock() else {
        next::set_errno(libc::EAGAIN);
        return -1;
    };
    socket.note_use(&mut locked);
    let error = locked.take_error();
    let mut taken = 0;
    if error != 0 {
        next::set_errno(error);
        taken = -1;
    } else if flags & libc::MSG_ERRQUEUE == 0 {
        // A peek of several messages is one of the first: the kernel's own gives the same one each time.
        while queue.held() > 0 && (taken as c_uint) < count {
            // SAFETY: one of the caller's headers, and there is a message.
            unsafe {
                let one = &mut *messages.add(taken as usize);
                one.msg_len = locked.take(&mut one.msg_hdr, flags) as c_uint;
            }
            taken += 1;
        }
    }
    locked.unlock();
    taken
}

checked! {
    __recv_chk(fd: c_int, buffer: *mut c_void, length: size_t, size: size_t, flags: c_int) -> ssize_t,
        length > size, recv(fd, buffer, length, flags);
    __recvfrom_chk(fd: c_int, buffer: *mut c_void, length: size_t, size: size_t, flags: c_int, address: *mut sockaddr,
        address_length: *mut socklen_t) -> ssize_t,
        length > size, recvfrom(fd, buffer, length, flags, address, address_length);
    __read_chk(fd: c_int, buffer: *mut c_void, length: size_t, size: size_t) -> ssize_t,
        length > size, read(fd, buffer, length);
}
