//! The C library of [`linerate_segment`]: `liblinerate-segment.so` and `linerate/segment.h`.
//!
//! C handles around the Rust library. This crate contains no logic. cbindgen generates the header, comments
//! included, from these files; so the comments address C programmers.
//!
//! Rules for all functions:
//!
//! - A function that can fail returns a `linerate_status`, 0 being success, and says why in words through
//!   the `_error` function of the handle.
//! - Enumerations are read from C as plain numbers and checked, because C may put any number there.
//! - NULL for a required pointer is `LINERATE_STATUS_ARGUMENT`, and freeing NULL does nothing.
//! - No panic crosses: an `extern "C"` function ends the process instead, and the Rust library does
//!   not panic on any input.
//! - Nothing is allocated after a handle was created.
#![allow(non_camel_case_types, reason = "they are the names of the C header")]

mod coalescer;
mod options;
mod policy;
mod segments;
mod status;
mod text;

pub use coalescer::*;
pub use options::*;
pub use policy::*;
pub use segments::*;
pub use status::*;

use core::ffi::c_char;

/// The version of the library that the program runs with, as "1.2.3". The string is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn linerate_segment_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
