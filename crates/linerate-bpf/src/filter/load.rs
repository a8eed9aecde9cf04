//! [`load_socket_filter`]: an eBPF program for sockets.

use std::os::fd::{FromRawFd, OwnedFd};

use super::Instruction;
use crate::{Error, Result};

/// Loads a program of the type `BPF_PROG_TYPE_SOCKET_FILTER`.
///
/// # Errors
/// [`Error::Privilege`]; [`Error::System`], for instance where the verifier rejects it.
pub fn load_socket_filter(instructions: &[Instruction]) -> Result<OwnedFd> {
    // SAFETY: C strings, instructions in the kernel's layout with their number, no options.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER,
            c"linerate_filter".as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as libbpf_sys::size_t,
            std::ptr::null_mut(),
        )
    };
    if fd < 0 {
        return Err(Error::bpf("load a socket filter", -fd));
    }
    // SAFETY: a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
