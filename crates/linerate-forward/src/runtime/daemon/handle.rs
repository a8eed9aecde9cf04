//! [`InstanceHandle`]: the one process that may change an instance holds it. Its programs are adopted from a former
//! daemon or newly loaded.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::links;
use crate::Result;
use crate::config::{Config, MaxSessions};
use crate::datapath::Mode;
use crate::runtime::ctnetlink;
use crate::runtime::instance::LockedDenyList;
use crate::runtime::link::{for_tc_only, needs_multi_buffer};
use crate::runtime::memory::{self, Memory};
use crate::runtime::pins::{InstanceState, Lock, Namespace, Pins, PortState};
use crate::runtime::preflight::{self, Fix};
use crate::runtime::program::{Options, PortPrograms, Programs, unregister};
use crate::table::clock::Clock;
use crate::table::control::Control;

/// An instance that this process may change.
#[derive(Debug)]
pub(super) struct InstanceHandle {
    pub(super) pins: Pins,
    pub(super) lock: Lock,
    pub(super) state: InstanceState,
    pub(super) programs: Programs,
    /// It was newly created, and not adopted.
    pub(super) is_fresh: bool,
    /// It was adopted, without the sessions that it had.
    pub(super) has_lost_sessions: bool,
}

/// An instance that was taken over.
struct Adopted {
    state: InstanceState,
    programs: Programs,
    has_lost_sessions: bool,
}

impl InstanceHandle {
    /// Adopts what is pinned under this name, with the ports whose interfaces exist, or creates it.
    ///
    /// # Errors
    /// When another process has its lock, or the kernel refuses.
    pub(super) fn open(
        name: &str,
        config: &Config,
    ) -> Result<(Self, Vec<(PortState, PortPrograms)>)> {
        let pins = Pins::of(name);
        let lock = pins.lock()?;
        ctnetlink::load_module();
        let mut options = Options { statistics: config.statistics, ..Options::default() };
        options.max_sessions = match (config.max_sessions, pins.state()) {
            (MaxSessions::Number(number), _) => number,
            // The sessions stay, also after a change of the machine's memory or of `nf_conntrack_max`.
            (MaxSessions::Auto, Ok(state)) => state.max_sessions,
            (MaxSessions::Auto, Err(_)) => memory::auto(&options)?,
        };
        options.multi_buffer = links()?.iter().any(|link| {
            config.interfaces.contains(&link.name)
                && for_tc_only(link).is_none()
                && needs_multi_buffer(link)
        });
        if !pins.exists() {
            return Self::create(pins, lock, &options, config.datapath);
        }
        match Self::adopt(&pins, &lock, &options, config.datapath) {
            Ok((Adopted { state, programs, has_lost_sessions }, ports)) => {
                let handle =
                    Self { pins, lock, state, programs, is_fresh: false, has_lost_sessions };
                Ok((handle, ports))
            }
            Err(error) => {
                tracing::warn!(%error, "cannot adopt the pinned instance; it is replaced");
                detach(&pins, lock)?;
                let lock = pins.lock()?;
                Self::create(pins, lock, &options, config.datapath)
            }
        }
    }

    fn adopt(
        pins: &Pins,
        lock: &Lock,
        options: &Options,
        datapath: Mode,
    ) -> Result<(Adopted, Vec<(PortState, PortPrograms)>)> {
        let mut has_lost_sessions = false;
        let mut pinned = pins.open(lock)?;
        let here = Namespace::current()?;
        if !pinned.state.namespace.is(here) {
            return Err(crate::Error::Invalid(format!(
                "it belongs to the network namespace {}",
                pinned.state.namespace
            )));
        }
        if pinned.state.is_this_build() && pinned.state.check_compatible(options).is_ok() {
            let (from, max_sessions) = (pinned.state.process, pinned.state.max_sessions);
            tracing::info!(from, max_sessions, "adopted programs and sessions");
        } else {
            let lost = pins.upgrade(lock, &mut pinned, options)?;
            has_lost_sessions = lost.is_some();
            match lost {
                None => tracing::info!("adopted sessions and replaced the programs"),
                Some(reason) => {
                    tracing::warn!(reason, "replaced the programs; sessions are learned again");
                }
            }
        }
        pinned.state.process = std::process::id();
        pinned.state.is_ready = false;
        pins.save_state(lock, &pinned.state)?;
        for one in std::mem::take(&mut pinned.gone) {
            tracing::info!(interface = one.name, "interface of a former port is gone");
            pins.remove_port(lock, &mut pinned.state, one.ifindex)?;
        }
        if pinned.state.datapath != datapath {
            let (from, to) = (pinned.state.datapath.name(), datapath.name());
            tracing::info!(from, to, "other datapaths: the ports are attached again");
            // Their interfaces become ports again, with the programs that the new datapaths need.
            for (one, port) in std::mem::take(&mut pinned.ports) {
                drop(port);
                pins.remove_port(lock, &mut pinned.state, one.ifindex)?;
                unregister(&pinned.programs.maps, one.port, one.ifindex);
            }
            pinned.state.datapath = datapath;
            pins.save_state(lock, &pinned.state)?;
        }
        let (state, programs) = (pinned.state, pinned.programs);
        Ok((Adopted { state, programs, has_lost_sessions }, pinned.ports))
    }

