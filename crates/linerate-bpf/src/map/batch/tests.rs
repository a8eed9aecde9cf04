use std::collections::HashMap;
use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use linerate_testkit::root_or_skip;

use super::*;

fn hash(kind: MapType, entries: u32) -> MapHandle {
    let options = options!(bpf_map_create_opts {});
    MapHandle::create(kind, Some("batches"), 8, 12, entries, &options).unwrap()
}

fn read(map: &MapHandle) -> HashMap<Vec<u8>, Vec<u8>> {
    let mut found = HashMap::new();
    for_each(map.as_fd(), |key, value| {
        assert!(found.insert(key.to_vec(), value.to_vec()).is_none(), "once");
    })
    .unwrap();
    found
}

#[test]
fn every_entry_is_met_once_and_deleted_once() {
    root_or_skip!();
    const ENTRIES: u64 = 10_000;
    let map = hash(MapType::Hash, ENTRIES as u32);
    assert!(read(&map).is_empty());
    let value = |number: u64| [number.to_ne_bytes().as_slice(), &[7; 4]].concat();
    for number in 0..ENTRIES {
        map.update(&number.to_ne_bytes(), &value(number), MapFlags::ANY).unwrap();
    }
    let found = read(&map);
    assert_eq!(found.len() as u64, ENTRIES);
    assert!(
        found.iter().all(|(key, found)| {
            *found == value(u64::from_ne_bytes(key[..].try_into().unwrap()))
        })
    );
    // Every second key is one that is not there.
    let keys: Vec<u8> = (0..ENTRIES)
        .flat_map(|number| [number * 2, ENTRIES + number].map(u64::to_ne_bytes))
        .flatten()
        .collect();
    assert_eq!(delete(map.as_fd(), &keys).unwrap(), ENTRIES / 2);
    let left = read(&map);
    assert_eq!(left.len() as u64, ENTRIES / 2);
    assert!(left.keys().all(|key| key[0] % 2 == 1));
    assert_eq!(delete(map.as_fd(), &[]).unwrap(), 0);
}

#[test]
fn values_of_all_cpus_come_together() {
    root_or_skip!();
    let map = hash(MapType::PercpuHash, 100);
    let cpus = libbpf_rs::num_possible_cpus().unwrap();
    let values: Vec<Vec<u8>> = (0..cpus).map(|cpu| vec![cpu as u8; 12]).collect();
    map.update_percpu(&[1; 8], &values, MapFlags::ANY).unwrap();
    let found = read(&map);
    let value = &found[&vec![1; 8]];
    assert_eq!(value.len(), 16 * cpus);
    assert!(value.chunks(16).zip(&values).all(|(found, value)| found[..12] == value[..]));
}
