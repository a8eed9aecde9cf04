//! A receiver and a transmitter on one port.

use core::ffi::{c_char, c_int};
use core::ptr;
use std::os::fd::{BorrowedFd, OwnedFd};

use linerate_udp::Error;

use crate::message::linerate_message;
use crate::options::linerate_receive_options;
use crate::receiver::{linerate_receiver, linerate_receiver_fd, linerate_receiver_receive, put};
use crate::status::linerate_receive_status;
use crate::transmitter::{linerate_transmit, linerate_transmitter, linerate_transmitter_send};

/// A socket that receives and sends, for servers. For one thread at a time.
pub struct linerate_socket {
    receiver: linerate_receiver,
    transmitter: linerate_transmitter,
}

/// Opens a socket and stores it at `socket`. `fd` is -1, or a UDP socket that is already bound, as systemd passes it
/// (sd_listen_fds): it is duplicated, stays open, and `options->bind` is ignored. Destinations of messages are reported
/// if it is bound to every address, so that answers come from the address that was asked. If it fails, NULL is stored,
/// and the reason, truncated if necessary, is written to `why`, which has room for `size` bytes and may be NULL.
///
/// # Safety
/// `options` points to options whose texts are NUL-terminated, `fd` is -1 or open, `socket` points to a place for a
/// pointer, and `why` is NULL or points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_socket_open(
    options: *const linerate_receive_options,
    fd: c_int,
    socket: *mut *mut linerate_socket,
    why: *mut c_char,
    size: usize,
) -> linerate_receive_status {
    if socket.is_null() {
        return linerate_receive_status::InvalidArgument;
    }
    // SAFETY: not NULL, and the caller vouches for it.
    unsafe { socket.write(ptr::null_mut()) };
    let bound = match fd {
        -1 => Ok(None),
        // SAFETY: the caller vouches that a descriptor of no negative number is open.
        0.. => unsafe { duplicate(fd) }.map(Some),
        _ => Err(Error::Invalid(format!("{fd} is no descriptor"))),
    };
    let opened = bound.and_then(|bound| {
        // SAFETY: the caller vouches for the pointer and for what it leads to.
        match unsafe { options.as_ref() } {
            // SAFETY: as above.
            Some(options) => linerate_udp::Socket::open(unsafe { options.read(bound) }?),
            None => Err(Error::Invalid("options is NULL".to_owned())),
        }
    });
    match opened {
        Ok(opened) => {
            let linerate_udp::Socket { receiver, transmitter } = opened;
            let handle = linerate_socket {
                receiver: linerate_receiver::of(receiver),
                transmitter: linerate_transmitter::of(transmitter),
            };
            // SAFETY: as above.
            unsafe { socket.write(Box::into_raw(Box::new(handle))) };
            linerate_receive_status::Ok
        }
        Err(error) => {
            // SAFETY: the caller vouches for `size` bytes, or NULL.
            unsafe { put(&error.to_string(), why, size) };
            linerate_receive_status::from(&error)
        }
    }
}

/// # Safety
/// `fd` is open.
unsafe fn duplicate(fd: c_int) -> Result<OwnedFd, Error> {
    // SAFETY: the caller's.
    let duplicate = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
    duplicate.map_err(|error| Error::Invalid(format!("descriptor {fd}: {error}")))
}

/// The receiving half, for the functions of receivers; NULL for NULL. It is closed with the socket.
///
/// # Safety
/// `socket` is NULL or of linerate_socket_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_socket_receiver(
    socket: *mut linerate_socket,
) -> *mut linerate_receiver {
    if socket.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: not NULL, and the caller vouches for it.
    unsafe { &raw mut (*socket).receiver }
}

/// The sending half, for the functions of transmitters; NULL for NULL. It is closed with the socket.
///
/// # Safety
/// `socket` is NULL or of linerate_socket_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_socket_transmitter(
    socket: *mut linerate_socket,
) -> *mut linerate_transmitter {
    if socket.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: not NULL, and the caller vouches for it.
    unsafe { &raw mut (*socket).transmitter }
}

/// As linerate_receiver_receive(). Payloads stay while answers to them are sent by linerate_socket_send().
///
/// # Safety
/// `socket` is of linerate_socket_open(); the rest as linerate_receiver_receive().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_socket_receive(
    socket: *mut linerate_socket,
    timeout: i64,
    messages: *mut linerate_message,
    room: usize,
    count: *mut usize,
) -> linerate_receive_status {
    // SAFETY: the caller's.
    unsafe {
        linerate_receiver_receive(linerate_socket_receiver(socket), timeout, messages, room, count)
    }
}

/// As linerate_transmitter_send().
///
/// # Safety
/// `socket` is of linerate_socket_open(); the rest as linerate_transmitter_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_socket_send(
    socket: *mut linerate_socket,
    transmits: *const linerate_transmit,
    count: usize,
    sent: *mut usize,
) -> linerate_receive_status {
    // SAFETY: the caller's.
    unsafe {
        linerate_transmitter_send(linerate_socket_transmitter(socket), transmits, count, sent)
    }
}

/// The descriptor to poll: readable when there are messages. To wait for room, poll linerate_transmitter_fd(). It is the
/// socket's to close; -1 for NULL.
///
/// # Safety
/// `socket` is NULL or of linerate_socket_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_socket_fd(socket: *mut linerate_socket) -> c_int {
    // SAFETY: the caller's.
    unsafe { linerate_receiver_fd(linerate_socket_receiver(socket)) }
}

/// Closes a socket with both halves; what it lent is gone.
///
/// # Safety
/// `socket` is NULL or of linerate_socket_open(), and neither it nor a half of it is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_socket_close(socket: *mut linerate_socket) {
    if !socket.is_null() {
        // SAFETY: the caller vouches that it is a handle that was not closed.
        drop(unsafe { Box::from_raw(socket) });
    }
}
