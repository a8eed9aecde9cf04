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
            && self.is_last()
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
        let (others, unread) = self.beside();
        let first = others.iter().map(|other| other.windows).find(|saved| saved.liberal.is_some());
        if let (None, Some(1..), Err(error)) = (first, now.liberal, unread) {
            tracing::warn!(
                %error,
                "window tracking was liberal already, perhaps by an instance that cannot be read: detaching leaves it so"
            );
        }
        state.windows = first.unwrap_or(now);
        Ok(now)
    }

    /// Locks the namespace's settings; waits for the current holder.
    pub(super) fn everybody(&self) -> Result<File> {
        lock::wait(self.directory.parent().unwrap_or(&self.bpffs))
    }

    /// Whether no other instance of this namespace needs its settings. An instance that cannot be read may need them.
    pub(super) fn is_last(&self) -> bool {
        let (others, unread) = self.beside();
        if !others.is_empty() {
            return false;
        }
        unread
            .inspect_err(|error| {
                tracing::warn!(
                    %error,
                    "window tracking stays liberal: an instance that cannot be read may need it. If none runs here, \
                     `sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=0 \
                     net.netfilter.nf_conntrack_tcp_ignore_invalid_rst=0` restores the kernel's defaults"
                );
            })
            .is_ok()
    }

    /// Records of the other instances in the network namespace of this thread, and the first failure: a record that
    /// cannot be read may be of one of them.
    fn beside(&self) -> (Vec<InstanceState>, Result<()>) {
        let listed = Namespace::current()
            .and_then(|here| Self::instances(&self.bpffs).map(|names| (here, names)));
        let (here, names) = match listed {
            Ok(listed) => listed,
            Err(error) => return (Vec::new(), Err(error)),
        };
        let (mut others, mut unread) = (Vec::new(), Ok(()));
        for name in names.into_iter().filter(|name| *name != self.instance) {
            match Self::in_bpffs(&self.bpffs, &name).state_if_any() {
                Ok(state) => others.extend(state.filter(|state| state.namespace.is(here))),
                Err(error) => unread = unread.and(Err(error)),
            }
        }
        (others, unread)
    }
}
