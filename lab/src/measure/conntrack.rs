//! Room in conntrack's table for the length of a measurement, given back afterwards.

use std::fs;

use anyhow::{Context, Result};

/// Connections of all network namespaces, and the buckets of their table: as many, as the kernel has them by default
/// (`nf_conntrack_init_start`).
const LIMITS: [&str; 2] =
    ["/proc/sys/net/netfilter/nf_conntrack_max", "/sys/module/nf_conntrack/parameters/hashsize"];

/// Limits of conntrack that are at least so large while this value lives.
#[derive(Debug)]
pub(crate) struct ConntrackRoom(Vec<(&'static str, String)>);

impl ConntrackRoom {
    /// Raises what is smaller. Conntrack has to be loaded.
    pub(crate) fn at_least(connections: u64) -> Result<Self> {
        let mut raised = Self(Vec::new());
        for path in LIMITS {
            let former = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
            let now: u64 = former.trim().parse().with_context(|| format!("{path}: {former}"))?;
            if now < connections {
                fs::write(path, connections.to_string())
                    .with_context(|| format!("cannot write {connections} to {path}"))?;
                raised.0.push((path, former));
            }
        }
        Ok(raised)
    }
}

impl Drop for ConntrackRoom {
    fn drop(&mut self) {
        for (path, former) in self.0.iter().rev() {
            let _ = fs::write(path, former.trim());
        }
    }
}
