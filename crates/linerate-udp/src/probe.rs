//! [`probe`]: which backends this machine has.

use crate::backend::Backend;
use crate::{socket, uring, xdp};

/// Whether `backend` works on this machine, by a probe and not by the kernel's version. For `xdp` the answer
/// is that of `interface`, which it needs. Nothing is attached, and no traffic is touched.
///
/// # Errors
/// The reason why the backend is unavailable.
pub fn probe(backend: Backend, interface: Option<&str>) -> Result<(), String> {
    match backend {
        Backend::Recvmmsg => Ok(()),
        Backend::Gro => socket::probe_gro(),
        Backend::Uring => uring::probe(),
        Backend::Xdp => xdp::probe(interface.ok_or(xdp::NO_INTERFACE)?),
    }
}
