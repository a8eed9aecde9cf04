//! Joining.

use core::cell::{Cell, UnsafeCell};
use core::ffi::c_void;
use core::{ptr, slice};
use std::hash::{BuildHasher, RandomState};

use linerate_segment::coalesce::{Coalescer, Flow, Output};

use crate::options::{linerate_coalesce_options, linerate_segment_options};
use crate::status::linerate_status;

/// Joins the segments of many flows. For one thread at a time.
pub struct linerate_coalescer {
    /// A call is under way: its output may not make another.
    busy: Cell<bool>,
    inner: UnsafeCell<Coalescer<Vec<Flow>>>,
}

/// The output of a coalescer: each input frame comes out exactly once, alone or as a part of a super-packet.
/// All pointers are valid during the call only.
///
/// A super-packet is its header, followed by bytes of each frame in `tokens`, from `header_len` on:
/// `segment_size` bytes, of the last frame `last_size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct linerate_output {
    /// The caller's names of the frames, in order.
    pub tokens: *const u64,
    /// How many: 1 for a frame that comes out as it came, then all that follows but `reason` is 0 or
    /// NULL.
    pub token_count: usize,
    /// The finished headers, link header included.
    pub header: *const u8,
    /// Bytes of headers.
    pub header_len: usize,
    /// Length of the super-packet in bytes, with its headers.
    pub len: usize,
    /// The time that the first frame came with.
    pub since: u64,
    /// With these the frames are made again, byte for byte, where the checksums are full.
    pub split: linerate_segment_options,
    /// Payload of every frame but the last (gso_size).
    pub segment_size: u16,
    /// Payload of the last frame.
    pub last_size: u16,
    /// What a TUN device, a packet socket or a virtual machine has to know: struct virtio_net_hdr in the
    /// machine's byte order.
    pub virtio: [u8; 10],
    /// Whether `virtio` says something: a packet inside of a tunnel has no such header.
    pub has_virtio: bool,
    /// Why nothing more was joined: a linerate_flush_reason.
    pub reason: u8,
}

/// Takes what comes out of a coalescer. `context` is what was given beside it. It may not call the
/// coalescer.
pub type linerate_sink =
    Option<unsafe extern "C" fn(context: *mut c_void, output: *const linerate_output)>;

/// Creates a coalescer for this number of flows, of 2.5 KiB each; when all are in use, a new flow replaces
/// the oldest. It finds them by a hash with its own random key. This is the only allocation. Returns NULL if
/// there is no memory, or a number in the options is not in its enumeration.
///
/// # Safety
/// `options` is NULL, for the default ones, or points to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_coalescer_create(
    options: *const linerate_coalesce_options,
    flows: u16,
) -> *mut linerate_coalescer {
    // SAFETY: the caller vouches for the pointer.
    let options = match unsafe { options.as_ref() } {
        Some(options) => options.read(),
        None => Some(linerate_segment::coalesce::Options::default()),
    };
    let Some(options) = options else { return ptr::null_mut() };
    let mut memory: Vec<Flow> = Vec::new();
    if memory.try_reserve_exact(flows.into()).is_err() {
        return ptr::null_mut();
    }
    memory.resize_with(flows.into(), Flow::default);
    // The standard library draws it from the system.
    let key = RandomState::new().hash_one(0);
    let inner = UnsafeCell::new(Coalescer::with_key(memory, &options, key));
    Box::into_raw(Box::new(linerate_coalescer { busy: Cell::new(false), inner }))
}

/// Frees a coalescer, and forgets what it held: flush it first.
///
/// # Safety
/// `coalescer` is NULL or of linerate_coalescer_create(), not used any more, and not in a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_coalescer_destroy(coalescer: *mut linerate_coalescer) {
    if !coalescer.is_null() {
        // SAFETY: the caller vouches that it is of `create` and was not freed.
        drop(unsafe { Box::from_raw(coalescer) });
    }
}

/// Takes a frame, which `token` names from now on. It comes out of this call or of a later one, to `sink`;
/// until then its bytes stay as they are. `time` is when it came, in a unit that
/// linerate_coalescer_flush_before() shares.
///
/// # Safety
/// `coalescer` is of linerate_coalescer_create(), `frame` points to `len` bytes, and `sink` may be called
/// with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_coalescer_push(
    coalescer: *mut linerate_coalescer,
    frame: *const u8,
    len: usize,
    token: u64,
    time: u64,
    sink: linerate_sink,
    context: *mut c_void,
) -> linerate_status {
    if frame.is_null() || len > isize::MAX as usize {
        return linerate_status::Argument;
    }
    // SAFETY: the caller vouches for `len` bytes, which the coalescer reads in this call only.
    let frame = unsafe { slice::from_raw_parts(frame, len) };
    // SAFETY: the caller vouches for the handle and the sink.
    unsafe {
        call(coalescer, sink, context, |inner, sink| {
            inner.push(frame, token, time, &mut |output| sink(&output));
        })
    }
}

