use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use linerate_testkit::root_or_skip;

use super::*;

fn array(kind: MapType, flags: u32, value_size: u32, entries: u32) -> MapHandle {
    let options = options!(bpf_map_create_opts { map_flags: flags });
    MapHandle::create(kind, Some("mapped"), 4, value_size, entries, &options).unwrap()
}

#[test]
fn what_one_side_writes_the_other_reads() {
    root_or_skip!();
    // A value that is not a multiple of eight, more than a page in all.
    let map = array(MapType::Array, libbpf_sys::BPF_F_MMAPABLE, 20, 1000);
    let mapped = MappedArray::new(map.as_fd()).unwrap();
    assert_eq!((mapped.max_entries(), mapped.value_size(), mapped.bytes()), (1000, 20, 24_000));
    for entry in [0usize, 1, 170, 999] {
        let key = (entry as u32).to_ne_bytes();
        let value: Vec<u8> = (0..20).map(|byte| byte ^ entry as u8).collect();
        map.update(&key, &value, MapFlags::ANY).unwrap();
        let word = u64::from_ne_bytes(value[8..16].try_into().unwrap());
        assert_eq!(mapped.atomic::<AtomicU64>(entry, 8).load(Relaxed), word);
        let bytes = mapped.atomics::<AtomicU8>(entry, 0, 20);
        assert_eq!(bytes.iter().map(|byte| byte.load(Relaxed)).collect::<Vec<_>>(), value);

        mapped.atomic::<AtomicU16>(entry, 18).store(0xabcd, Relaxed);
        mapped.atomic::<AtomicU32>(entry, 0).store(7, Relaxed);
        let now = map.lookup(&key, MapFlags::ANY).unwrap().unwrap();
        assert_eq!(now[18..20], 0xabcdu16.to_ne_bytes());
        assert_eq!(now[0..4], 7u32.to_ne_bytes());
        assert_eq!(now[4..18], value[4..18]);
    }
}

#[test]
fn nothing_outside_a_value_is_lent() {
    root_or_skip!();
    let map = array(MapType::Array, libbpf_sys::BPF_F_MMAPABLE, 20, 3);
    let mapped = MappedArray::new(map.as_fd()).unwrap();
    let panics = |look: &dyn Fn()| {
        let quiet = std::panic::AssertUnwindSafe(look);
        assert!(std::panic::catch_unwind(quiet).is_err());
    };
    panics(&|| _ = mapped.atomic::<AtomicU32>(3, 0).load(Relaxed));
    panics(&|| _ = mapped.atomic::<AtomicU32>(0, 2).load(Relaxed));
    panics(&|| _ = mapped.atomic::<AtomicU64>(0, 16).load(Relaxed));
    panics(&|| _ = mapped.atomic::<AtomicU64>(0, usize::MAX - 7).load(Relaxed));
    panics(&|| _ = mapped.atomics::<AtomicU64>(0, 0, 3).len());
    panics(&|| _ = mapped.atomics::<AtomicU8>(3, 0, 1).len());
    panics(&|| _ = mapped.atomics::<AtomicU8>(0, 21, 0).len());
    panics(&|| _ = mapped.atomics::<AtomicU8>(0, 1, usize::MAX).len());
    assert_eq!(mapped.atomics::<AtomicU8>(2, 20, 0).len(), 0);
}

#[test]
fn a_map_that_is_no_array_to_map_is_refused_by_name() {
    root_or_skip!();
    for map in [array(MapType::Hash, 0, 8, 8), array(MapType::Array, 0, 8, 8)] {
        let error = MappedArray::new(map.as_fd()).unwrap_err().to_string();
        assert!(error.contains("the BPF map mapped is not an array"), "{error}");
    }
}
