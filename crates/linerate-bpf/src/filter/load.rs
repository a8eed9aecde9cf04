//! How programs without maps are loaded.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::ptr;

use super::Instruction;
use crate::Result;
use crate::sys::owned;

/// Loads a program without maps; `action` names it in an error.
pub(crate) fn load(
    kind: libbpf_sys::bpf_prog_type,
    name: &CStr,
    action: &str,
    instructions: &[Instruction],
) -> Result<OwnedFd> {
    // SAFETY: C strings, instructions in the kernel's layout with their number, no options; the descriptor is new.
    unsafe {
        let (code, len) = (instructions.as_ptr().cast(), instructions.len() as libbpf_sys::size_t);
        let (name, license) = (name.as_ptr(), c"Dual MIT/GPL".as_ptr());
        owned(libbpf_sys::bpf_prog_load(kind, name, license, code, len, ptr::null_mut()), action)
    }
}
