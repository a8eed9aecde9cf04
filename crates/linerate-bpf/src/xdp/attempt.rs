//! [`try_attach`]: whether an interface takes an XDP program, by attaching one for a moment.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use linerate_net::Interface;

use super::mode::AttachMode;
use crate::filter::Instruction;
use crate::link::{Hook, Link};
use crate::{Error, Result};

/// Attaches a program that passes every frame to `interface`, and detaches it. Some drivers reset their queues for
/// that, which loses frames for a moment.
///
/// # Errors
/// [`Error::ForeignProgram`] where there is a program; [`Error::Privilege`]; [`Error::System`] with the answer of the
/// driver.
pub fn try_attach(interface: &str, mode: AttachMode) -> Result<()> {
    const PASS: i32 = libbpf_sys::XDP_PASS as i32;
    let interface = Interface::open(interface)?;
    let code = [Instruction::new(0xb7, 0, 0, 0, PASS), Instruction::new(0x95, 0, 0, 0, 0)];
    // SAFETY: two instructions in the kernel's layout, C strings, no options.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"linerate_try".as_ptr(),
            c"GPL".as_ptr(),
            code.as_ptr().cast(),
            code.len() as libbpf_sys::size_t,
            std::ptr::null_mut(),
        )
    };
    if fd < 0 {
        return Err(Error::bpf("load an XDP program that passes every frame", -fd));
    }
    // SAFETY: a new descriptor, which nobody else owns.
    let program = unsafe { OwnedFd::from_raw_fd(fd) };
    let hook = Hook::Xdp(mode);
    Link::attach(program.as_fd(), interface.name(), interface.index(), hook).map(drop)
}
