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
mod tests {
    use linerate_testkit::{Namespace, Veth, VethOptions, probe_or_skip, root_or_skip};

    use super::*;
    use crate::runtime::program::{Options, Programs, unavailable};

    #[test]
    fn what_we_made_goes_and_what_others_need_stays() {
        root_or_skip!();
        probe_or_skip!(unavailable());
        let space = Namespace::create("clsact").unwrap();
        let cable = Veth::create(&space, "a", &space, "b", VethOptions::default()).unwrap();
        let (a, b) = (cable.a.index(), cable.b.index());
        let programs =
            Programs::load(&Options { max_sessions: 1024, ..Options::default() }).unwrap();
        let inside = || {
            let attach = |ifindex| {
                let learn = programs.get("learn").unwrap();
                let mut filter = super::attach(learn, ifindex, TC_EGRESS).unwrap();
                filter.keep();
                filter.made
            };
            assert!(!exists(a).unwrap());
            assert!(attach(a), "made by us");
            assert!(exists(a).unwrap() && has_filters(a).unwrap() && !exists(b).unwrap());
            remove(a, true).unwrap();
            assert!(!exists(a).unwrap());
            remove(a, true).unwrap();

            // Somebody else's filter, added later.
            assert!(attach(a));
            let tc = |words: &str| {
                let words = words.split(' ');
                assert!(std::process::Command::new("tc").args(words).status().unwrap().success());
            };
            let mark = programs.get("forward_tc").unwrap();
            let mut theirs = TcHookBuilder::new(mark);
            theirs.ifindex(a.cast_signed()).handle(1).priority(7);
            theirs.hook(TC_INGRESS).attach().unwrap();
            remove(a, true).unwrap();
            assert!(exists(a).unwrap() && has_filters(a).unwrap());

            // Somebody else's clsact, empty.
            tc("qdisc add dev b clsact");
            assert!(!attach(b), "found");
            remove(b, false).unwrap();
            assert!(exists(b).unwrap() && !has_filters(b).unwrap());
        };
        space.run(inside).unwrap();
    }
}
