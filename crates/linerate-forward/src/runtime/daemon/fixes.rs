//! What the preflight fixed for an instance: read from its record, and undone at its end.

use crate::Result;
use crate::runtime::pins::{Lock, Pins};
use crate::runtime::preflight::{self, Fix};

/// The key of the fixes in the record of the instance.
pub(super) const FIXES: &str = "preflight";

/// Detaches the instance and undoes what was fixed for it: fixes come after, since the programs rely on them.
pub(super) fn detach(pins: &Pins, lock: Lock) -> Result<()> {
    let fixes = fixes(pins);
    let detached = pins.detach(lock);
    for error in preflight::restore(&fixes) {
        tracing::warn!(%error, "cannot undo a fix");
    }
    detached
}

/// The fixes in the record of the instance; none where it cannot be read.
pub(super) fn fixes(pins: &Pins) -> Vec<Fix> {
    let state = pins.state().ok();
    let value = state.and_then(|mut state| state.others.remove(FIXES));
    value.and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
}
