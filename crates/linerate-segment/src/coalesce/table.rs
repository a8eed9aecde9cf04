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
mod tests {
    extern crate std;

    use std::collections::VecDeque;
    use std::vec::Vec;

    use super::*;

    fn chain(table: &Table, flows: &[Flow], by: HashTable, hash: u32) -> Vec<usize> {
        let first = table.first(flows, by, hash);
        core::iter::successors(first, |index| table.next(flows, by, *index)).collect()
    }

    #[test]
    fn a_lookup_sees_no_more_than_a_bucket_may_hold() {
        let mut flows: Vec<Flow> = (0..500).map(|_| Flow::default()).collect();
        let mut table = Table::new(&mut flows);
        let mut held = VecDeque::new();
        // All flows of one sender meet in one bucket of the one table, and in one of the other.
        for _ in 0..1000 {
            if let Some(index) = table.eviction_candidate(&flows, 77) {
                assert_eq!(Some(index), held.pop_front(), "the oldest of the bucket goes");
                table.remove(&mut flows, index);
            }
            held.push_back(table.insert(&mut flows, [77, 99]).expect("room"));
            let mut seen = 0;
            let found = table.find(&flows, 77, |_| {
                seen += 1;
                false
            });
            assert_eq!((found, seen), (None, held.len()));
            assert!(seen <= MAX_PER_BUCKET);
            let newest_first: Vec<_> = held.iter().rev().copied().collect();
            assert_eq!(chain(&table, &flows, HashTable::AddressPair, 99), newest_first);
        }
        assert_eq!(held.len(), MAX_PER_BUCKET);
        // A flow in another bucket evicts nothing, and its lookup passes no other flow.
        assert_eq!(table.eviction_candidate(&flows, u32::MAX), None);
        assert_eq!(chain(&table, &flows, HashTable::AddressPair, u32::MAX), []);
    }

    #[test]
    fn lists_hold_what_a_plain_list_holds() {
        let mut flows: Vec<Flow> = (0..40).map(|_| Flow::default()).collect();
        let mut table = Table::new(&mut flows);
        let mut plain: Vec<(usize, [u32; 2])> = Vec::new();
        let mut state = 1_u32;
        for step in 0..20_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let hashes = [state, (state >> 8 & 3) << 30];
            let way = table.eviction_candidate(&flows, hashes[0]);
            let gone = way.or_else(|| {
                (step % 3 == 0 && !plain.is_empty()).then(|| plain[state as usize % plain.len()].0)
            });
            if let Some(index) = gone {
                plain.retain(|(at, _)| *at != index);
                table.remove(&mut flows, index);
            }
            let at = table.insert(&mut flows, hashes).expect("room");
            plain.push((at, hashes));
            assert_eq!(table.oldest(), plain.first().map(|(at, _)| *at));
            for by in [HashTable::Flow, HashTable::AddressPair] {
                let of = |hash| bucket(&flows, hash);
                let same = |(_, other): &&(usize, [u32; 2])| {
                    of(other[by as usize]) == of(hashes[by as usize])
                };
                let expected: Vec<_> = plain.iter().rev().filter(same).map(|(at, _)| *at).collect();
                assert_eq!(chain(&table, &flows, by, hashes[by as usize]), expected);
            }
        }
    }
}
