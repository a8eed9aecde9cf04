//! [`Share`]: handles of this process that share the packets of an interface (`linerate run --threads`).

use std::sync::{Arc, Mutex, PoisonError, Weak};

use linerate_capture::open::{Opened, Request};
use linerate_capture::source::Source;
use linerate_ring::packet::{Fanout, Mode};

/// A group that has members: each holds this, and forgets it before it leaves. The kernel gives the number
/// of a group without members to others.
#[derive(Debug)]
pub(crate) struct Share {
    interface: String,
    number: u16,
}

static GROUPS: Mutex<Vec<Weak<Share>>> = Mutex::new(Vec::new());

/// Opens a packet ring that shares the packets of `interface` with the other handles of its group, by
/// conversation. Of `most` handles one group is made; the next one begins another.
pub(crate) fn open(
    interface: &str,
    request: Request,
    most: usize,
) -> linerate_capture::Result<(Opened, Option<Arc<Share>>)> {
    // Also so that of two that are opened at once one is the first.
    let mut groups = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    groups.retain(|group| group.strong_count() > 0);
    let mut all = groups.iter().filter(|group| group.strong_count() < most);
    let joined = all.find_map(|group| group.upgrade().filter(|g| g.interface == interface));
    let fanout = Fanout::new(Mode::Hash);
    let fanout = match &joined {
        Some(group) => fanout.group(group.number),
        None => fanout,
    };
    let opened = Opened::named(interface, &Request { group: Some(fanout), ..request })?;
    if joined.is_some() {
        return Ok((opened, joined));
    }
    let begun = match opened.sources.first() {
        Some(Source::Packet(ring)) => ring.fanout_group(),
        _ => None,
    };
    let begun = begun.map(|number| Arc::new(Share { interface: interface.to_owned(), number }));
    groups.extend(begun.as_ref().map(Arc::downgrade));
    Ok((opened, begun))
}
