//! Which flow a packet belongs to, which flows are between two addresses, and which flow is the oldest.
//!
//! One slice holds everything: flow `i` is also the head of bucket `i` of two hash tables, so that memory
//! is bounded by what the caller gave, and neither a lookup nor a removal allocates.

use super::flow::Flow;
use super::links::{Chain, Links, NONE};

/// Most flows of one bucket, as in the kernel's GRO (`MAX_GRO_SKBS`): the bound of a lookup's cost for any
/// sender. Evenly distributed flows hardly ever reach it.
pub(super) const MAX_PER_BUCKET: usize = 8;

/// Which of the hash tables.
#[derive(Clone, Copy, Debug)]
pub(super) enum HashTable {
    /// By what makes a flow.
    Flow,
    /// By the outermost IP addresses.
    AddressPair,
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
            let newer = if index + 1 == count { NONE } else { index as u16 + 1 };
            flow.links = Links { newer, ..Links::UNUSED };
        }
        let free = if count == 0 { NONE } else { 0 };
        Self { free, oldest: NONE, newest: NONE }
    }

    /// The flow with this hash that `same` recognises.
    pub(super) fn find(
        &self,
        flows: &[Flow],
        hash: u32,
        mut same: impl FnMut(&Flow) -> bool,
    ) -> Option<usize> {
        let mut next = self.first(flows, HashTable::Flow, hash);
        while let Some(index) = next {
            let flow = &flows[index];
            if flow.links.chains[HashTable::Flow as usize].hash == hash && same(flow) {
                break;
            }
            next = self.next(flows, HashTable::Flow, index);
        }
        next
    }

    /// The newest flow of a hash's bucket.
    pub(super) fn first(&self, flows: &[Flow], by: HashTable, hash: u32) -> Option<usize> {
        if self.oldest == NONE {
            return None;
        }
        index(flows[bucket(flows, hash)].links.chains[by as usize].bucket)
    }

    /// The next older flow of the same bucket.
    pub(super) fn next(&self, flows: &[Flow], by: HashTable, flow: usize) -> Option<usize> {
        index(flows[flow].links.chains[by as usize].next)
    }

    /// The flow that has to go before one with this hash begins.
    pub(super) fn eviction_candidate(&self, flows: &[Flow], hash: u32) -> Option<usize> {
        let mut last = None;
        let mut count = 0;
        let mut next = self.first(flows, HashTable::Flow, hash);
        while let Some(index) = next {
            (last, count) = (next, count + 1);
            next = self.next(flows, HashTable::Flow, index);
        }
        if count >= MAX_PER_BUCKET {
            return last;
        }
        if self.free == NONE { self.oldest() } else { None }
    }

    /// Takes a free flow into the table as its newest; `None` where all are taken. The hashes are those
    /// of the flow and of its addresses.
    pub(super) fn insert(&mut self, flows: &mut [Flow], hashes: [u32; 2]) -> Option<usize> {
        let at = self.free;
        let older = self.newest;
        self.free = flows.get(usize::from(at))?.links.newer;
        for (by, hash) in hashes.into_iter().enumerate() {
            let head = bucket(flows, hash);
            let next = core::mem::replace(&mut flows[head].links.chains[by].bucket, at);
            if let Some(next) = flows.get_mut(usize::from(next)) {
                next.links.chains[by].previous = at;
            }
            let chain = &mut flows[usize::from(at)].links.chains[by];
            *chain = Chain { hash, next, previous: NONE, ..*chain };
        }
        let links = &mut flows[usize::from(at)].links;
        *links = Links { older, newer: NONE, ..*links };
        match flows.get_mut(usize::from(older)) {
            Some(older) => older.links.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
        Some(at.into())
    }

    /// Makes a flow of the table free again.
    pub(super) fn remove(&mut self, flows: &mut [Flow], index: usize) {
        let Links { chains, older, newer } = flows[index].links;
        for (by, Chain { hash, next, previous, .. }) in chains.into_iter().enumerate() {
            let head = bucket(flows, hash);
            match flows.get_mut(usize::from(previous)) {
                Some(previous) => previous.links.chains[by].next = next,
                None => flows[head].links.chains[by].bucket = next,
            }
            if let Some(next) = flows.get_mut(usize::from(next)) {
                next.links.chains[by].previous = previous;
            }
        }
        match flows.get_mut(usize::from(older)) {
            Some(older) => older.links.newer = newer,
            None => self.oldest = newer,
        }
        match flows.get_mut(usize::from(newer)) {
            Some(newer) => newer.links.older = older,
            None => self.newest = older,
        }
        flows[index].links.newer = self.free;
        self.free = index as u16;
    }

    /// The flow that began first.
    pub(super) fn oldest(&self) -> Option<usize> {
        index(self.oldest)
    }
}

fn index(link: u16) -> Option<usize> {
    (link != NONE).then_some(link.into())
}

fn bucket(flows: &[Flow], hash: u32) -> usize {
    // At most 65,535 flows are used, so that the product fits.
    let count = flows.len().min(usize::from(NONE)) as u64;
    ((u64::from(hash) * count) >> 32) as usize
}

#[cfg(test)]
mod tests;
