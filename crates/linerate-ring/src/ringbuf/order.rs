//! The order in which a reader of several ring buffers takes their frames.

use std::time::{Duration, Instant};

use super::records::Head;
use super::{CLOCK_SKEW_NS, Reader};
use crate::sys;

/// How long frames wait for one that a CPU is copying, which may be earlier. A copy takes less than a microsecond,
/// unless a hypervisor stops the CPU in the middle of it.
const MAX_COPY_TIME: Duration = Duration::from_millis(100);

impl<P> Reader<P> {
    /// The ring of the next batch, and the latest stamp of its frames.
    #[inline]
    pub(super) fn next_ring(&mut self) -> Option<(usize, u64)> {
        if let [only] = &mut self.rings[..] {
            return only.records.ready().then_some((0, u64::MAX));
        }
        if self.options.in_order {
            self.oldest().or_else(|| self.look())
        } else {
            self.next_in_turn()
        }
    }

    fn next_in_turn(&mut self) -> Option<(usize, u64)> {
        let count = self.rings.len();
        let mut turns = (1..=count).map(|more| (self.turn + more) % count);
        turns.find(|turn| self.rings[*turn].records.has_frame()).map(|turn| (turn, u64::MAX))
    }

    /// Looks at all rings anew.
    fn look(&mut self) -> Option<(usize, u64)> {
        // Before the look at the first ring.
        let now = sys::tai_ns().saturating_sub(CLOCK_SKEW_NS);
        self.rings.iter_mut().for_each(|ring| ring.records.look());
        // Somebody may set the clock back. What was stamped before that is earlier, whatever its stamp says.
        self.horizon = if now < self.horizon { u64::MAX } else { now };
        let found = self.oldest();
        self.horizon = now;
        found
    }

    /// The ring whose next frame is the oldest, and the stamp up to which no other ring has an older one.
    fn oldest(&mut self) -> Option<(usize, u64)> {
        let (mut found, mut until) = (None::<(usize, u64)>, self.horizon);
        let mut copying = false;
        for (index, ring) in self.rings.iter_mut().enumerate() {
            match ring.records.head() {
                Head::Empty => {}
                // It may be the oldest, but is no older than the frame before it.
                Head::Busy => (copying, until) = (true, until.min(ring.last)),
                Head::Stamp(stamp) => match found {
                    Some((_, oldest)) if stamp >= oldest => until = until.min(stamp),
                    _ => {
                        until = found.map_or(until, |(_, oldest)| until.min(oldest));
                        found = Some((index, stamp));
                    }
                },
            }
        }
        if !copying {
            self.copying_since = None;
        }
        let (ring, stamp) = found?;
        if copying && stamp > until {
            let since = *self.copying_since.get_or_insert_with(Instant::now);
            if since.elapsed() < MAX_COPY_TIME {
                return None;
            }
            return Some((ring, stamp));
        }
        (stamp <= until).then_some((ring, until))
    }
}
