//! Which flow a packet belongs to, and which flow is the oldest.
//!
//! One slice holds everything: flow `i` is also the head of hash bucket `i`, so that memory is bounded
//! by what the caller gave, and neither a lookup nor a removal allocates.

use super::flow::Flow;

/// No flow: the end of a list.
const NONE: u16 = u16::MAX;

/// Where a flow stands in the lists of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    /// First flow of the bucket with this flow's index, which has nothing else to do with this flow.
    bucket: u16,
    /// Next flow of the same bucket, or the next free one.
    next: u16,
    /// The flow that began before this one.
    older: u16,
    /// The flow that began after this one.
    newer: u16,
}

impl Links {
    pub(super) const UNUSED: Self = Self { bucket: NONE, next: NONE, older: NONE, newer: NONE };
}

/// The lists over the flows, which are passed to each call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    free: u16,
    oldest: u16,
    newest: u16,
}

impl Table {
    /// All of `flows` are free.
    pub(super) fn new(flows: &mut [Flow]) -> Self {
        let count = flows.len().min(usize::from(NONE));
        for (index, flow) in flows[..count].iter_mut().enumerate() {
            let next = if index + 1 == count { NONE } else { index as u16 + 1 };
            flow.links = Links { next, ..Links::UNUSED };
        }
        let free = if count == 0 { NONE } else { 0 };
        Self { free, oldest: NONE, newest: NONE }
    }

    /// The flow with this hash that `same` recognises.
    pub(super) fn find(
        &self,
        flows: &[Flow],
        hash: u32,
        same: impl Fn(&Flow) -> bool,
    ) -> Option<usize> {
        if self.oldest == NONE {
            return None;
        }
        let mut at = flows.get(bucket(flows, hash))?.links.bucket;
        while let Some(flow) = flows.get(usize::from(at)) {
            if flow.hash == hash && same(flow) {
                return Some(at.into());
            }
            at = flow.links.next;
        }
        None
    }

    /// Takes a free flow into the table as its newest; `None` where all are taken.
    pub(super) fn insert(&mut self, flows: &mut [Flow], hash: u32) -> Option<usize> {
        let at = self.free;
        let older = self.newest;
        self.free = flows.get(usize::from(at))?.links.next;
        let head = bucket(flows, hash);
        let next = core::mem::replace(&mut flows[head].links.bucket, at);
        let flow = &mut flows[usize::from(at)];
        flow.hash = hash;
        flow.links = Links { next, older, newer: NONE, ..flow.links };
        match flows.get_mut(usize::from(older)) {
            Some(older) => older.links.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
        Some(at.into())
    }

    /// Makes a flow of the table free again.
    pub(super) fn remove(&mut self, flows: &mut [Flow], index: usize) {
        let Links { next, older, newer, .. } = flows[index].links;
        let head = bucket(flows, flows[index].hash);
        if usize::from(flows[head].links.bucket) == index {
            flows[head].links.bucket = next;
        } else {
            let mut at = usize::from(flows[head].links.bucket);
            while usize::from(flows[at].links.next) != index {
                at = flows[at].links.next.into();
            }
            flows[at].links.next = next;
        }
        match flows.get_mut(usize::from(older)) {
            Some(older) => older.links.newer = newer,
            None => self.oldest = newer,
        }
        match flows.get_mut(usize::from(newer)) {
            Some(newer) => newer.links.older = older,
            None => self.newest = older,
        }
        flows[index].links.next = self.free;
        self.free = index as u16;
    }

    /// The flow that began first.
    pub(super) fn oldest(&self) -> Option<usize> {
        (self.oldest != NONE).then_some(self.oldest.into())
    }

    /// The flow that began next after `index`.
    pub(super) fn newer(&self, flows: &[Flow], index: usize) -> Option<usize> {
        let newer = flows[index].links.newer;
        (newer != NONE).then_some(newer.into())
    }
}

fn bucket(flows: &[Flow], hash: u32) -> usize {
    // At most 65,535 flows are used, so that the product fits.
    let count = flows.len().min(usize::from(NONE)) as u64;
    ((u64::from(hash) * count) >> 32) as usize
}
