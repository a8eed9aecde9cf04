//! The C library of [`linerate_udp`]: `liblinerate-udp.so` and `linerate/udp.h`.
//!
//! A handle of C's kind over a receiver of the Rust library, which does the work: nothing is decided here.
//! The names are those of the header, which cbindgen makes of these files, text included; so the text
//! speaks to C programmers.
//!
//! What is the same everywhere:
//!
//! - A function that can fail returns a `linerate_receive_status`, 0 being success, and says why in words
//!   through `linerate_receiver_error`.
//! - What comes from C is checked: flags and numbers that nobody knows, texts that are no UTF-8.
//! - NULL where something is needed is `LINERATE_RECEIVE_STATUS_INVALID_ARGUMENT`, and closing NULL does nothing.
//! - No panic crosses: an `extern "C"` function ends the process instead.
//! - Nothing is allocated after a receiver was opened, but for the text of an error.
#![allow(non_camel_case_types, reason = "they are the names of the C header")]

mod message;
mod options;
mod receiver;
mod status;

pub use message::*;
pub use options::*;
pub use receiver::*;
pub use status::*;

use core::ffi::c_char;

/// The version of the library that the program runs with, as "1.2.3". The string is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn linerate_udp_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
