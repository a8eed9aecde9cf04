//! Allocations, counted for each thread by an allocator that stands before the system's.

use std::hint::black_box;

/// Allocations of this thread during `work`, and what it gave.
pub(crate) fn allocations<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let one = allocation_counter::measure(|| drop(black_box(Box::new(1))));
    assert_eq!(one.count_total, 1, "the counter does not count");
    let mut result = None;
    let counted = allocation_counter::measure(|| result = Some(work()));
    (counted.count_total, result.expect("the work is done"))
}
