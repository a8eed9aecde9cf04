//! Splitting.

use core::ffi::c_char;
use core::ops::Range;
use core::{ptr, slice};

use linerate_segment::Error;
use linerate_segment::segment::Segments;

use crate::options::linerate_segment_options;
use crate::status::linerate_status;
use crate::text::CText;

/// The segments of one super-packet after another. For one thread at a time.
pub struct linerate_segments {
    /// Of the packet of the last linerate_segments_begin(), whose bytes the caller keeps.
    segments: Option<Segments<'static>>,
    /// Where those bytes are.
    packet: Range<usize>,
    error: Option<Error>,
    text: CText,
}

/// A segment in two pieces; on the wire they follow each other.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct linerate_segment_view {
    /// All headers, link header included, in the handle: valid until its next call.
    pub header: *const u8,
    /// Bytes of headers.
    pub header_len: usize,
    /// The payload, in the super-packet.
    pub payload: *const u8,
    /// Bytes of payload.
    pub payload_len: usize,
}

impl linerate_segments {
    fn fail(&mut self, error: Error) -> linerate_status {
        let status = linerate_status::from(&error);
        self.error = Some(error);
        status
    }
}

/// Makes a handle, with which super-packets are split one after another. The only allocation: nothing is
/// allocated for a packet or a segment.
#[unsafe(no_mangle)]
pub extern "C" fn linerate_segments_create() -> *mut linerate_segments {
    Box::into_raw(Box::new(linerate_segments {
        segments: None,
        packet: 0..0,
        error: None,
        text: CText::EMPTY,
    }))
}

/// Frees a handle.
///
/// # Safety
/// `segments` is NULL or of linerate_segments_create(), and not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_segments_destroy(segments: *mut linerate_segments) {
    if !segments.is_null() {
        // SAFETY: the caller vouches that it is of `create` and was not freed.
        drop(unsafe { Box::from_raw(segments) });
    }
}

/// Takes a super-packet of `len` bytes and prepares its segments; what was left of another is forgotten.
/// Its bytes stay as they are until the last segment was taken.
///
/// # Safety
/// `segments` is of linerate_segments_create(), `packet` points to `len` bytes that nobody writes to while
/// segments are taken, and `options` to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_segments_begin(
    segments: *mut linerate_segments,
    packet: *const u8,
    len: usize,
    options: *const linerate_segment_options,
) -> linerate_status {
    // SAFETY: the caller vouches for both pointers, which are of different types and do not overlap.
    let (Some(handle), Some(options)) = (unsafe { (segments.as_mut(), options.as_ref()) }) else {
        return linerate_status::Argument;
    };
    handle.segments = None;
    handle.error = None;
    let Some(options) = options.read() else { return linerate_status::Argument };
    if packet.is_null() || len > isize::MAX as usize {
        return linerate_status::Argument;
    }
    // SAFETY: the caller vouches for `len` bytes that stay until the last segment was taken; the handle
    // looks at them in no other call.
    let packet = unsafe { slice::from_raw_parts(packet, len) };
    match Segments::new(packet, &options) {
        Ok(prepared) => {
            handle.segments = Some(prepared);
            handle.packet = span(packet.as_ptr(), len);
            linerate_status::Ok
        }
        Err(error) => handle.fail(error),
    }
}

/// How many segments are still to come; 0 where none was begun.
///
/// # Safety
/// `segments` is NULL or of linerate_segments_create().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_segments_left(segments: *const linerate_segments) -> usize {
    // SAFETY: the caller vouches for the pointer.
    let handle = unsafe { segments.as_ref() };
    handle.and_then(|handle| handle.segments.as_ref()).map_or(0, ExactSizeIterator::len)
}

/// Length in bytes of the longest segment, link header included; 0 where none was begun.
///
/// # Safety
/// `segments` is NULL or of linerate_segments_create().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_segments_max_len(segments: *const linerate_segments) -> usize {
    // SAFETY: the caller vouches for the pointer.
    let handle = unsafe { segments.as_ref() };
    handle.and_then(|handle| handle.segments.as_ref()).map_or(0, Segments::max_len)
}

