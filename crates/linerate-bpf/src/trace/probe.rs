//! [`probe`]: whether the kernel traces its functions.

use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::error::cause;
use crate::program::log_to_tracing;
use crate::{Error, Result};

include!(concat!(env!("OUT_DIR"), "/probe.rs"));

/// Attaches a tracing program (fentry) that does nothing to a function of the kernel, and detaches it at once.
///
/// # Errors
/// [`Error::System`] with what libbpf says, on a kernel that cannot trace its functions or does not allow it.
pub fn probe() -> Result<()> {
    log_to_tracing();
    let failed =
        |error: libbpf_rs::Error| Error::system("trace a function of the kernel", cause(&error));
    let mut storage = MaybeUninit::uninit();
    let open = skeleton::ProbeSkelBuilder::default().open(&mut storage).map_err(failed)?;
    let skeleton = open.load().map_err(failed)?;
    skeleton.progs.linerate_probe.attach().map(drop).map_err(failed)
}
