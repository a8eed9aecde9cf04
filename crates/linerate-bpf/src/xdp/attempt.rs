//! [`try_attach`]: whether an interface takes an XDP program, by attaching one for a moment.

use std::os::fd::AsFd;

use linerate_net::Interface;

use super::mode::AttachMode;
use crate::Result;
use crate::filter::{Instruction, load};
use crate::link::{Hook, Link};

/// Attaches a program that passes every frame to `interface`, and detaches it. Some drivers reset their queues for
/// that, which loses frames for a moment.
///
/// # Errors
/// [`Error::ForeignProgram`](crate::Error::ForeignProgram) where there is a program; [`Error::Privilege`](crate::Error::Privilege); [`Error::System`](crate::Error::System) with the answer of the
/// driver.
pub fn try_attach(interface: &str, mode: AttachMode) -> Result<()> {
    const PASS: i32 = libbpf_sys::XDP_PASS as i32;
    let interface = Interface::open(interface)?;
    let code = [Instruction::new(0xb7, 0, 0, 0, PASS), Instruction::new(0x95, 0, 0, 0, 0)];
    let program = load(
        libbpf_sys::BPF_PROG_TYPE_XDP,
        c"linerate_try",
        "load an XDP program that passes every frame",
        &code,
    )?;
    let hook = Hook::Xdp(mode);
    Link::attach(program.as_fd(), interface.name(), interface.index(), hook).map(drop)
}
