//! Packet rings of chosen memory: where the kernel has them, they are what they say, and where it has not,
//! so does the error.

use std::fs;

use crate::packet_support::{Cable, finish, number, numbered, quick};
use linerate_ring::packet::Allocation;
use linerate_testkit::{exclusive, print_skipped, root_or_skip};

/// Bytes of huge pages that this process has mapped, of either kind.
fn huge_bytes() -> usize {
    let smaps = fs::read_to_string("/proc/self/smaps_rollup").expect("smaps");
    let fields = ["FilePmdMapped:", "Shared_Hugetlb:", "Private_Hugetlb:"];
    let kib = |line: &str| line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok();
    let of = |field: &&str| smaps.lines().find_map(|line| kib(line.strip_prefix(*field)?));
    fields.iter().filter_map(of).sum::<usize>() * 1024
}

#[test]
fn a_ring_is_of_the_memory_that_was_chosen_or_there_is_none() {
    root_or_skip!();
    // It reads what this process has mapped.
    let _exclusive = exclusive();
    let cable = Cable::new();
    let frames: Vec<_> = (0..900).map(|n| numbered(n, 60 + n as usize % 1455)).collect();
    for allocation in Allocation::ALL {
        let before = huge_bytes();
        let mut ring = match cable.receive(quick("rx").allocation(allocation)) {
            Ok(ring) => ring,
            Err(error) => {
                let error = error.to_string();
                assert_ne!(allocation, Allocation::Any, "{error}");
                if error.contains("let programs choose the memory") {
                    return print_skipped("packet rings of chosen memory", &error);
                }
                assert!(error.contains("huge pages"), "{allocation}: {error}");
                print_skipped(&format!("a ring of {allocation} memory"), &error);
                continue;
            }
        };
        let lost = cable.lost();
        cable.send(&frames);
        let kept = finish(&mut ring);
        assert_eq!(kept.len() + cable.lost() - lost, frames.len(), "{allocation}");
        for kept in &kept {
            assert_eq!(&kept.bytes, &frames[number(&kept.bytes) as usize], "{allocation}");
        }
        let huge = huge_bytes() - before;
        // Half of the ring may not have been read yet.
        assert_eq!(huge > 0, allocation.is_huge(), "{allocation}: {huge} bytes of huge pages");
    }
}

#[test]
fn blocks_divide_a_huge_page() {
    root_or_skip!();
    let cable = Cable::new();
    let builder = quick("rx").allocation(Allocation::TransparentHuge).block_size(12 << 10);
    let error = cable.receive(builder).unwrap_err().to_string();
    assert!(error.contains("divide a huge page"), "{error}");
}

#[test]
fn words_are_read_as_they_are_written() {
    for allocation in Allocation::ALL {
        assert_eq!(allocation.to_string().parse::<Allocation>().unwrap(), allocation);
    }
    assert!("huge".parse::<Allocation>().unwrap_err().to_string().contains("transhuge"));
}
