//! The processor's counters of data-TLB accesses and misses, where the machine has them.

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult};
use perf_event::{Builder, Counter};
use serde::{Deserialize, Serialize};

/// Data-TLB events of user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TlbCounts {
    /// Loads that asked the TLB.
    pub(crate) loads: u64,
    /// Loads that it could not answer.
    pub(crate) load_misses: u64,
    /// Stores that asked the TLB; 0 where the processor does not count them.
    pub(crate) stores: u64,
    /// Stores that it could not answer; 0 where the processor does not count them.
    pub(crate) store_misses: u64,
}

#[derive(Debug)]
pub(crate) struct TlbCounters {
    loads: Option<Counter>,
    load_misses: Option<Counter>,
    stores: Option<Counter>,
    store_misses: Option<Counter>,
}

impl TlbCounters {
    /// Opens those that the machine has, for the calling thread in user space.
    pub(crate) fn open() -> Self {
        let open = |operation, result| {
            Builder::new(Cache { which: CacheId::DTLB, operation, result }).build().ok()
        };
        Self {
            loads: open(CacheOp::READ, CacheResult::ACCESS),
            load_misses: open(CacheOp::READ, CacheResult::MISS),
            stores: open(CacheOp::WRITE, CacheResult::ACCESS),
            store_misses: open(CacheOp::WRITE, CacheResult::MISS),
        }
    }

    pub(crate) fn enable(&mut self) {
        self.each(Counter::enable);
    }

    pub(crate) fn disable(&mut self) {
        self.each(Counter::disable);
    }

    /// The counts so far; `None` where the machine counts not even load misses.
    pub(crate) fn read(&mut self) -> Option<TlbCounts> {
        let read = |counter: &mut Option<Counter>| counter.as_mut()?.read().ok();
        Some(TlbCounts {
            load_misses: read(&mut self.load_misses)?,
            loads: read(&mut self.loads).unwrap_or(0),
            stores: read(&mut self.stores).unwrap_or(0),
            store_misses: read(&mut self.store_misses).unwrap_or(0),
        })
    }

    fn each(&mut self, act: impl Fn(&mut Counter) -> std::io::Result<()>) {
        let all =
            [&mut self.loads, &mut self.load_misses, &mut self.stores, &mut self.store_misses];
        for counter in all.into_iter().flatten() {
            // An open counter of this thread cannot refuse; a failure would show as a count of 0.
            let _ = act(counter);
        }
    }
}
