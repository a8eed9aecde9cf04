//! Huge pages for the length of a run, given back afterwards.

use std::fs;

use anyhow::{Context, Result};

const POOL: &str = "/proc/sys/vm/nr_hugepages";

/// Huge pages of the default size, reserved while this value lives.
#[derive(Debug)]
pub struct Reserved {
    added: u64,
    /// Pages in the pool now.
    pub got: u64,
}

impl Reserved {
    /// Makes the pool at least `wanted` pages large, as far as memory and the system (a container
    /// may not write its size) allow. `None` on a kernel without huge pages.
    ///
    /// # Errors
    /// When the pool cannot be read.
    pub fn at_least(wanted: u64) -> Result<Option<Self>> {
        let Ok(before) = read() else { return Ok(None) };
        if before < wanted {
            // What was got tells whether this worked.
            let _ = fs::write(POOL, wanted.to_string());
        }
        let got = read()?;
        Ok(Some(Self { added: got.saturating_sub(before), got }))
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // Takes away what was added, and not what somebody else has reserved meanwhile.
        if let (true, Ok(now)) = (self.added > 0, read()) {
            let _ = fs::write(POOL, now.saturating_sub(self.added).to_string());
        }
    }
}

fn read() -> Result<u64> {
    let text = fs::read_to_string(POOL).with_context(|| format!("cannot read {POOL}"))?;
    text.trim().parse().with_context(|| format!("{POOL} holds no number"))
}
