//! The text that `pcap_geterr` returns.

use std::ffi::c_int;

use crate::abi::{ERRBUF_SIZE, ERROR, Pcap};
use crate::forward::real;

/// Puts `text` where `pcap_geterr` finds it.
///
/// # Safety
/// `pcap` must be a handle that was not closed.
pub(crate) unsafe fn fail(pcap: *mut Pcap, text: &str) -> c_int {
    // SAFETY: the caller's. What comes back is the handle's buffer of one byte more than this size.
    unsafe {
        let buffer = real::pcap_geterr(pcap);
        let len = text.len().min(ERRBUF_SIZE - 1);
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, len);
        *buffer.add(len) = 0;
    }
    ERROR
}