/// What hardware has to finish with LINERATE_CHECKSUMS_PARTIAL: the checksum over the bytes from `start`
/// to the end of each segment goes to `start + offset`. False where nothing is left to finish.
///
/// # Safety
/// `segments` is of linerate_segments_create(), `start` and `offset` point to a number each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_segments_partial(
    segments: *const linerate_segments,
    start: *mut u16,
    offset: *mut u16,
) -> bool {
    // SAFETY: the caller vouches for the pointer.
    let handle = unsafe { segments.as_ref() };
    let partial =
        handle.and_then(|handle| handle.segments.as_ref()).and_then(Segments::partial_checksum);
    let Some(partial) = partial else { return false };
    if start.is_null() || offset.is_null() {
        return false;
    }
    // SAFETY: neither is NULL, and the caller vouches that a number may be written there.
    unsafe {
        start.write(partial.start);
        offset.write(partial.offset);
    }
    true
}

/// Writes the next segment to `out`, a buffer of `size` bytes, and its length to `len`; bytes of the buffer
/// after it may be written as well. LINERATE_STATUS_END after the last, LINERATE_STATUS_BUFFER if the buffer
/// is too short (linerate_segments_max_len() bytes are enough for all), LINERATE_STATUS_ARGUMENT if it
/// overlaps the packet.
///
/// # Safety
/// `segments` is of linerate_segments_create(), the bytes of its packet are as they were, `out` points to
/// `size` bytes, and `len` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_segments_write_next(
    segments: *mut linerate_segments,
    out: *mut u8,
    size: usize,
    len: *mut usize,
) -> linerate_status {
    // SAFETY: the caller vouches for the pointer.
    let Some(handle) = (unsafe { segments.as_mut() }) else { return linerate_status::Argument };
    if out.is_null() || len.is_null() || size > isize::MAX as usize {
        return linerate_status::Argument;
    }
    handle.error = None;
    let Some(prepared) = &mut handle.segments else { return linerate_status::End };
    let wanted = span(out, size);
    if wanted.start < handle.packet.end && handle.packet.start < wanted.end {
        return linerate_status::Argument;
    }
    // SAFETY: the caller vouches for `size` bytes, and none of them is of the packet. A buffer that was never
    // written to has some bytes; none of them is read.
    let out = unsafe { slice::from_raw_parts_mut(out, size) };
    match prepared.write_next(out) {
        Ok(Some(written)) => {
            // SAFETY: not NULL, and the caller vouches that a number may be written there.
            unsafe { len.write(written) };
            linerate_status::Ok
        }
        Ok(None) => {
            handle.segments = None;
            linerate_status::End
        }
        Err(error) => handle.fail(error),
    }
}

/// Where `len` bytes from `start` on are.
fn span(start: *const u8, len: usize) -> Range<usize> {
    start.addr()..start.addr().saturating_add(len)
}

/// Gives the next segment as headers and payload, for a gathering write: the payload is not copied.
/// LINERATE_STATUS_END after the last.
///
/// # Safety
/// `segments` is of linerate_segments_create(), the bytes of its packet are as they were, and `view`
/// points to a view.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_segments_next_view(
    segments: *mut linerate_segments,
    view: *mut linerate_segment_view,
) -> linerate_status {
    // SAFETY: the caller vouches for the pointer.
    let Some(handle) = (unsafe { segments.as_mut() }) else { return linerate_status::Argument };
    if view.is_null() {
        return linerate_status::Argument;
    }
    handle.error = None;
    let next = handle.segments.as_mut().and_then(Segments::next_view);
    let Some(next) = next else {
        handle.segments = None;
        return linerate_status::End;
    };
    let next = linerate_segment_view {
        header: next.header.as_ptr(),
        header_len: next.header.len(),
        payload: next.payload.as_ptr(),
        payload_len: next.payload.len(),
    };
    // SAFETY: not NULL, and the caller vouches that a view may be written there.
    unsafe { view.write(next) };
    linerate_status::Ok
}

/// Why the last call failed, in words, and what can be done about it; an empty text where none did. Valid
/// until the next call with the handle, NULL where that is NULL.
///
/// # Safety
/// `segments` is NULL or of linerate_segments_create().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_segments_error(
    segments: *mut linerate_segments,
) -> *const c_char {
    // SAFETY: the caller vouches for the pointer.
    match unsafe { segments.as_mut() } {
        Some(linerate_segments { error: Some(error), text, .. }) => text.set(error),
        Some(handle) => handle.text.set(""),
        None => ptr::null(),
    }
}
