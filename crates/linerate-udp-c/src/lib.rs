//! The C library of [`linerate_udp`]: `liblinerate-udp.so` and `linerate/udp.h`.
//!
//! C handles around the Rust library's receiver, transmitter and socket. This crate contains no logic. cbindgen generates
//! the header, comments included, from these files; so the comments address C programmers.
//!
//! Rules for all functions:
//!
//! - A function that can fail returns a `linerate_receive_status`, 0 being success, and says why in words
//!   through `linerate_receiver_error` or `linerate_transmitter_error`.
//! - Values from C are checked: unknown flags and numbers, texts that are not UTF-8.
//! - NULL for a required pointer is `LINERATE_RECEIVE_STATUS_INVALID_ARGUMENT`, and closing NULL does
//!   nothing.
//! - No panic crosses: an `extern "C"` function ends the process instead.
//! - Nothing is allocated after a receiver or transmitter was opened, but for the text of an error.
#![allow(non_camel_case_types, reason = "they are the names of the C header")]

mod message;
mod options;
mod receiver;
mod socket;
mod status;
mod transmitter;

pub use message::*;
pub use options::*;
pub use receiver::*;
pub use socket::*;
pub use status::*;
pub use transmitter::*;

use core::ffi::c_char;

/// The version of the library that the program runs with, as "1.2.3". The string is never freed.
#[unsafe(no_mangle)]
pub extern "C" fn linerate_udp_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
