//! [`digest`]: whether tables of x_tables have changed, which the kernel does not report.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use super::{KINDS, half};

/// Bytes of an entry's counters (`struct xt_counters`), which end its head.
const COUNTERS: usize = 16;

/// A digest of all tables of the namespace of the calling thread, without counters.
///
/// # Errors
/// As [`Ruleset::load`](crate::ruleset::Ruleset::load).
pub fn digest() -> io::Result<u64> {
    let mut digest = DefaultHasher::new();
    for kind in &KINDS {
        kind.tables(|name, info, mut entries| {
            (kind.level, name, info).hash(&mut digest);
            // The offset of the next entry follows that of the target.
            while let Some(size) = half(entries, kind.matched + 6).filter(|size| *size > 0) {
                let Some((entry, rest)) = entries.split_at_checked(size) else { return };
                let (head, matches) = entry.split_at(kind.head.min(size));
                (&head[..head.len().saturating_sub(COUNTERS)], matches).hash(&mut digest);
                entries = rest;
            }
        })?;
    }
    Ok(digest.finish())
}
