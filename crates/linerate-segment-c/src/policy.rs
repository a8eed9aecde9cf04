//! The switches of an interface, the same type as in Rust.

use core::ffi::{CStr, c_char};

use linerate_segment::Policy;
use linerate_wire::ip::Protocol;

use crate::options::linerate_segment_options;
use crate::status::linerate_status;
use crate::text;

/// Everything is split, up to the 65,536 bytes that a sender makes by default.
#[unsafe(no_mangle)]
pub extern "C" fn linerate_policy_default() -> Policy {
    Policy::DEFAULT
}

/// Reads a policy from text, as a command line or a configuration file has it: a list of what differs
/// from the default, "tcp=on,udp=off,max_burst=32768". Where it cannot be read, `policy` stays as it is
/// and `error`, of `error_size` bytes, says why; it may be NULL.
///
/// # Safety
/// `text` is a NUL-terminated string, `policy` points to a policy, `error` is NULL or points to
/// `error_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_policy_parse(
    text: *const c_char,
    policy: *mut Policy,
    error: *mut c_char,
    error_size: usize,
) -> linerate_status {
    if text.is_null() || policy.is_null() {
        return linerate_status::Argument;
    }
    // SAFETY: not NULL; the caller vouches for the NUL at the end.
    let text = unsafe { CStr::from_ptr(text) };
    let parsed = match text.to_str().map(str::parse::<Policy>) {
        Ok(Ok(parsed)) => parsed,
        Ok(Err(why)) => {
            // SAFETY: as the caller vouches.
            unsafe { text::put(why, error, error_size) };
            return linerate_status::Argument;
        }
        Err(why) => {
            // SAFETY: as the caller vouches.
            unsafe { text::put(why, error, error_size) };
            return linerate_status::Argument;
        }
    };
    // SAFETY: not NULL; the caller vouches that a policy may be written there.
    unsafe { policy.write(parsed) };
    linerate_status::Ok
}

/// Writes the policy as text that linerate_policy_parse() reads, NUL-terminated, to `size` bytes at
/// `out`; 128 are enough.
///
/// # Safety
/// `policy` points to a policy and `out` to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_policy_text(
    policy: *const Policy,
    out: *mut c_char,
    size: usize,
) -> linerate_status {
    if policy.is_null() || out.is_null() {
        return linerate_status::Argument;
    }
    // SAFETY: neither is NULL, and the caller vouches for what they point to.
    unsafe { text::put(*policy, out, size) };
    linerate_status::Ok
}

/// Whether packets of this IP protocol are split (6 TCP, 17 UDP); those that are neither follow
/// `enabled`. False where `policy` is NULL.
///
/// # Safety
/// `policy` is NULL or points to a policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_policy_allows(policy: *const Policy, protocol: u8) -> bool {
    // SAFETY: the caller vouches for the pointer.
    unsafe { policy.as_ref() }.is_some_and(|policy| policy.allows(Protocol(protocol)))
}

/// Puts the limits of the policy into `options`.
///
/// # Safety
/// `policy` points to a policy and `options` to options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linerate_policy_limit(
    policy: *const Policy,
    options: *mut linerate_segment_options,
) -> linerate_status {
    // SAFETY: the caller vouches for both pointers, which are of different types and do not overlap.
    let (Some(policy), Some(options)) = (unsafe { (policy.as_ref(), options.as_mut()) }) else {
        return linerate_status::Argument;
    };
    options.max_burst = policy.max_burst;
    options.max_segments = policy.max_segments;
    linerate_status::Ok
}
