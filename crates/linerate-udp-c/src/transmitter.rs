//! Sending.

use core::ffi::{c_char, c_int};
use core::ptr;
use core::slice;
use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use linerate_udp::{Transmit, Transmitter};
use linerate_wire::ethernet;

use crate::message::{linerate_message, linerate_sockaddr};
use crate::receiver::linerate_receiver;
use crate::status::linerate_receive_status;

/// One datagram to send, or several of one size to one address.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linerate_transmit {
    /// The payload; that of a message that is lent, too.
    pub payload: *const u8,
    /// Bytes of payload.
    pub len: usize,
    /// Where it goes.
    pub destination: linerate_sockaddr,
    /// The address of this host that it comes from, whatever its port; `len` 0 for that of the socket.
    pub source: linerate_sockaddr,
    /// Index of the interface that it leaves by; 0 for that of the route.
    pub interface_index: u32,
    /// Bytes of each datagram but the last, which may be shorter; 0 if all of the payload is one.
    pub segment_size: u32,
    /// DSCP in the upper six bits, ECN in the lower two; -1 for that of the socket.
    pub traffic_class: i16,
    /// The Ethernet address of the next hop, for the transmit ring of `xdp`; zeroes if unknown.
    pub next_hop: [u8; 6],
}

/// What a transmitter sent.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct linerate_send_statistics {
    /// Messages that the kernel took, also by the transmit ring.
    pub messages: u64,
    /// Of these, messages that bypassed the stack, through the transmit ring of `xdp`.
    pub ring: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Messages sent one by one, because the kernel did not segment them.
    pub unsegmented: u64,
    /// Messages that the kernel refused.
    pub refused: u64,
    /// System calls.
    pub syscalls: u64,
}

/// Sends from the socket of a receiver. For one thread at a time, which may be another than the receiver's.
pub struct linerate_transmitter {
    inner: Transmitter,
    error: CString,
}

impl linerate_transmit {
    /// The transmit of the Rust library; `None` for what is invalid.
    ///
    /// # Safety
    /// `payload` points to `len` bytes that stay for `'t`, or `len` is 0.
    unsafe fn read<'t>(&self) -> Option<Transmit<'t>> {
        let contents = match (self.payload.is_null(), self.len) {
            (_, 0) => &[],
            (true, _) => return None,
            // SAFETY: the caller's.
            (false, len) => unsafe { slice::from_raw_parts(self.payload, len) },
        };
        let source = match self.source.len {
            0 => None,
            _ => Some(self.source.address()?.ip()),
        };
        let traffic_class = match self.traffic_class {
            -1 => None,
            class => Some(u8::try_from(class).ok()?),
        };
        Some(Transmit {
            source,
            interface_index: (self.interface_index != 0).then_some(self.interface_index),
            traffic_class,
            segment_size: (self.segment_size != 0).then_some(self.segment_size as usize),
            next_hop: hardware_address(self.next_hop),
            ..Transmit::new(self.destination.address()?, contents)
        })
    }
}

/// An Ethernet address; `None` for zeroes.
fn hardware_address(bytes: [u8; 6]) -> Option<ethernet::Address> {
    (bytes != [0; 6]).then_some(ethernet::Address(bytes))
}

/// For a transmit that cannot be read a second time. There is none.
const NOTHING: Transmit<'static> =
    Transmit::new(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), &[]);

/// Makes an answer to a message: to its sender, from the address that it was sent to, as far as that is known
/// (LINERATE_RECEIVE_DESTINATION). Its payload is that of the message.
///
/// # Safety
/// `message` and `transmit` point to one each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_message_reply(
    message: *const linerate_message,
    transmit: *mut linerate_transmit,
) -> linerate_receive_status {
    // SAFETY: the caller vouches for the pointer.
    let (Some(message), false) = (unsafe { message.as_ref() }, transmit.is_null()) else {
        return linerate_receive_status::InvalidArgument;
    };
    let (Some(source), Some(destination)) =
        (message.source.address(), message.destination.address())
    else {
        return linerate_receive_status::InvalidArgument;
    };
    let reply = linerate_udp::Message {
        payload: &[],
        source,
        destination,
        broadcast: message.broadcast != 0,
        timestamp: None,
        traffic_class: None,
        interface_index: None,
        next_hop: hardware_address(message.next_hop),
        truncated: false,
    };
    let reply = reply.reply(&[]);
    let nowhere = linerate_sockaddr { bytes: [0; 28], len: 0 };
    let answer = linerate_transmit {
        payload: message.payload,
        len: message.len,
        destination: reply.destination.into(),
        source: reply.source.map_or(nowhere, |ip| SocketAddr::new(ip, 0).into()),
        interface_index: 0,
        segment_size: 0,
        traffic_class: -1,
        next_hop: reply.next_hop.map_or([0; 6], |address| address.0),
    };
    // SAFETY: not NULL, and the caller vouches for it; it need not have been written to before.
    unsafe { transmit.write(answer) };
    linerate_receive_status::Ok
}

