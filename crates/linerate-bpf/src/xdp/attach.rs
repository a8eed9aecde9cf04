//! [`XdpLink`]: an XDP program attached by a BPF link, which the kernel detaches when the last descriptor
//! closes: at drop, at exit, after `kill -9`.

use std::os::fd::BorrowedFd;

use super::mode::AttachMode;
use super::query;
use crate::link::{Hook, Link};
use crate::{Error, Result};

/// An attached program; detached when this is dropped, unless another process holds the link too.
#[derive(Debug)]
pub(crate) struct XdpLink {
    link: Link,
    pub(crate) mode: AttachMode,
    /// Why not native, where it is generic.
    pub(crate) why_generic: Option<String>,
}

impl XdpLink {
    /// Attaches `program` to the interface in the driver, or where that is refused in the stack.
    ///
    /// # Errors
    /// [`Error::ForeignProgram`] when there is a program already.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        interface: &str,
        ifindex: u32,
        only: Option<AttachMode>,
    ) -> Result<Self> {
        let attach = |mode| Link::attach(program, interface, ifindex, Hook::Xdp(mode));
        let first = only.unwrap_or(AttachMode::Native);
        match attach(first) {
            Ok(link) => Ok(Self { link, mode: first, why_generic: None }),
            Err(Error::System { source, .. }) if only.is_none() && is_unsupported(&source) => {
                let mode = AttachMode::Generic;
                let why_generic = Some(format!("the driver refuses native XDP: {source}"));
                Ok(Self { link: attach(mode)?, mode, why_generic })
            }
            Err(error) => Err(error),
        }
    }

    /// Shares the link that holds program `id` on an interface: the program then stays until the last
    /// of all processes that share it has gone. `None` when the link has gone in the meantime.
    pub(crate) fn join(id: u32, mode: AttachMode) -> Result<Option<Self>> {
        let found = query::link_of(id)?;
        Ok(found.map(|(fd, _)| Self { link: fd.into(), mode, why_generic: None }))
    }

    /// Replaces the attached program. No frame meets both or neither.
    pub(crate) fn replace(&self, program: BorrowedFd<'_>) -> Result<()> {
        self.link.replace(program)
    }
}

/// Whether the driver, and not the caller, is why it failed.
fn is_unsupported(error: &std::io::Error) -> bool {
    !matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST | libc::ENODEV | libc::EBADF))
}
