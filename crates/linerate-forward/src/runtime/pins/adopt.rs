//! Opens the pinned objects of an instance, for read-only commands and for the next daemon.

use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::{MapCore, MapHandle};
use linerate_bpf::link;
use linerate_bpf::xdp::map_ids;

use super::bpffs::names;
use super::{InstanceState, Lock, PinnedInstance, Pins};
use crate::maps::Maps;
use crate::runtime::program::{Programs, map_names};
use crate::{Error, Result};

impl Pins {
    /// The maps of the instance: enough for read-only commands.
    ///
    /// # Errors
    /// [`Error::Pin`] if the instance does not exist or has another layout; [`Error::Privilege`],
    /// [`Error::System`].
    pub fn maps(&self) -> Result<Maps> {
        let state = self.state()?;
        state
            .check_layout()
            .map_err(|reason| Error::Pin { path: self.directory.clone(), reason })?;
        self.open_maps(&state, &self.open_programs()?)
    }

    /// The program of this name.
    ///
    /// # Errors
    /// [`Error::Bpf`], also if there is none of this name.
    pub fn program(&self, name: &str) -> Result<OwnedFd> {
        Ok(link::open(&self.directory.join("programs").join(name))?)
    }

    /// All pinned objects of the instance, with or without a daemon: what a new daemon adopts.
    ///
    /// # Errors
    /// As [`Pins::maps`]; [`Error::Bpf`].
    pub fn open(&self, _lock: &Lock) -> Result<PinnedInstance> {
        let state = self.state()?;
        state
            .check_layout()
            .map_err(|reason| Error::Pin { path: self.directory.clone(), reason })?;
        let programs = self.open_programs()?;
        let maps = self.open_maps(&state, &programs)?;
        let programs = Programs::adopted(programs, maps);
        let mut pinned = PinnedInstance { state, programs, ports: Vec::new(), gone: Vec::new() };
        for one in &pinned.state.ports {
            match self.open_port(one)? {
                Some(port) => pinned.ports.push((one.clone(), port)),
                None => pinned.gone.push(one.clone()),
            }
        }
        Ok(pinned)
    }

    fn open_programs(&self) -> Result<Vec<(String, OwnedFd)>> {
        let directory = self.directory.join("programs");
        let open = |name: String| -> Result<(String, OwnedFd)> {
            let program = link::open(&directory.join(&name))?;
            Ok((name, program))
        };
        names(&directory)?.into_iter().map(open).collect()
    }

    /// The maps. Those of this build are the ones that its programs use.
    fn open_maps(&self, state: &InstanceState, programs: &[(String, OwnedFd)]) -> Result<Maps> {
        let directory = self.directory.join("maps");
        let open = |name: String| -> Result<(String, MapHandle)> {
            let path = directory.join(&name);
            let map = MapHandle::from_pinned_path(&path)
                .map_err(|error| Error::bpf(format!("open {}", path.display()), &error))?;
            Ok((name, map))
        };
        let maps: Maps = names(&directory)?.into_iter().map(open).collect::<Result<_>>()?;
        if !state.is_this_build() {
            return Ok(maps);
        }
        let mut used = Vec::new();
        for (_, program) in programs {
            used.extend(map_ids(program.as_fd())?);
        }
        for name in map_names()? {
            // Without a map of this name there is none to ask about.
            let info = maps.get(&name).ok().map(|map| map.info());
            let info = info.transpose().map_err(|error| Error::bpf("ask about a map", &error))?;
            if !info.is_some_and(|info| used.contains(&info.info.id)) {
                return Err(Error::Pin {
                    path: directory.join(name),
                    reason: "this map of the instance is missing, or another one is in its place; `linerate forward \
                             run` replaces the instance, `linerate forward detach` removes it"
                        .to_owned(),
                });
            }
        }
        Ok(maps)
    }
}