/// Opens a transmitter on the socket of a receiver and stores it at `transmitter`. The socket stays open until all of
/// them are closed. It takes as many datagrams at a time as the receiver's batch has. Messages that the receiver lent go
/// back with this call, as with every other.
///
/// # Safety
/// `receiver` is of linerate_receiver_open(), and `transmitter` points to a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_transmitter_open(
    receiver: *mut linerate_receiver,
    transmitter: *mut *mut linerate_transmitter,
) -> linerate_receive_status {
    // SAFETY: the caller vouches for the pointer.
    let (Some(handle), false) = (unsafe { receiver.as_mut() }, transmitter.is_null()) else {
        return linerate_receive_status::InvalidArgument;
    };
    let opened = linerate_transmitter::of(handle.transmitter());
    // SAFETY: not NULL, and the caller vouches for it.
    unsafe { transmitter.write(Box::into_raw(Box::new(opened))) };
    linerate_receive_status::Ok
}

/// Sends datagrams without waiting, from the memory of their payloads, and stores at `sent` how many were sent or
/// refused, from the first on. LINERATE_RECEIVE_STATUS_TIMEOUT where the socket has no room: poll
/// linerate_transmitter_fd() for writing. Payloads may be those of messages that a receiver lends.
///
/// # Safety
/// `transmitter` is of linerate_transmitter_open(), `transmits` points to `count` of them, whose payloads are readable,
/// and `sent` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_transmitter_send(
    transmitter: *mut linerate_transmitter,
    transmits: *const linerate_transmit,
    count: usize,
    sent: *mut usize,
) -> linerate_receive_status {
    // SAFETY: the caller vouches for the pointer.
    let Some(handle) = (unsafe { transmitter.as_mut() }) else {
        return linerate_receive_status::InvalidArgument;
    };
    let fits = count <= isize::MAX as usize / size_of::<linerate_transmit>();
    if sent.is_null() || !fits || count > 0 && transmits.is_null() {
        return linerate_receive_status::InvalidArgument;
    }
    let all = match count {
        0 => &[],
        // SAFETY: the caller vouches for so many.
        _ => unsafe { slice::from_raw_parts(transmits, count) },
    };
    // SAFETY: the caller vouches for the payloads, for longer than this call.
    let read = |at: usize| unsafe { all[at].read() };
    let (done, status) = match (0..count).find(|at| read(*at).is_none()) {
        Some(wrong) => {
            handle
                .note(&format!("transmit {wrong} has no valid address, payload or traffic class"));
            (0, linerate_receive_status::InvalidArgument)
        }
        // Read again rather than kept: that would need memory.
        None => match handle.inner.try_send_by(count, |at| read(at).unwrap_or(NOTHING)) {
            Ok(0) if count > 0 => (0, linerate_receive_status::Timeout),
            Ok(done) => (done, linerate_receive_status::Ok),
            Err(error) => {
                handle.note(&error.to_string());
                (0, linerate_receive_status::from(&error))
            }
        },
    };
    // SAFETY: not NULL, and the caller vouches for it.
    unsafe { sent.write(done) };
    status
}

/// The descriptor to poll for writing; -1 for NULL. It is the socket's.
///
/// # Safety
/// `transmitter` is NULL or of linerate_transmitter_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_transmitter_fd(
    transmitter: *const linerate_transmitter,
) -> c_int {
    // SAFETY: the caller vouches for the pointer.
    unsafe { transmitter.as_ref() }.map_or(-1, |handle| handle.inner.as_fd().as_raw_fd())
}

/// Stores what was sent.
///
/// # Safety
/// `transmitter` is of linerate_transmitter_open(), and `statistics` points to statistics.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_transmitter_statistics(
    transmitter: *const linerate_transmitter,
    statistics: *mut linerate_send_statistics,
) -> linerate_receive_status {
    // SAFETY: the caller vouches for the pointer.
    let (Some(handle), false) = (unsafe { transmitter.as_ref() }, statistics.is_null()) else {
        return linerate_receive_status::InvalidArgument;
    };
    let by = handle.inner.statistics();
    let (messages, bytes, unsegmented) = (by.messages, by.bytes, by.unsegmented);
    let (ring, refused, syscalls) = (by.ring, by.refused, by.syscalls);
    let value = linerate_send_statistics { messages, ring, bytes, unsegmented, refused, syscalls };
    // SAFETY: not NULL, and the caller vouches for it; it need not have been written to before.
    unsafe { statistics.write(value) };
    linerate_receive_status::Ok
}

/// Why the last failed call failed; an empty text if none failed. Valid until the next call with the transmitter, NULL
/// for NULL.
///
/// # Safety
/// `transmitter` is NULL or of linerate_transmitter_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_transmitter_error(
    transmitter: *const linerate_transmitter,
) -> *const c_char {
    // SAFETY: the caller vouches for the pointer.
    unsafe { transmitter.as_ref() }.map_or(ptr::null(), |handle| handle.error.as_ptr())
}

/// Closes a transmitter.
///
/// # Safety
/// `transmitter` is NULL or of linerate_transmitter_open(), and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_transmitter_close(transmitter: *mut linerate_transmitter) {
    if !transmitter.is_null() {
        // SAFETY: the caller vouches that it is a handle that was not closed.
        drop(unsafe { Box::from_raw(transmitter) });
    }
}

impl linerate_transmitter {
    pub(crate) fn of(inner: Transmitter) -> Self {
        Self { inner, error: CString::default() }
    }

    fn note(&mut self, why: &str) {
        self.error = CString::new(why).unwrap_or_default();
    }
}
