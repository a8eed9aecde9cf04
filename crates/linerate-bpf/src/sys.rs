//! What the calls of libbpf have in common: options that carry their size, and answers that are a descriptor or a
//! negative error number.

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

use crate::{Error, Result};

/// The options `$kind` of libbpf with these fields; the others are zero.
macro_rules! options {
    ($kind:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        libbpf_sys::$kind {
            sz: size_of::<libbpf_sys::$kind>() as libbpf_sys::size_t,
            $($field $(: $value)?,)*
            ..Default::default()
        }
    };
}

pub(crate) use options;

/// The answer of a call that did `action`.
pub(crate) fn check(answer: i32, action: impl Into<String>) -> Result<()> {
    if answer < 0 { Err(Error::bpf(action, -answer)) } else { Ok(()) }
}

/// The descriptor that a call returned which did `action`.
///
/// # Safety
/// The descriptor is new, and nobody else owns it.
pub(crate) unsafe fn owned(answer: i32, action: impl Into<String>) -> Result<OwnedFd> {
    check(answer, action)?;
    // SAFETY: as the caller says.
    Ok(unsafe { OwnedFd::from_raw_fd(answer) })
}

/// Another descriptor of the same object.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(|error| Error::system("duplicate a BPF descriptor", error))
}
