//! Receiving.

use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use core::slice;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use linerate_udp::{Batch, Error, Group, Receiver};

use crate::message::{linerate_drops, linerate_message, linerate_sockaddr};
use crate::options::{linerate_receive_options, read_group};
use crate::status::linerate_receive_status;

/// A receiver. For one thread at a time.
pub struct linerate_receiver {
    /// Whose messages the caller reads. It borrows from what `inner` points to, and goes first.
    batch: Option<Batch<'static>>,
    /// From a box, which is not held as one: a box says that nobody else refers to what is in it.
    inner: NonNull<Receiver>,
    backend: CString,
    error: CString,
}

impl linerate_receiver {
    pub(crate) fn of(receiver: Receiver) -> Self {
        let backend = CString::new(receiver.backend().name()).unwrap_or_default();
        let inner = NonNull::from(Box::leak(Box::new(receiver)));
        Self { batch: None, inner, backend, error: CString::default() }
    }

    /// The receiver, after the messages that were lent have gone back.
    fn inner(&mut self) -> &mut Receiver {
        self.batch = None;
        // SAFETY: the box lives as long as this value, and the batch, which alone borrowed from it, is gone.
        unsafe { self.inner.as_mut() }
    }

    /// One that sends from the same socket.
    pub(crate) fn transmitter(&mut self) -> linerate_udp::Transmitter {
        self.inner().transmitter()
    }

    fn note(&mut self, answer: Result<(), Error>) -> linerate_receive_status {
        let Err(error) = answer else { return linerate_receive_status::Ok };
        self.error = CString::new(error.to_string()).unwrap_or_default();
        linerate_receive_status::from(&error)
    }

    /// Fills `into`. Returns how many messages there were.
    fn receive(
        &mut self,
        timeout: i64,
        into: &mut [MaybeUninit<linerate_message>],
    ) -> Result<usize, Error> {
        self.batch = None;
        let deadline = u64::try_from(timeout)
            .ok()
            .and_then(|timeout| Instant::now().checked_add(Duration::from_nanos(timeout)));
        loop {
            // SAFETY: the box lives as long as this value, which drops the batch before the box and before
            // it uses the receiver for anything else.
            let receiver: &'static mut Receiver = unsafe { &mut *self.inner.as_ptr() };
            let mut batch = match timeout {
                0 => receiver.try_receive()?,
                _ => receiver.receive(deadline)?,
            };
            if batch.is_empty() {
                return Ok(0);
            }
            let mut count = 0;
            while let Some(place) = into.get_mut(count)
                && let Some(message) = batch.next()
            {
                place.write(linerate_message::from(&message));
                count += 1;
            }
            // All that came may have had wrong checksums.
            if count > 0 {
                self.batch = Some(batch);
                return Ok(count);
            }
        }
    }
}

impl Drop for linerate_receiver {
    fn drop(&mut self) {
        self.batch = None;
        // SAFETY: of a box in `of`, and nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
    }
}

/// Opens a receiver and stores it at `receiver`. If that fails, NULL is stored, and the reason, truncated if
/// necessary, is written to `why`, which has room for `size` bytes and may be NULL.
///
/// # Safety
/// `options` points to options whose texts are NUL-terminated, `receiver` to a place for a pointer, and
/// `why` is NULL or points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_receiver_open(
    options: *const linerate_receive_options,
    receiver: *mut *mut linerate_receiver,
    why: *mut c_char,
    size: usize,
) -> linerate_receive_status {
    if receiver.is_null() {
        return linerate_receive_status::InvalidArgument;
    }
    // SAFETY: not NULL, and the caller vouches for it.
    unsafe { receiver.write(ptr::null_mut()) };
    // SAFETY: the caller vouches for the pointer and for what it leads to.
    let wanted = unsafe {
        match options.as_ref() {
            Some(options) => options.read(None),
            None => Err(Error::Invalid("options is NULL".to_owned())),
        }
    };
    let opened = wanted.and_then(linerate_udp::Receiver::open);
    match opened {
        Ok(opened) => {
            let handle = Box::into_raw(Box::new(linerate_receiver::of(opened)));
            // SAFETY: as above.
            unsafe { receiver.write(handle) };
            linerate_receive_status::Ok
        }
        Err(error) => {
            // SAFETY: the caller vouches for `size` bytes, or NULL.
            unsafe { put(&error.to_string(), why, size) };
            linerate_receive_status::from(&error)
        }
    }
}