    fn create(
        pins: Pins,
        lock: Lock,
        options: &Options,
        datapath: Mode,
    ) -> Result<(Self, Vec<(PortState, PortPrograms)>)> {
        match Self::load(&pins, &lock, options, datapath) {
            Ok((programs, state)) => {
                let has_lost_sessions = false;
                let handle =
                    Self { pins, lock, state, programs, is_fresh: true, has_lost_sessions };
                Ok((handle, Vec::new()))
            }
            Err(error) => {
                // Only the locked directory exists.
                let _ = pins.detach(lock);
                Err(error)
            }
        }
    }

    fn load(
        pins: &Pins,
        lock: &Lock,
        options: &Options,
        datapath: Mode,
    ) -> Result<(Programs, InstanceState)> {
        let memory = Memory::of(options)?;
        memory.check()?;
        tracing::info!("{memory}");
        let programs = Programs::load(options)?;
        let mut state = InstanceState::new(options, Namespace::current()?);
        state.datapath = datapath;
        pins.create_and_set_sysctls(lock, &programs, &mut state)?;
        Ok((programs, state))
    }

    /// Makes window tracking liberal, if that has come since.
    pub(super) fn follow_sysctls(&mut self) -> Result<()> {
        self.pins.follow_sysctls(&self.lock, &mut self.state)
    }

    /// Notes that the daemon has attached all there is.
    pub(super) fn set_ready(&mut self) -> Result<()> {
        self.state.is_ready = true;
        self.pins.save_state(&self.lock, &self.state)
    }

    /// Its deny list. Waits at most `max_wait` for a command that has the lock.
    pub(super) fn deny_list(
        &self,
        control: &Arc<Control>,
        clock: Clock,
        max_wait: Duration,
    ) -> Result<LockedDenyList> {
        LockedDenyList::open(&self.pins, &self.programs.maps, control, clock, max_wait)
    }

    /// Detaches and removes everything.
    pub(super) fn detach(self) -> Result<()> {
        detach(&self.pins, self.lock)
    }
}

/// The key of the fixes in the record of the instance.
pub(super) const FIXES: &str = "preflight";

/// Detaches an instance, whoever ran it: removes programs, tables and pins, and undoes its fixes. Those come after, since
/// the programs rely on them.
///
/// # Errors
/// The first failure; the rest is done nevertheless.
pub fn detach(pins: &Pins, lock: Lock) -> Result<()> {
    // Read now: the record ends with the instance.
    let state = pins.state_if_any();
    let detached = pins.detach(lock);
    let warn = |error: &dyn std::fmt::Display| tracing::warn!(%error, "cannot undo a fix");
    match state {
        Ok(state) => {
            for fix in state.iter().flat_map(recorded_fixes) {
                match serde_json::from_value::<Fix>(fix.clone()) {
                    Ok(fix) => preflight::restore(&[fix]).iter().for_each(|error| warn(error)),
                    Err(error) => warn(&format_args!("{fix}, which another version made: {error}")),
                }
            }
        }
        Err(error) => tracing::warn!(
            %error,
            "fixes of the instance are not undone, because its record cannot be read; `ethtool -k` shows which \
             offloads of its interfaces are off"
        ),
    }
    detached
}

/// The fixes in this record of an instance. Another version may have made some that this one cannot read.
pub(super) fn recorded_fixes(state: &InstanceState) -> Vec<Value> {
    match state.others.get(FIXES) {
        None => Vec::new(),
        Some(Value::Array(fixes)) => fixes.clone(),
        Some(other) => vec![other.clone()],
    }
}