/// Hands over every flow whose first frame came at `time` or before it, the oldest first.
///
/// # Safety
/// `coalescer` is of linerate_coalescer_create(), and `sink` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_coalescer_flush_before(
    coalescer: *mut linerate_coalescer,
    time: u64,
    sink: linerate_sink,
    context: *mut c_void,
) -> linerate_status {
    // SAFETY: the caller vouches for the handle and the sink.
    unsafe {
        call(coalescer, sink, context, |inner, sink| {
            inner.flush_before(time, &mut |output| sink(&output));
        })
    }
}

/// Hands over everything, the flow that began first before the others.
///
/// # Safety
/// `coalescer` is of linerate_coalescer_create(), and `sink` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_coalescer_flush_all(
    coalescer: *mut linerate_coalescer,
    sink: linerate_sink,
    context: *mut c_void,
) -> linerate_status {
    // SAFETY: the caller vouches for the handle and the sink.
    unsafe {
        call(coalescer, sink, context, |inner, sink| {
            inner.flush_all(&mut |output| sink(&output));
        })
    }
}

/// When the frame came that waits longest, at `time`. False where none waits.
///
/// # Safety
/// `coalescer` is NULL or of linerate_coalescer_create(), and `time` points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_coalescer_oldest(
    coalescer: *const linerate_coalescer,
    time: *mut u64,
) -> bool {
    // SAFETY: the caller vouches for the pointer.
    let Some(handle) = (unsafe { coalescer.as_ref() }) else { return false };
    if time.is_null() || handle.busy.get() {
        return false;
    }
    // SAFETY: no call is under way that could hold it mutably, and one thread at a time is here.
    let Some(oldest) = (unsafe { &*handle.inner.get() }).oldest() else { return false };
    // SAFETY: not NULL, and the caller vouches that a number may be written there.
    unsafe { time.write(oldest) };
    true
}

/// Calls `work` with the coalescer, unless its own output is what calls.
///
/// # Safety
/// `coalescer` is NULL or of `create`; `sink` may be called with `context`.
unsafe fn call(
    coalescer: *mut linerate_coalescer,
    sink: linerate_sink,
    context: *mut c_void,
    work: impl FnOnce(&mut Coalescer<Vec<Flow>>, &dyn Fn(&Output<'_>)),
) -> linerate_status {
    // SAFETY: the caller vouches for the pointer. The borrow is a shared one, as a sink may come here
    // again, to be refused.
    let (Some(handle), Some(sink)) = (unsafe { coalescer.as_ref() }, sink) else {
        return linerate_status::Argument;
    };
    if handle.busy.replace(true) {
        return linerate_status::Busy;
    }
    // SAFETY: `busy` was not set, so this is the only borrow until it is set back.
    let inner = unsafe { &mut *handle.inner.get() };
    work(inner, &|output| {
        with(output, |output| {
            // SAFETY: the caller vouches for the sink and its context; the output lives through the call.
            unsafe { sink(context, output) };
        });
    });
    handle.busy.set(false);
    linerate_status::Ok
}

/// An output in C's words, for the length of the call of `take`.
fn with(output: &Output<'_>, take: impl FnOnce(&linerate_output)) {
    match output {
        Output::Frame { token, reason } => take(&linerate_output {
            tokens: token,
            token_count: 1,
            header: ptr::null(),
            header_len: 0,
            len: 0,
            since: 0,
            split: linerate_segment_options::default(),
            segment_size: 0,
            last_size: 0,
            virtio: [0; 10],
            has_virtio: false,
            reason: *reason as u8,
        }),
        Output::Super(packet) => {
            let (tokens, header) = (packet.tokens(), packet.header());
            let whole = (tokens.len() - 1) * usize::from(packet.segment_size());
            let last = packet.len() - header.len() - whole;
            let mut virtio = [0; 10];
            // Fails for none: there is room, and a header that was made has words for all.
            let has_virtio = packet.virtio().is_some_and(|header| header.emit(&mut virtio).is_ok());
            take(&linerate_output {
                tokens: tokens.as_ptr(),
                token_count: tokens.len(),
                header: header.as_ptr(),
                header_len: header.len(),
                len: packet.len(),
                since: packet.first_timestamp(),
                split: packet.split().into(),
                segment_size: packet.segment_size(),
                last_size: last as u16,
                virtio,
                has_virtio,
                reason: packet.reason() as u8,
            });
        }
    }
}