/// Another receiver on the same socket, for another thread: each message goes to one of them. Not for xdp.
///
/// # Safety
/// `receiver` is of linerate_receiver_open(), and `other` points to a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_receiver_clone(
    receiver: *mut linerate_receiver,
    other: *mut *mut linerate_receiver,
) -> linerate_receive_status {
    // SAFETY: the caller vouches for the pointer.
    let Some(handle) = (unsafe { receiver.as_mut() }) else {
        return linerate_receive_status::InvalidArgument;
    };
    if other.is_null() {
        return linerate_receive_status::InvalidArgument;
    }
    let (shared, answer) = match handle.inner().try_clone() {
        Ok(shared) => (Box::into_raw(Box::new(linerate_receiver::of(shared))), Ok(())),
        Err(error) => (ptr::null_mut(), Err(error)),
    };
    // SAFETY: not NULL, and the caller vouches for it.
    unsafe { other.write(shared) };
    handle.note(answer)
}

/// Closes a receiver; what it lent is gone.
///
/// # Safety
/// `receiver` is NULL or of linerate_receiver_open() or linerate_receiver_clone(), and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_receiver_close(receiver: *mut linerate_receiver) {
    if !receiver.is_null() {
        // SAFETY: the caller vouches that it is a handle that was not closed.
        drop(unsafe { Box::from_raw(receiver) });
    }
}

/// Stores messages at `messages`, which has room for `room`, and their number at `count`: those that have
/// arrived, at once if there are any, otherwise when there are. Waits for `timeout` nanoseconds: 0 not at
/// all, a negative number for ever. LINERATE_RECEIVE_STATUS_TIMEOUT if none arrived. Messages without room
/// are in the next call. Payloads are lent until the next call with the receiver, whichever it is.
///
/// # Safety
/// `receiver` is of linerate_receiver_open(), `messages` points to `room` messages, and `count` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_receiver_receive(
    receiver: *mut linerate_receiver,
    timeout: i64,
    messages: *mut linerate_message,
    room: usize,
    count: *mut usize,
) -> linerate_receive_status {
    // SAFETY: the caller vouches for the pointer.
    let Some(handle) = (unsafe { receiver.as_mut() }) else {
        return linerate_receive_status::InvalidArgument;
    };
    let fits = room > 0 && room <= isize::MAX as usize / size_of::<linerate_message>();
    if messages.is_null() || count.is_null() || !fits {
        return linerate_receive_status::InvalidArgument;
    }
    // SAFETY: the caller vouches for room for so many; they need not have been written to before.
    let into = unsafe { slice::from_raw_parts_mut(messages.cast(), room) };
    let (came, status) = match handle.receive(timeout, into) {
        Ok(0) => (0, linerate_receive_status::Timeout),
        Ok(came) => (came, linerate_receive_status::Ok),
        Err(error) => (0, handle.note(Err(error))),
    };
    // SAFETY: not NULL, and the caller vouches for it.
    unsafe { count.write(came) };
    status
}

/// The descriptor to poll: readable when there are messages. It is the receiver's to close; -1 for NULL.
///
/// # Safety
/// `receiver` is NULL or of linerate_receiver_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_receiver_fd(receiver: *mut linerate_receiver) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    let handle = unsafe { receiver.as_mut() };
    handle.map_or(-1, |handle| handle.inner().as_fd().as_raw_fd())
}

/// The socket itself, or the companion of xdp, on which recvmsg() and setsockopt() work as ever; -1 for NULL.
///
/// # Safety
/// `receiver` is NULL or of linerate_receiver_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_receiver_socket(receiver: *mut linerate_receiver) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    let handle = unsafe { receiver.as_mut() };
    handle.map_or(-1, |handle| handle.inner().socket().as_raw_fd())
}

