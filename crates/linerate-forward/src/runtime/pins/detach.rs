//! Ends an instance.

use std::fs;
use std::sync::Arc;

use super::bpffs::{names, remove_directory};
use super::ports::{LINKS, interface_of};
use super::{DIRECTORIES, Lock, Namespace, Pins};
use crate::runtime::conntrack;
use crate::runtime::timeouts::ConnectionTimeouts;
use crate::table::Table;
use crate::table::clock::Clock;
use crate::{Error, Result};

impl Pins {
    /// Ends the instance: detaches the programs, the fast path first, restores the settings, and leaves
    /// nothing in bpffs. It does so even if a part has another version or is missing; what it cannot restore without
    /// the record, it logs.
    ///
    /// # Errors
    /// [`Error::Pin`] when the instance belongs to another network namespace that still exists: call it
    /// there. Otherwise the first failure; the rest is done nevertheless.
    pub fn detach(&self, lock: Lock) -> Result<()> {
        let state = self.state_if_any().unwrap_or_else(|error| {
            tracing::warn!(
                %error,
                "the record of the instance cannot be read: window tracking stays as it is, \
                 and so do its filters on a clsact qdisc, which only kernels before 6.6 have"
            );
            None
        });
        let here = Namespace::current()?;
        let is_here = state.as_ref().is_none_or(|state| state.namespace.is(here));
        if !is_here && !self.are_all_gone()? {
            let namespace = state.map(|state| state.namespace.to_string()).unwrap_or_default();
            return Err(Error::Pin {
                path: self.directory.clone(),
                reason: format!(
                    "the instance is of network namespace {namespace}: detach it there"
                ),
            });
        }
        let is_known = state.as_ref().is_some_and(|state| state.check_layout().is_ok());
        let timeouts = (is_here && is_known).then(|| self.timeouts());
        if let Some(Err(error)) = &timeouts {
            tracing::warn!(
                %error,
                "connections of sessions keep the timeouts that they have now, which may be too short for them"
            );
        }
        let mut first = Ok(());
        let mut keep = |result: Result<()>| {
            if let Err(error) = result {
                tracing::warn!(%error, "cannot detach completely");
                if first.is_ok() {
                    first = Err(error);
                }
            }
        };
        for ifindex in names(&self.directory.join("ports"))? {
            let Ok(ifindex) = ifindex.parse() else { continue };
            let known = state.as_ref().and_then(|state| state.port(ifindex));
            let clsact = known.filter(|_| is_here).and_then(|one| one.clsact);
            keep(self.detach_port(ifindex, clsact));
        }
        let all = self.everybody();
        // Another instance of this namespace still needs the settings, and has their former values.
        if let Some(state) = state.filter(|_| is_here)
            && self.is_last()
        {
            keep(conntrack::restore(state.windows));
        }
        if let Some(Ok(mut timeouts)) = timeouts {
            timeouts.hand_back(&Clock::from_boot_time());
        }
        keep(self.clear().and_then(|()| remove_directory(&self.directory)));
        drop(all);
        drop(lock);
        self.remove_parents();
        first
    }

    /// What sets the timeouts of the connections of its sessions.
    fn timeouts(&self) -> Result<ConnectionTimeouts> {
        let table = Table::open(&self.maps()?)?;
        Ok(ConnectionTimeouts::new(Arc::new(table), self.program("refresh")?))
    }

    /// Whether all links of the instance have lost their interfaces.
    fn are_all_gone(&self) -> Result<bool> {
        for ifindex in names(&self.directory.join("ports"))? {
            for file in LINKS {
                let link = self.directory.join("ports").join(&ifindex).join(file);
                if link.exists() && interface_of(&link)?.is_none_or(|index| index != 0) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The parent directories, if no other instance uses them.
    fn remove_parents(&self) {
        for directory in self.directory.ancestors().skip(1).take(DIRECTORIES.len()) {
            if fs::remove_dir(directory).is_err() {
                break;
            }
        }
    }
}
