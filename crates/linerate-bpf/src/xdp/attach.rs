//! [`XdpLink`]: an XDP program attached by a BPF link, which the kernel detaches when the last descriptor
//! closes: at drop, at exit, after `kill -9`.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use super::mode::AttachMode;
use super::query;
use crate::link::{Hook, Link};
use crate::{Error, Result};

/// A process that was just forked has the descriptors of its parent until it executes its program. So long the link of
/// a program stays, also if its owner has closed it.
pub(super) const MAX_HELD: Duration = Duration::from_millis(100);

/// An attached program; detached when this is dropped, unless another process holds the link too.
#[derive(Debug)]
pub(crate) struct XdpLink {
    link: Link,
    pub(crate) mode: AttachMode,
    /// Why not native, where it is generic.
    pub(crate) generic_reason: Option<String>,
}

impl XdpLink {
    /// Attaches `program` to the interface in the driver, or in the stack if that is refused.
    ///
    /// # Errors
    /// [`Error::ForeignProgram`] when there is a program already.
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        interface: &str,
        ifindex: u32,
        only: Option<AttachMode>,
    ) -> Result<Self> {
        let end = Instant::now() + MAX_HELD;
        let attach = |mode| loop {
            match Link::attach(program, interface, ifindex, Hook::Xdp(mode)) {
                Err(Error::ForeignProgram { tee: false, .. }) if Instant::now() < end => {
                    thread::sleep(Duration::from_millis(1));
                }
                // It was closed before it could be named.
                Err(Error::System { ref source, .. })
                    if source.raw_os_error() == Some(libc::EBUSY) && Instant::now() < end =>
                {
                    thread::sleep(Duration::from_millis(1));
                }
                attached => return attached,
            }
        };
        let first = only.unwrap_or(AttachMode::Native);
        match attach(first) {
            Ok(link) => Ok(Self { link, mode: first, generic_reason: None }),
            Err(Error::System { source, .. }) if only.is_none() && is_unsupported(&source) => {
                let mode = AttachMode::Generic;
                let generic_reason = Some(format!("the driver refuses native XDP: {source}"));
                Ok(Self { link: attach(mode)?, mode, generic_reason })
            }
            Err(error) => Err(error),
        }
    }

    /// Shares the link that holds program `id` on an interface: the program then stays until the last
    /// of all processes that share it has gone. `None` when the link has gone in the meantime.
    pub(crate) fn open_shared_link(id: u32, mode: AttachMode) -> Result<Option<Self>> {
        let found = query::link_of_program(id)?;
        Ok(found.map(|(fd, _)| Self { link: fd.into(), mode, generic_reason: None }))
    }

    /// Replaces the attached program. No frame meets both or neither.
    pub(crate) fn replace(&self, program: BorrowedFd<'_>) -> Result<()> {
        self.link.replace(program)
    }
}

/// Whether it failed because of the driver, and not of the caller.
fn is_unsupported(error: &std::io::Error) -> bool {
    !matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST | libc::ENODEV | libc::EBADF))
}

#[cfg(test)]
mod tests;
