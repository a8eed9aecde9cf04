//! The clsact queueing discipline, which holds programs if the kernel has no tcx: whether it exists and which
//! of our filters it holds. It supports neither links nor pins, so we remove filters explicitly.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::{TC_EGRESS, TC_INGRESS, TcAttachPoint, TcHook, TcHookBuilder};
use linerate_net::Connection;

use crate::{Error, Result};

/// Number of the filters in a clsact queueing discipline, by which a later process finds them.
pub(crate) const HANDLE: u32 = 0x4c4e;
pub(crate) const PRIORITY: u32 = 0x4c4e;

/// A filter in a clsact queueing discipline; removed on drop.
#[derive(Debug)]
pub struct Clsact {
    ifindex: u32,
    point: TcAttachPoint,
    kept: bool,
    /// The interface had no clsact before.
    pub(crate) made: bool,
}

impl Clsact {
    /// Leaves the filter attached: it has no pin, and stays until somebody removes it.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Clsact {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = detach_filters(self.ifindex, self.point)
        {
            tracing::warn!(%error, "cannot remove a filter from a clsact queueing discipline");
        }
    }
}

/// Attaches a program, in place of a former one of ours.
pub(crate) fn attach(
    program: BorrowedFd<'_>,
    ifindex: u32,
    point: TcAttachPoint,
) -> libbpf_rs::Result<Clsact> {
    let made = !exists(ifindex)?;
    let mut builder = TcHookBuilder::new(program.as_fd());
    builder.ifindex(ifindex.cast_signed()).replace(true).handle(HANDLE).priority(PRIORITY);
    let mut hook = builder.hook(point);
    hook.create()?;
    hook.attach()?;
    Ok(Clsact { ifindex, point, kept: false, made })
}

/// Whether interface `ifindex` of this network namespace has a clsact.
fn exists(ifindex: u32) -> io::Result<bool> {
    Ok(Connection::open()?.has_clsact(ifindex)?)
}

/// Whether it has any filter.
fn has_filters(ifindex: u32) -> io::Result<bool> {
    Ok(Connection::open()?.clsact_filters(ifindex)? > 0)
}

/// Removes our filters from the clsact of interface `ifindex`, and the clsact itself if it was `made` by us
/// and has no other filter. Succeeds if the interface or the filters no longer exist.
pub(crate) fn remove(ifindex: u32, made: bool) -> Result<()> {
    let failed = |error| {
        Error::system(format!("remove filters from the clsact of interface {ifindex}"), error)
    };
    if !exists(ifindex).map_err(failed)? {
        return Ok(());
    }
    for point in [TC_INGRESS, TC_EGRESS] {
        if let Err(error) = detach_filters(ifindex, point) {
            tracing::debug!(%error, ifindex, "no filter of ours");
        }
    }
    if made && !has_filters(ifindex).map_err(failed)? {
        on(ifindex, TC_INGRESS | TC_EGRESS, |hook| hook.destroy()).map_err(|error| {
            Error::bpf(format!("remove the clsact of interface {ifindex}"), &error)
        })?;
    }
    Ok(())
}

/// Removes our filter from one direction of the clsact of interface `ifindex`.
fn detach_filters(ifindex: u32, point: TcAttachPoint) -> libbpf_rs::Result<()> {
    on(ifindex, point, |hook| hook.detach())
}

fn on(
    ifindex: u32,
    point: TcAttachPoint,
    act: impl FnOnce(&mut TcHook) -> libbpf_rs::Result<()>,
) -> libbpf_rs::Result<()> {
    // The builder requires a program's descriptor, which the removal does not use.
    let none = std::fs::File::open("/dev/null")?;
    let mut builder = TcHookBuilder::new(none.as_fd());
    builder.ifindex(ifindex.cast_signed()).handle(HANDLE).priority(PRIORITY);
    act(&mut builder.hook(point))
}

#[cfg(test)]
mod tests;