/// Stores the address that the receiver is bound to.
///
/// # Safety
/// `receiver` is of linerate_receiver_open(), and `address` points to an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_receiver_address(
    receiver: *mut linerate_receiver,
    address: *mut linerate_sockaddr,
) -> linerate_receive_status {
    // SAFETY: the caller vouches for the pointers, which are of different types and do not overlap.
    let (Some(handle), Some(address)) = (unsafe { (receiver.as_mut(), address.as_mut()) }) else {
        return linerate_receive_status::InvalidArgument;
    };
    *address = handle.inner().address().into();
    linerate_receive_status::Ok
}

/// The backend in use, as "gro"; valid until the receiver is closed, NULL for NULL.
///
/// # Safety
/// `receiver` is NULL or of linerate_receiver_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_receiver_backend(
    receiver: *const linerate_receiver,
) -> *const c_char {
    // SAFETY: the caller vouches for the pointer.
    unsafe { receiver.as_ref() }.map_or(ptr::null(), |handle| handle.backend.as_ptr())
}

/// Stores what was lost, by cause.
///
/// # Safety
/// `receiver` is of linerate_receiver_open(), and `drops` points to drops.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_receiver_drops(
    receiver: *mut linerate_receiver,
    drops: *mut linerate_drops,
) -> linerate_receive_status {
    // SAFETY: the caller vouches for the pointers, which are of different types and do not overlap.
    let (Some(handle), Some(drops)) = (unsafe { (receiver.as_mut(), drops.as_mut()) }) else {
        return linerate_receive_status::InvalidArgument;
    };
    let answer = handle.inner().drops().map(|lost| *drops = lost.into());
    handle.note(answer)
}

/// Joins a group, as "239.1.1.1@eth1".
///
/// # Safety
/// `receiver` is of linerate_receiver_open(), and `group` is a NUL-terminated text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_receiver_join(
    receiver: *mut linerate_receiver,
    group: *const c_char,
) -> linerate_receive_status {
    // SAFETY: the caller vouches for both.
    unsafe { regroup(receiver, group, Receiver::join) }
}

/// Leaves a group.
///
/// # Safety
/// As linerate_receiver_join().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_receiver_leave(
    receiver: *mut linerate_receiver,
    group: *const c_char,
) -> linerate_receive_status {
    // SAFETY: the caller vouches for both.
    unsafe { regroup(receiver, group, Receiver::leave) }
}

/// # Safety
/// As [`linerate_receiver_join`].
unsafe fn regroup(
    receiver: *mut linerate_receiver,
    group: *const c_char,
    what: fn(&mut Receiver, &Group) -> Result<(), Error>,
) -> linerate_receive_status {
    // SAFETY: the caller vouches for the pointer.
    let Some(handle) = (unsafe { receiver.as_mut() }) else {
        return linerate_receive_status::InvalidArgument;
    };
    // SAFETY: the caller vouches for the text.
    let group = unsafe { read_group(group) }.map_err(Error::Invalid);
    let answer = group.and_then(|group| what(handle.inner(), &group));
    handle.note(answer)
}

/// Why the last failed call failed, and what to do about it; an empty text if none failed. Valid until the
/// next call with the receiver, NULL for NULL.
///
/// # Safety
/// `receiver` is NULL or of linerate_receiver_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_receiver_error(
    receiver: *const linerate_receiver,
) -> *const c_char {
    // SAFETY: the caller vouches for the pointer.
    unsafe { receiver.as_ref() }.map_or(ptr::null(), |handle| handle.error.as_ptr())
}

/// Writes `text` to `size` bytes at `out`, NUL-terminated and truncated if necessary.
///
/// # Safety
/// `out` is NULL or points to `size` bytes.
pub(crate) unsafe fn put(text: &str, out: *mut c_char, size: usize) {
    if out.is_null() || size == 0 {
        return;
    }
    let mut end = text.len().min(size - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let text = &text[..end];
    // SAFETY: one byte more than the text is at most `size`, for which the caller vouches.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        out.add(text.len()).write(0);
    }
}
