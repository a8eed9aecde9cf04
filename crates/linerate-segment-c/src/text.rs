//! Text for C.

use core::ffi::c_char;
use core::fmt::{self, Write};

/// Bytes of the text of an error, with the NUL at its end; longer ones are cut.
const ROOM: usize = 256;

/// A NUL-terminated text in a handle.
pub(crate) struct CText {
    bytes: [u8; ROOM],
    len: usize,
}

impl CText {
    pub(crate) const EMPTY: Self = Self { bytes: [0; ROOM], len: 0 };

    /// Writes `value` and returns the text, which is the caller's to read until the next call.
    pub(crate) fn set(&mut self, value: impl fmt::Display) -> *const c_char {
        self.len = 0;
        // Fails only where the rest is cut.
        let _ = write!(self, "{value}");
        self.bytes[self.len] = 0;
        self.bytes.as_ptr().cast()
    }
}

impl Write for CText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            let len = c.len_utf8();
            if self.len + len >= ROOM {
                return Err(fmt::Error);
            }
            c.encode_utf8(&mut self.bytes[self.len..self.len + len]);
            self.len += len;
        }
        Ok(())
    }
}

/// Writes `value` to `size` bytes at `out`, NUL-terminated and cut where it must be.
///
/// # Safety
/// `out` is valid for writes of `size` bytes, or NULL.
pub(crate) unsafe fn put(value: impl fmt::Display, out: *mut c_char, size: usize) {
    if out.is_null() || size == 0 {
        return;
    }
    let mut text = CText::EMPTY;
    text.set(value);
    let len = text.len.min(size - 1);
    // SAFETY: `len + 1` is at most `size`, for which the caller vouches; the text is our own.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(text.bytes.as_ptr(), len);
        out.add(len).write(0);
    }
}
