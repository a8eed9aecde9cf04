//! The clock that stamps packets where no source did.

use std::time::{SystemTime, UNIX_EPOCH};

use linerate_ring::Timestamp;

/// The host's time.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
