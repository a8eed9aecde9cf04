//! A mount namespace of this program and those that it starts: what is mounted there goes with them.

use std::path::Path;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};

use crate::programs;

const NONE: Option<&str> = None;

/// Nothing that the calling thread, and those that it starts from now on, mount below `/sys` is seen by others.
///
/// # Errors
/// Those of unshare(2) and mount(2).
pub(crate) fn become_private() -> Result<()> {
    // Later the kernel tells where this program is in the former namespace.
    programs::current_exe()?;
    let private =
        |at| nix::mount::mount(NONE, at, NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE);
    unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| match private("/") {
            // After chroot(2), / may be no mount point.
            Err(Errno::EINVAL) => private("/sys"),
            done => done,
        })
        .context("cannot make a mount namespace")
}

/// Mounts a file system.
///
/// # Errors
/// Those of mount(2).
pub(crate) fn mount(kind: &str, at: &Path, options: &str) -> Result<()> {
    nix::mount::mount(Some(kind), at, Some(kind), MsFlags::empty(), Some(options))
        .with_context(|| format!("cannot mount {kind} at {}", at.display()))
}
