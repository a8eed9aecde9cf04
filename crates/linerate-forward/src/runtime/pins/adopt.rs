//! Opens the pinned objects of an instance, for read-only commands and for the next daemon.

use std::os::fd::OwnedFd;

use libbpf_rs::MapHandle;
use linerate_bpf::link;

use super::bpffs::names;
use super::{Lock, PinnedInstance, Pins};
use crate::maps::Maps;
use crate::runtime::program::Programs;
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
        self.open_maps()
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
        let directory = self.directory.join("programs");
        let open = |name: String| -> Result<(String, OwnedFd)> {
            let program = link::open(&directory.join(&name))?;
            Ok((name, program))
        };
        let programs = names(&directory)?.into_iter().map(open).collect::<Result<Vec<_>>>()?;
        let programs = Programs::adopted(programs, self.open_maps()?);
        let mut pinned = PinnedInstance { state, programs, ports: Vec::new(), gone: Vec::new() };
        for one in &pinned.state.ports {
            match self.open_port(one)? {
                Some(port) => pinned.ports.push((one.clone(), port)),
                None => pinned.gone.push(one.clone()),
            }
        }
        Ok(pinned)
    }

    fn open_maps(&self) -> Result<Maps> {
        let directory = self.directory.join("maps");
        let open = |name: String| -> Result<(String, MapHandle)> {
            let path = directory.join(&name);
            let map = MapHandle::from_pinned_path(&path)
                .map_err(|error| Error::bpf(format!("open {}", path.display()), &error))?;
            Ok((name, map))
        };
        names(&directory)?.into_iter().map(open).collect()
    }
}
