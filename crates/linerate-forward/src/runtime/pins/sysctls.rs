//! Window tracking is a setting of the network namespace. Its instances share it: the first makes it liberal,
//! the last restores it.

use std::fs::File;

use super::{InstanceState, Lock, Namespace, Pins, lock};
use crate::Result;
use crate::runtime::conntrack::{self, SavedSysctls};
use crate::runtime::program::Programs;

impl Pins {
    /// Pins as [`Pins::create`] does, with window tracking made liberal; `state` has the former settings then.
    ///
    /// # Errors
    /// As [`Pins::create`] and [`conntrack::relax_tcp_tracking`].
    pub fn create_and_set_sysctls(
        &self,
        lock: &Lock,
        programs: &Programs,
        state: &mut InstanceState,
    ) -> Result<()> {
        let _all = self.everybody()?;
        let now = self.set_sysctls(state)?;
        let created = self.create(lock, programs, state);
        if created.is_err()
            && self.beside().next().is_none()
            && let Err(error) = conntrack::restore_settings(now)
        {
            tracing::warn!(%error, "cannot clean up after a start that failed");
        }
        created
    }

    /// Makes window tracking liberal if it was not there when the instance was created: the kernel loads conntrack as a
    /// module with the first rule that needs it.
    ///
    /// # Errors
    /// As [`Pins::create_and_set_sysctls`].
    pub fn follow_sysctls(&self, lock: &Lock, state: &mut InstanceState) -> Result<()> {
        if state.windows.liberal.is_some() || !conntrack::is_there() {
            return Ok(());
        }
        let _all = self.everybody()?;
        self.set_sysctls(state)?;
        self.save_state(lock, state)
    }

    /// Returns what this call has found, and keeps what is to be restored.
    fn set_sysctls(&self, state: &mut InstanceState) -> Result<SavedSysctls> {
        let now = conntrack::relax_tcp_tracking()?;
        // The last instance of a namespace restores what the first one found.
        let first = self.beside().map(|other| other.windows).find(|saved| saved.liberal.is_some());
        state.windows = first.unwrap_or(now);
        Ok(now)
    }

    /// Locks the namespace's settings; waits for the current holder.
    pub(super) fn everybody(&self) -> Result<File> {
        lock::wait(self.directory.parent().unwrap_or(&self.bpffs))
    }

    /// Records of the other instances in the network namespace of this thread.
    pub(super) fn beside(&self) -> impl Iterator<Item = InstanceState> {
        let here = Namespace::current().ok();
        let names = Self::instances(&self.bpffs).unwrap_or_default().into_iter();
        names
            .filter(|name| *name != self.instance)
            .filter_map(|name| Self::in_bpffs(&self.bpffs, &name).state().ok())
            .filter(move |state| here.is_some_and(|here| state.namespace.is(here)))
    }
}
