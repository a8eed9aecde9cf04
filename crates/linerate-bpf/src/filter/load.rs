//! [`load_socket_filter`]: an eBPF program for sockets, and how programs without maps are loaded.

use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd};

use super::Instruction;
use crate::{Error, Result};

/// Loads a program of the type `BPF_PROG_TYPE_SOCKET_FILTER`.
///
/// # Errors
/// [`Error::Privilege`]; [`Error::System`], for instance where the verifier rejects it.
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
    // SAFETY: C strings, instructions in the kernel's layout with their number, no options.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            name.as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as libbpf_sys::size_t,
            std::ptr::null_mut(),
        )
    };
    if fd < 0 {
        return Err(Error::bpf(action, -fd));
    }
    // SAFETY: a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
