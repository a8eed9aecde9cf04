use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

#[test]
fn a_flow_takes_at_most_160_bytes() {
    let table = Table::new(1000, Groups::default());
    let entries = table.entries.capacity() * size_of::<Entry>();
    let bytes = size_of_val(&*table.slots) + entries + 4 * table.free.capacity();
    assert_eq!(size_of::<Entry>(), 128);
    // The index of initiators has a word for each flow.
    let bytes_per_flow = bytes / 1000 + size_of::<u64>();
    assert!(bytes_per_flow <= 160, "{bytes_per_flow} bytes a flow");
}

#[test]
fn addresses_that_are_chosen_do_not_collide() {
    let (one, other) = (Table::new(1000, Groups::default()), Table::new(1000, Groups::default()));
    // foldhash multiplies by the difference of the second word and this constant.
    let keys = (0..1000).map(|n| Key::of_addresses([n, 0xc0ac_29b7_c97c_50dd, 1, 1]));
    let keys: Vec<_> = keys.collect();
    let hashes: HashSet<_> = keys.iter().map(|key| one.hash(key)).collect();
    assert!(hashes.len() >= 999, "{}", hashes.len());
    // The key is secret.
    assert!(keys.iter().filter(|key| one.hash(key) == other.hash(key)).count() <= 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Against the map of the standard library. The table is small and gets full, so that probe sequences are long
    /// and wrap around.
    #[test]
    fn it_is_a_map(
        capacity in 1_u32..40,
        operations in prop::collection::vec((any::<bool>(), 0_u32..60), 0..400),
    ) {
        let mut table = Table::new(capacity, Groups::default());
        let mut oracle = HashMap::new();
        for (insert, number) in operations {
            let key = Key::numbered(number);
            let hash = table.hash(&key);
            let found = table.find(hash, &key);
            prop_assert_eq!(found, oracle.get(&number).copied());
            match found {
                None if insert && !table.is_full() => {
                    oracle.insert(number, table.insert(hash, Entry::of_key(key)));
                }
                Some(entry) if !insert => {
                    oracle.remove(&number);
                    table.remove(entry);
                }
                _ => {}
            }
            prop_assert_eq!(table.len(), oracle.len());
        }
        for (number, entry) in &oracle {
            let key = Key::numbered(*number);
            prop_assert_eq!(table.find(table.hash(&key), &key), Some(*entry));
        }
    }
}
