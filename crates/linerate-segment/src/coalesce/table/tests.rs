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
            let same =
                |(_, other): &&(usize, [u32; 2])| of(other[by as usize]) == of(hashes[by as usize]);
            let expected: Vec<_> = plain.iter().rev().filter(same).map(|(at, _)| *at).collect();
            assert_eq!(chain(&table, &flows, by, hashes[by as usize]), expected);
        }
    }
}
