//! Handles that share the packets of an interface: those of this process in a [`FanoutGroup`] (`linerate run
//! --threads`), those of any process in a cluster (`--cluster`).

use std::sync::{Arc, Mutex, PoisonError, Weak};

use linerate_capture::source::{OpenInterface, Source, SourceOptions};
use linerate_ring::packet::{Fanout, Mode};

/// A fanout group with members. Each member holds this and drops it before it leaves: the kernel reuses the
/// number of a group without members.
#[derive(Debug)]
pub(crate) struct FanoutGroup {
    interface: String,
    number: u16,
}

static GROUPS: Mutex<Vec<Weak<FanoutGroup>>> = Mutex::new(Vec::new());

/// Opens a packet ring that shares the packets of `interface` with all handles of this cluster, by conversation, whose
/// number is that of the fanout group.
pub(crate) fn open_in_cluster(
    interface: &str,
    request: SourceOptions,
    cluster: u16,
) -> linerate_capture::Result<OpenInterface> {
    let fanout_group = Some(Fanout::new(Mode::Hash).group(cluster));
    OpenInterface::by_name(interface, &SourceOptions { fanout_group, ..request })
}

/// Opens a packet ring that shares the packets of `interface` with the other handles of its group, by
/// conversation. A group has at most `max` handles; the next one starts another group.
pub(crate) fn open(
    interface: &str,
    request: SourceOptions,
    max: usize,
) -> linerate_capture::Result<(OpenInterface, Option<Arc<FanoutGroup>>)> {
    // Held throughout: of two handles that open at once, one is the first.
    let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    groups.retain(|group| group.strong_count() > 0);
    let mut all = groups.iter().filter(|group| group.strong_count() < max);
    let joined = all.find_map(|group| group.upgrade().filter(|g| g.interface == interface));
    let fanout = Fanout::new(Mode::Hash);
    let fanout = match &joined {
        Some(group) => fanout.group(group.number),
        None => fanout,
    };
    let opened = OpenInterface::by_name(
        interface,
        &SourceOptions { fanout_group: Some(fanout), ..request },
    )?;
    if joined.is_some() {
        return Ok((opened, joined));
    }
    let started = match opened.sources.first() {
        Some(Source::Packet(ring)) => ring.fanout_group(),
        _ => None,
    };
    let started =
        started.map(|number| Arc::new(FanoutGroup { interface: interface.to_owned(), number }));
    groups.extend(started.as_ref().map(Arc::downgrade));
    Ok((opened, started))
}
