//! [`load_socket_filter`]: an eBPF program for sockets, and how programs without maps are loaded.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::ptr;

use super::Instruction;
use crate::Result;
use crate::sys::owned;

/// Loads a program of the type `BPF_PROG_TYPE_SOCKET_FILTER`.
///
/// # Errors
/// [`Error::Privilege`](crate::Error::Privilege); [`Error::System`](crate::Error::System), for instance where the
/// verifier rejects it.
pub fn load_socket_filter(instructions: &[Instruction]) -> Result<OwnedFd> {
    let kind = libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER;
    load(kind, c"linerate_filter", "load a socket filter", instructions)
}

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
